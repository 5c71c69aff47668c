"""Noise on actions while learning, one process for each environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from zoo.config.fields import build, hyperparameter

Array = np.ndarray


@dataclass
class ActionNoiseConfig:
    """Noise in units of actions scaled to [−1, 1]."""

    type: str = hyperparameter(
        "normal",
        "normal, or ornstein-uhlenbeck (correlated in time)",
        choices=("normal", "ornstein-uhlenbeck"),
    )
    std: float = hyperparameter(0.1, "standard deviation of a draw", ge=0)
    theta: float = hyperparameter(0.15, "pull of the correlated noise back to zero", ge=0)
    dt: float = hyperparameter(0.01, "time between two draws of the correlated noise", gt=0)


class NormalNoise:
    """Independent draws."""

    def __init__(self, std: float, n_actions: int) -> None:
        self.std = np.float32(std)
        self.n_actions = n_actions

    def draw(self, rng: np.random.Generator, n_envs: int) -> Array:
        """Return noise (n_envs, actions)."""
        return self.std * rng.standard_normal((n_envs, self.n_actions), dtype=np.float32)

    def reset(self, env_indices: Array | None = None) -> None:
        """Begin anew in these environments, or in all: nothing to do."""


class OrnsteinUhlenbeckNoise:
    """x ← x − θ·x·dt + σ·√dt·N(0, 1), starting at zero in each episode (Lillicrap et al. 2016)."""

    def __init__(self, std: float, theta: float, dt: float, n_actions: int) -> None:
        self.std, self.theta, self.dt = std, theta, dt
        self.n_actions = n_actions
        self._noise: Array | None = None

    def draw(self, rng: np.random.Generator, n_envs: int) -> Array:
        """Return noise (n_envs, actions)."""
        if self._noise is None:
            self._noise = np.zeros((n_envs, self.n_actions), np.float32)
        fresh = rng.standard_normal(self._noise.shape, dtype=np.float32)
        self._noise = (
            self._noise * np.float32(1 - self.theta * self.dt) + np.float32(self.std * self.dt**0.5) * fresh
        )
        return self._noise

    def reset(self, env_indices: Array | None = None) -> None:
        """Begin anew in these environments, or in all, of which there may be another number then."""
        if env_indices is None:
            self._noise = None
        elif self._noise is not None:
            self._noise[env_indices] = 0.0


def make_action_noise(
    config: ActionNoiseConfig | Mapping[str, Any] | None, n_actions: int
) -> NormalNoise | OrnsteinUhlenbeckNoise | None:
    """Return the process that a config asks for. Raises `ZooError` for an unknown key or type."""
    if config is None:
        return None
    if isinstance(config, Mapping):
        config = build(ActionNoiseConfig, config, "algo.action_noise")
    if config.type == "normal":
        return NormalNoise(config.std, n_actions)
    return OrnsteinUhlenbeckNoise(config.std, config.theta, config.dt, n_actions)
