"""Masks and actions with parts, as far as learning: what is valid is learned, and nothing else is done."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from zoo import DQN, PPO2, QRDQN, make_vec_env
from zoo.envs.toys import BitFlipping
from zoo.experiment.evaluation import evaluate

SMALL = {"net_arch": [32]}
DQN_SETTINGS: dict[str, Any] = {
    "train_freq": 64,
    "gradient_steps": 10,
    "batch_size": 64,
    "learning_starts": 200,
    "learning_rate": 5e-3,
    "gamma": 0.25,
    "target_update_interval": 256,
    "buffer_size": 10_000,
    "exploration_fraction": 0.3,
}
SETTINGS: dict[Any, dict[str, Any]] = {
    PPO2: {
        "n_steps": 32,
        "n_minibatches": 2,
        "n_epochs": 6,
        "learning_rate": 5e-3,
        "gamma": 0.0,
        "ent_coef": 0.0,
    },
    DQN: DQN_SETTINGS,
    QRDQN: {**DQN_SETTINGS, "n_quantiles": 5},
}


def score(algorithm: Any, env_id: str, n_steps: int, *, mask_actions: bool = True) -> float:
    """Train, and return the mean return of the best actions."""
    envs, others = (make_vec_env(env_id, 8, seed, mask_actions=mask_actions) for seed in (0, 1))
    model = algorithm(SMALL, envs, seed=0, compile=False, threads=1, **SETTINGS[algorithm])
    return evaluate(model.learn(n_steps), others, 24, seed=1).mean


@pytest.mark.parametrize("algorithm", [PPO2, QRDQN])
def test_masked_env_is_solved_with_masks_alone(algorithm: Any) -> None:
    """20 steps pay 1 at best; blind to the masks, half of them end it, so hardly more than 1 is collected."""
    assert score(algorithm, "Zoo/Masked-v0", 8_000) > 18.5
    assert score(algorithm, "Zoo/Masked-v0", 2_000, mask_actions=False) < 4.0


def test_every_part_of_an_action_is_learned() -> None:
    """What the parts earn is multiplied: 0.9 by chance, no more than 10 with one choice left to chance."""
    assert score(PPO2, "Zoo/Composite-v0", 12_000) > 14.0


def test_masks_and_memory_are_learned_together() -> None:
    """The cue must be remembered, and only masks lead to where it is asked for: without either, 0 at best."""
    policy = {"net_arch": [16], "recurrent": "lstm", "lstm_hidden_size": 32}
    settings: dict[str, Any] = {"n_steps": 24, "n_minibatches": 2, "n_epochs": 6, "learning_rate": 5e-3}

    def learned(policy: Any, n_steps: int, *, mask_actions: bool = True) -> tuple[Any, float]:
        envs, others = (
            make_vec_env("Zoo/MaskedMemory-v0", 8, seed, kwargs={"length": 3}, mask_actions=mask_actions)
            for seed in (0, 1)
        )
        model = PPO2(policy, envs, seed=0, compile=False, threads=1, **settings).learn(n_steps)
        return model, evaluate(model, others, 100, seed=1).mean

    model, mean = learned(policy, 6_000)
    assert mean > 0.9
    rollout = model.finished_rollout()
    assert rollout["action_masks"].shape == (8, 24, 4)
    assert rollout["action_masks"].gather(-1, rollout["actions"][..., None]).all()
    assert learned(SMALL, 2_000)[1] < 0.4
    assert learned(policy, 2_000, mask_actions=False)[1] < 0.4


class MaskedBits(BitFlipping):
    """Only zeros may be flipped, and the last bit; a goal that a mask leaves unreached takes all the time."""

    def action_masks(self) -> Any:
        return allowed({"observation": self._bits})


def allowed(observations: Any) -> Any:
    mask = np.asarray(observations["observation"]) < 0.5
    mask[..., -1] = True
    return mask


@pytest.mark.parametrize(("algorithm", "optimize"), [(DQN, False), (QRDQN, True)])
def test_masks_stay_with_what_is_shown_through_every_kind_of_memory(algorithm: Any, optimize: bool) -> None:
    """Also where goals are replaced, steps are summed and drawn by priority, and episodes are cut short."""
    memory = {"n_step": 3, "hindsight": {}, "prioritized": {}}
    model = algorithm(
        *({"net_arch": [8]}, make_vec_env(lambda: MaskedBits(5), 3, seed=0, check=False)),
        seed=0,
        compile=False,
        replay=memory,
        buffer_size=240,
        learning_starts=60,
        batch_size=16,
        train_freq=30,
        optimize_memory_usage=optimize,
    ).learn(600)
    batch = model.buffer.sample(np.random.default_rng(0), (300,))
    for when in ("", "next_"):
        expected = allowed(batch[f"{when}observations"])
        np.testing.assert_array_equal(batch[f"{when}action_masks"], expected)
    assert np.take_along_axis(batch["action_masks"], batch["actions"][:, None], -1).all()
    seen = {key: part[:50] for key, part in batch["observations"].items()}
    masks = np.arange(5) == np.arange(50)[:, None] % 5
    model.config.exploration_final_eps = 0.5
    for deterministic in (True, False):
        actions, _ = model.predict(seen, action_masks=masks, deterministic=deterministic)
        assert (actions == np.arange(50) % 5).all()
