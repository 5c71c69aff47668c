"""With a memory the toy that needs one is solved, masked too; without one it is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from zoo import A2C, PPO2, evaluate_policy, make_vec_env
from zoo.envs.toys import Memory

LEARNED, BY_CHANCE = 0.9, 0.6

SETTINGS: dict[Any, dict[str, Any]] = {
    PPO2: {"n_steps": 24, "n_minibatches": 2, "n_epochs": 6, "ent_coef": 0.01},
    A2C: {"n_steps": 12, "use_rms_prop": False, "normalize_advantage": True},
}
N_TIMESTEPS = {PPO2: 6_000, A2C: 12_000}


class MaskedMemory(Memory):
    """The same with four actions, two of which are allowed at a time; another one ends the episode with −1.

    Which two is random, and only the mask tells; the right one of them is the one that the cue says.
    """

    def __init__(self) -> None:
        super().__init__(length=4)
        self.action_space = spaces.Discrete(4)

    def reset(self, **options: Any) -> Any:
        shown = super().reset(**options)
        self._pair = int(self.np_random.integers(2))
        return shown

    def step(self, action: Any) -> Any:
        pair, choice = divmod(int(action), 2)
        if pair != self._pair:
            return np.zeros(2, np.float32), -1.0, True, False, {"is_success": False}
        self._pair = int(self.np_random.integers(2))
        return super().step(choice)

    def action_masks(self) -> Any:
        return np.repeat(np.arange(2) == self._pair, 2)


def score(algorithm: Any, policy: dict[str, Any], env: Any) -> float:
    """Return the mean return of 100 episodes after training."""
    model = algorithm(
        policy,
        env,
        n_envs=16,
        seed=0,
        compile=False,
        threads=1,
        learning_rate=0.01,
        gamma=0.95,
        **SETTINGS[algorithm],
    )
    model.learn(N_TIMESTEPS[algorithm])
    return evaluate_policy(model, env, 100, seed=1, n_envs=7)[0]


@pytest.mark.parametrize("algorithm", SETTINGS)
@pytest.mark.parametrize(
    "memory",
    [
        {"recurrent": "lstm"},
        {"recurrent": "lstm", "lstm_layer_norm": True, "critic_lstm": "shared"},
        {"recurrent": "gru"},
    ],
    ids=["lstm", "shared normalised lstm", "gru"],
)
def test_memory_toy_is_solved(algorithm: Any, memory: dict[str, Any]) -> None:
    assert score(algorithm, {**memory, "lstm_hidden_size": 16, "net_arch": []}, "Zoo/Memory-v0") > LEARNED


@pytest.mark.parametrize("algorithm", SETTINGS)
def test_memory_toy_is_not_solved_without(algorithm: Any) -> None:
    assert score(algorithm, {"net_arch": [32]}, "Zoo/Memory-v0") < BY_CHANCE


def masked() -> Any:
    return make_vec_env(MaskedMemory, 16, check=False)


def test_masks_and_memory_go_together() -> None:
    with_both = {"recurrent": "lstm", "lstm_hidden_size": 16, "net_arch": []}
    model = PPO2(
        with_both,
        masked(),
        seed=0,
        compile=False,
        threads=1,
        learning_rate=0.01,
        gamma=0.95,
        **SETTINGS[PPO2],
    )
    model.learn(N_TIMESTEPS[PPO2])
    assert evaluate_policy(model, masked(), 100, seed=1)[0] > LEARNED
    rollout = model.finished_rollout()
    assert rollout["action_masks"].shape == (16, 24, 4)
    taken = rollout["action_masks"].gather(-1, rollout["actions"][..., None])
    assert taken.all()


def test_masks_alone_do_not_remember() -> None:
    model = PPO2(
        {"net_arch": [32]},
        masked(),
        seed=0,
        compile=False,
        threads=1,
        learning_rate=0.01,
        gamma=0.95,
        **SETTINGS[PPO2],
    )
    model.learn(N_TIMESTEPS[PPO2])
    assert evaluate_policy(model, masked(), 100, seed=1)[0] < BY_CHANCE
