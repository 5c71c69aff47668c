"""ACER with policies that remember, and under masks: windows begin with the state that was there."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from logged_envs import KINDS, logged_vector_env

from zoo import ACER, evaluate_policy, make_vec_env
from zoo.buffers.sequence import NO_INDEX
from zoo.envs.toys import Masked


def gru(policy: str = "ActionValue", **fields: Any) -> dict[str, Any]:
    return {"_target_": f"toy_policies.Gru{policy}Policy", "net_arch": [16], **fields}


SETTINGS: dict[str, Any] = {"seed": 0, "compile": False, "threads": 1}
QUICK: dict[str, Any] = {**SETTINGS, "learning_rate": 5e-3, "rms_prop_decay": 0.9}


@torch.no_grad()
def assert_windows_lead_on(model: ACER, n: int = 6) -> int:
    """Assert that windows give what was computed step by step; return how many steps were cut short."""
    rows = model._tensors(model.buffer.windows(model.buffer.sample_starts(model.rng, n)))
    n_cut_short = 0
    for row in range(n):
        batch = {name: column[row] for name, column in rows.items()}
        parameters, _, after = model.policy(batch, batch["states"])
        torch.testing.assert_close(parameters, batch["behaviour"], rtol=1e-4, atol=1e-5)
        places = batch["next_index"]
        assert after is not None
        torch.testing.assert_close(batch["next_states"][places[:, -1]], after, rtol=1e-4, atol=1e-5)
        for env, step in np.argwhere(places.numpy() != NO_INDEX):
            cut = {
                name: batch[name][env : env + 1, : step + 1] for name in ("observations", "episode_starts")
            }
            _, _, state = model.policy(cut, batch["states"][env : env + 1])
            assert state is not None
            torch.testing.assert_close(
                batch["next_states"][places[env, step]], state[0], rtol=1e-4, atol=1e-5
            )
            n_cut_short += int(step) < model.config.n_steps - 1
    return n_cut_short


@pytest.mark.parametrize(("kind", "share_encoder"), [*((kind, True) for kind in KINDS), ("own", False)])
def test_windows_give_the_outputs_of_stepping_one_by_one(kind: str, share_encoder: bool) -> None:
    """Also where episodes end in them, are cut short, or reset in a step of their own."""
    vector_env, _ = logged_vector_env(kind)
    policy = gru(share_encoder=share_encoder)
    model = ACER(
        policy, vector_env, n_steps=6, buffer_size=60, replay_start=30, learning_rate=0.0, **SETTINGS
    )
    model.learn(150)
    assert model.buffer.columns["episode_starts"].any()
    assert assert_windows_lead_on(model) > 0


def test_continuous_actions_remember_too() -> None:
    model = ACER(gru("StochasticDueling"), "Pendulum-v1", n_envs=2, n_steps=6, learning_rate=0.0, **SETTINGS)
    model.learn(300)
    assert_windows_lead_on(model)
    trained = ACER(gru("StochasticDueling"), "Pendulum-v1", n_envs=2, n_steps=6, replay_start=50, **SETTINGS)
    before = trained.get_parameters()
    trained.learn(200)
    moved = [
        name for name, value in trained.get_parameters().items() if not np.array_equal(before[name], value)
    ]
    assert set(moved) == set(before)


def test_a_cue_that_is_gone_is_remembered() -> None:
    """No policy without a memory gets more than 0 on average."""
    policy = {"recurrent": "gru", "lstm_hidden_size": 12, "critic_lstm": "shared", "net_arch": []}
    options = {**QUICK, "learning_rate": 2e-2, "n_steps": 12, "replay_start": 200, "gamma": 0.95}
    model = ACER(policy, "Zoo/Memory-v0", n_envs=8, **options).learn(6000)
    mean, _ = evaluate_policy(model, "Zoo/Memory-v0", n_eval_episodes=40)
    assert mean > 0.9


class Untold(gym.Env[Any, Any]):
    """Keeps masks to itself."""

    def __init__(self) -> None:
        self.masked = Masked()
        self.observation_space, self.action_space = self.masked.observation_space, self.masked.action_space

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.masked.reset(seed=seed)

    def step(self, action: Any) -> Any:
        return self.masked.step(action)


@pytest.mark.parametrize(("env", "low", "high"), [(Masked, 0.8, 1.01), (Untold, -2.0, 0.6)])
def test_invalid_actions_are_never_taken_where_masks_tell(env: Any, low: float, high: float) -> None:
    """The mean reward of a step shows it: half of the actions are forbidden, and cost 1."""
    envs = make_vec_env(lambda: gym.wrappers.TimeLimit(env(), 20), 8, check=False)
    model = ACER({"net_arch": [32]}, envs, n_steps=10, replay_start=500, gamma=0.5, **QUICK)
    model.learn(6000)
    memory = model.buffer
    masks = memory.columns.get("action_masks")
    assert (masks is not None) == (env is Masked)
    if masks is not None:
        assert np.take_along_axis(masks[:500], memory.columns["actions"][:500, :, None], -1).all()
        assert memory.columns["behaviour"][:500][~masks[:500]].max() < -1e7
    rows = (memory.heads[0] - np.arange(1, 100)) % memory.length
    assert low < memory.columns["rewards"][rows].mean() < high
