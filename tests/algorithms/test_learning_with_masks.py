"""Masks and actions with parts, as far as learning: what is valid is learned, and nothing else is done."""

from __future__ import annotations

from typing import Any

import pytest

from zoo import A2C, DQN, PPO2, QRDQN, make_vec_env
from zoo.training.evaluation import evaluate

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
    A2C: {"n_steps": 8, "learning_rate": 5e-3, "use_rms_prop": False, "gamma": 0.0, "ent_coef": 0.0},
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


@pytest.mark.parametrize("algorithm", SETTINGS)
def test_masked_env_is_solved_with_masks_alone(algorithm: Any) -> None:
    """20 steps pay 1 at best; blind to the masks, half of them end it, so hardly more than 1 is collected."""
    assert score(algorithm, "Zoo/Masked-v0", 8_000) > 18.5
    assert score(algorithm, "Zoo/Masked-v0", 2_000, mask_actions=False) < 4.0


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "kind", [pytest.param("MultiDiscrete", marks=SLOW), pytest.param("MultiBinary", marks=SLOW), "Composite"]
)
@pytest.mark.parametrize("algorithm", [A2C, PPO2])
def test_several_masked_choices_are_learned_at_once(algorithm: Any, kind: str) -> None:
    env_id = f"Zoo/Masked{kind}-v0"
    assert score(algorithm, env_id, 6_000) > 18.0
    assert score(algorithm, env_id, 1_000, mask_actions=False) < 4.0


@pytest.mark.parametrize("algorithm", [A2C, PPO2])
def test_every_part_of_an_action_is_learned(algorithm: Any) -> None:
    """What the parts earn is multiplied: 0.9 by chance, no more than 10 with one choice left to chance."""
    assert score(algorithm, "Zoo/Composite-v0", 12_000) > 14.0
