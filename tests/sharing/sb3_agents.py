"""Agents that Stable-Baselines3 and SB3-Contrib make and save here, with weights that nobody trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces

VECTOR = spaces.Box(np.array([-1.0, -2.5, -np.inf], np.float32), np.array([1.0, 2.5, np.inf], np.float32))
IMAGE = spaces.Box(0, 255, (40, 36, 3), np.uint8)
PARTS = spaces.Dict({"kind": spaces.Discrete(4), "picture": IMAGE, "vector": VECTOR})
CONTINUOUS = spaces.Box(np.array([-2.0, -1.0], np.float32), np.array([2.0, 3.0], np.float32))
CHOICE = spaces.Discrete(5)


class Still(gym.Env):
    """An environment of any spaces in which nothing happens."""

    def __init__(self, observation_space: spaces.Space, action_space: spaces.Space) -> None:
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        return self.observation_space.sample(), 1.0, False, False, {}


def peer(name: str) -> type[Any]:
    """Return the class of an algorithm of SB3 or SB3-Contrib."""
    import sb3_contrib
    import stable_baselines3

    return getattr(stable_baselines3, name, None) or getattr(sb3_contrib, name)


def make(name: str, policy: str, env: Any, **options: Any) -> Any:
    """Return an agent of this algorithm whose actions differ from one observation to the next."""
    if name not in ("A2C", "ARS", "PPO", "MaskablePPO", "RecurrentPPO", "TRPO"):
        options = {"buffer_size": 10, **options}
    torch.manual_seed(0)
    model = peer(name)(policy, env, seed=0, device="cpu", **options)
    with torch.no_grad():
        for parameter in model.policy.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        for statistics in model.policy.buffers():
            statistics.add_((10 * torch.rand(statistics.shape)).to(statistics.dtype))
    return model


def saved(model: Any, folder: Path) -> Path:
    """Return the zip of an agent."""
    path = folder / "agent.zip"
    model.save(path)
    return path


def observations(space: spaces.Space, n: int) -> Any:
    """Return a batch of random observations."""
    rng = np.random.default_rng(1)
    if isinstance(space, spaces.Dict):
        return {key: observations(part, n) for key, part in space.items()}
    if isinstance(space, spaces.Discrete):
        return rng.integers(space.n, size=n)
    if space.dtype == np.uint8:
        return rng.integers(256, size=(n, *space.shape)).astype(np.uint8)
    return rng.standard_normal((n, *space.shape)).astype(np.float32)
