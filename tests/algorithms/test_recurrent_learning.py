"""With a memory the toy that needs one is solved; without one it is not."""

from __future__ import annotations

from typing import Any

import pytest

from zoo import A2C, PPO2, evaluate_policy

LEARNED, BY_CHANCE = 0.9, 0.6

SETTINGS: dict[Any, dict[str, Any]] = {
    PPO2: {"n_steps": 24, "n_minibatches": 2, "n_epochs": 6, "ent_coef": 0.01},
    A2C: {"n_steps": 12, "use_rms_prop": False, "normalize_advantage": True},
}
N_TIMESTEPS = {PPO2: 6_000, A2C: 12_000}


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


@pytest.mark.parametrize(
    ("algorithm", "memory"),
    [
        (PPO2, {"recurrent": "lstm"}),
        (A2C, {"recurrent": "gru", "critic_lstm": "shared"}),
    ],
    ids=["ppo2", "a2c"],
)
def test_memory_toy_is_solved(algorithm: Any, memory: dict[str, Any]) -> None:
    assert score(algorithm, {**memory, "lstm_hidden_size": 16, "net_arch": []}, "Zoo/Memory-v0") > LEARNED


def test_memory_toy_is_not_solved_without() -> None:
    assert score(PPO2, {"net_arch": [32]}, "Zoo/Memory-v0") < BY_CHANCE
