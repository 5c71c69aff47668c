"""Each algorithm's update is one graph that a compiler takes, and learns what the eager one learns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from zoo import A2C, ACER, ACKTR, DDPG, DQN, PPO1, PPO2, QRDQN, SAC, TD3, TQC, TRPO

MEMORY = {"n_step": 3, "prioritized": {}}

RUNS: dict[str, tuple[Any, str, dict[str, Any], int]] = {
    "ppo2": (PPO2, "CartPole-v1", {"n_steps": 8, "n_minibatches": 2, "n_epochs": 2, "target_kl": 0.05}, 64),
    "a2c": (A2C, "CartPole-v1", {"n_steps": 8}, 64),
    "ppo2_masked_parts": (PPO2, "Zoo/MaskedComposite-v0", {"n_steps": 8, "n_minibatches": 2}, 64),
    "acer": (ACER, "CartPole-v1", {"n_steps": 5, "replay_start": 20}, 64),
    "acer in a box": (ACER, "Pendulum-v1", {"n_steps": 5, "replay_start": 20, "delta": 0.1}, 64),
    "acktr": (ACKTR, "CartPole-v1", {"n_steps": 8, "cold_updates": 2, "kfac_update": 2}, 96),
    "ppo1": (PPO1, "CartPole-v1", {"n_steps": 8, "batch_size": 6, "n_epochs": 2}, 64),
    "trpo": (
        TRPO,
        "CartPole-v1",
        {"n_steps": 16, "batch_size": 12, "n_critic_updates": 2, "cg_max_steps": 3, "sub_sampling_factor": 2},
        64,
    ),
    "ppo2_sde": (PPO2, "Pendulum-v1", {"n_steps": 8, "n_epochs": 2, "use_sde": True}, 64),
    "sac_sde": (
        SAC,
        "Pendulum-v1",
        {"learning_starts": 16, "train_freq": 8, "gradient_steps": 2, "batch_size": 8, "use_sde": True},
        48,
    ),
    "dqn": (
        DQN,
        "Zoo/Masked-v0",
        {"learning_starts": 16, "train_freq": 8, "gradient_steps": 4, "batch_size": 8},
        48,
    ),
    "qrdqn": (
        QRDQN,
        "CartPole-v1",
        {
            "learning_starts": 16,
            "train_freq": 8,
            "gradient_steps": 4,
            "batch_size": 8,
            "n_quantiles": 6,
            "dueling": True,
            "memory": MEMORY,
        },
        48,
    ),
    "dqn_memory": (
        DQN,
        "CartPole-v1",
        {"learning_starts": 16, "train_freq": 8, "gradient_steps": 4, "batch_size": 8, "memory": MEMORY},
        48,
    ),
    "ddpg": (
        DDPG,
        "Pendulum-v1",
        {"learning_starts": 16, "train_freq": 4, "gradient_steps": 2, "batch_size": 8},
        48,
    ),
    "ddpg in units of returns": (
        DDPG,
        "Pendulum-v1",
        {
            "learning_starts": 16,
            "train_freq": 4,
            "gradient_steps": 2,
            "batch_size": 8,
            "normalize_returns": True,
            "enable_popart": True,
            "critic_l2_reg": 0.1,
            "return_range": [-2.0, 2.0],
            "max_grad_norm": 1.0,
        },
        48,
    ),
    "sac": (
        SAC,
        "Pendulum-v1",
        {"learning_starts": 16, "train_freq": 4, "gradient_steps": 1, "batch_size": 8},
        48,
    ),
    "td3": (
        TD3,
        "Pendulum-v1",
        {"learning_starts": 16, "train_freq": 4, "gradient_steps": 3, "batch_size": 8},
        48,
    ),
    "tqc": (
        TQC,
        "Pendulum-v1",
        {"learning_starts": 16, "train_freq": 4, "gradient_steps": 2, "batch_size": 8, "n_quantiles": 5},
        48,
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_compiled_run_learns_what_the_eager_one_learns(name: str) -> None:
    algorithm, env, hyperparameters, n_timesteps = RUNS[name]
    models = [
        algorithm(
            env=env,
            n_envs=2,
            seed=0,
            compile=compile,
            threads=1,
            learning_rate=0.01,
            **{"policy": {"net_arch": [8]}, **hyperparameters},
        )
        for compile in (False, True)
    ]
    start = models[0].get_parameters()
    eager, compiled = (model.learn(n_timesteps) for model in models)
    assert compiled.runtime.compiles
    assert not eager.runtime.compiles
    assert eager.n_updates == compiled.n_updates > 1
    for key, expected in eager.get_parameters().items():
        moved = np.abs(expected - start[key]).max()
        np.testing.assert_allclose(compiled.get_parameters()[key], expected, atol=0.02 * moved + 1e-6)
    metrics = compiled.read_metrics()
    assert metrics == pytest.approx(eager.read_metrics(), rel=0.02, abs=1e-4, nan_ok=True)
