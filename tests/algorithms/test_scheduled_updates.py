"""Schedules stand where the steps began that an update follows, also in the last, short one."""

from __future__ import annotations

from typing import Any

import pytest
from torch import Tensor

from zoo import ACER, DDPG, DQN, PPO2, SAC, TRPO

OFF_POLICY = {"train_freq": 64, "gradient_steps": -1, "learning_starts": 0, "batch_size": 8}

RUNS: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "ppo2": (PPO2, "CartPole-v1", {"n_steps": 32, "n_epochs": 1}),
    "acer": (ACER, "CartPole-v1", {"n_steps": 32}),
    "trpo": (TRPO, "CartPole-v1", {"n_steps": 32, "batch_size": 64, "n_critic_updates": 1}),
    "dqn": (DQN, "CartPole-v1", OFF_POLICY),
    "ddpg": (DDPG, "Pendulum-v1", OFF_POLICY),
    "sac": (SAC, "Pendulum-v1", OFF_POLICY),
}


@pytest.mark.parametrize("name", RUNS)
def test_no_update_stands_at_the_end_of_its_schedule(name: str) -> None:
    """Updates come after 64 steps of two environments; 160 steps are two and a half."""
    algorithm, env_id, settings = RUNS[name]

    class Noting(algorithm):  # type: ignore[misc]
        def rates(self, progress: float) -> dict[str, Tensor]:
            rates: dict[str, Tensor] = super().rates(progress)
            remaining.append(rates["learning_rate"].item() / 1e-3)
            return rates

    remaining: list[float] = []
    model = Noting({"net_arch": [8]}, env_id, n_envs=2, seed=0, learning_rate="lin_1e-3", **settings)
    model.learn(160)
    assert remaining == pytest.approx([1 - begun / 160 for begun in (0, 64, 128)])

    remaining.clear()
    before = model.num_timesteps
    model.learn(160, reset_num_timesteps=False)
    total = before + 160
    assert remaining == pytest.approx([1 - (before + begun) / total for begun in (0, 64, 128)])

    remaining.clear()
    model.learn(64)
    assert remaining == pytest.approx([1.0])
