"""Small real runs to look at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from zoo.algorithms.ppo import PPO2
from zoo.envs.make_env import make_vec_env
from zoo.experiment.run_folder import RunFolder


@pytest.fixture(autouse=True)
def _working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def ppo2() -> Callable[..., PPO2]:
    """Make PPO2 on CartPole with rollouts of 64 steps."""

    def make(
        *, env: str = "CartPole-v1", monitor_dir: Path | None = None, seed: int = 0, **options: Any
    ) -> PPO2:
        envs = make_vec_env(env, 2, monitor_dir=monitor_dir, **options)
        return PPO2("MlpPolicy", envs, seed=seed, compile=False, n_steps=32, n_epochs=1)

    return make


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """Make a run's folder."""
    return RunFolder.create(tmp_path / "runs", "ppo2", "CartPole-v1", 0)


@pytest.fixture
def config() -> dict[str, Any]:
    """Return what `zoo train` hands on about callbacks and loggers, for 640 steps."""
    return {
        "n_timesteps": 640,
        "env": {"id": "CartPole-v1"},
        "n_envs": 2,
        "verbose": 0,
        "progress_bar": False,
        "callbacks": {
            "eval": {"every": 128, "n_episodes": 3, "n_envs": 2, "deterministic": True},
            "checkpoint": {"every": 192},
            **dict.fromkeys(("stop_on_reward", "stop_on_no_improvement", "stop_on_episodes")),
        },
        "logger": {"every": 64, "console": False, "csv": True, "tensorboard": True, "wandb": None},
    }
