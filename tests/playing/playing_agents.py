"""Agents that nobody trained: they act, and that is enough here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from zoo.algorithms.registry import algorithm_class
from zoo.envs.config import EnvConfig

RUN = Path("runs/ppo2/CartPole-v1/20260101-120000_s0")
MINIGRID = EnvConfig(id="MiniGrid-Empty-5x5-v0", wrappers=["minigrid.wrappers.FlatObsWrapper"])


def save_agent(path: str | Path, algo: str = "ppo2", env: Any = "CartPole-v1", **options: Any) -> Path:
    """Write an agent of this algorithm with random weights and return its path."""
    card = {"seed": 0, "timesteps": 40_000, "mean_return": 312.5, "std_return": 8.0, "n_eval_episodes": 20}
    return algorithm_class(algo)("MlpPolicy", env, seed=1, compile=False, **options).save(path, card=card)
