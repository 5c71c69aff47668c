"""Each algorithm's update is one graph that a compiler takes, and learns what the eager one learns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from zoo import ACER, ACKTR, DDPG

LEARNING = {"learning_starts": 16, "train_freq": 8, "gradient_steps": 4, "batch_size": 8}
UNITS = {"normalize_returns": True, "enable_popart": True, "critic_l2_reg": 0.1, "max_grad_norm": 1.0}

RUNS: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "acer": (ACER, "CartPole-v1", {"n_steps": 5, "replay_start": 20}),
    "acktr": (ACKTR, "CartPole-v1", {"n_steps": 8, "cold_updates": 2, "kfac_update": 2}),
    "ddpg": (DDPG, "Pendulum-v1", {**LEARNING, **UNITS, "return_range": [-2.0, 2.0]}),
}
"""Those that the compiled cells of `tests/golden` leave out."""


@pytest.mark.parametrize("name", RUNS)
def test_compiled_run_learns_what_the_eager_one_learns(name: str) -> None:
    algorithm, env, hyperparameters = RUNS[name]
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
    eager, compiled = (model.learn(64) for model in models)
    assert compiled.runtime.compiles
    assert not eager.runtime.compiles
    assert eager.n_updates == compiled.n_updates > 1
    for key, expected in eager.get_parameters().items():
        moved = np.abs(expected - start[key]).max()
        np.testing.assert_allclose(compiled.get_parameters()[key], expected, atol=0.02 * moved + 1e-6)
    metrics = compiled.read_metrics()
    assert metrics == pytest.approx(eager.read_metrics(), rel=0.02, abs=1e-4, nan_ok=True)
