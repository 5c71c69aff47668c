"""Environments whose every observation, reward and end is known beforehand."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces


def assert_same(ours: Any, theirs: Any) -> None:
    """Compare nested dicts, sequences and arrays bit for bit."""
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        for key in theirs:
            assert_same(ours[key], theirs[key])
    elif isinstance(theirs, tuple | list) or (isinstance(theirs, np.ndarray) and theirs.dtype == object):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert_same(one, other)
    else:
        assert np.array_equal(ours, theirs)
        assert np.asarray(ours).dtype == np.asarray(theirs).dtype


class Counting(gym.Env[Any, Any]):
    """Observes [episode number, step of the episode]; rewards step numbers; episodes of 2, 3, 4, 2, … steps.

    Odd episodes end as truncated, even ones as terminated; ``both`` sets both flags, and
    with ``reuse`` all observations are one array that is written into.
    """

    def __init__(self, lengths: tuple[int, ...] = (2, 3, 4), both: bool = False, reuse: bool = False) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = spaces.Discrete(2)
        self._lengths = lengths
        self._both, self._reuse = both, reuse
        self._episode = -1
        self._observation = np.zeros(2, dtype=np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._episode += 1
        self._observation[:] = self._episode, 0
        return self._shown(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._observation[1] += 1
        step = int(self._observation[1])
        done = step == self._lengths[self._episode % len(self._lengths)]
        odd = self._episode % 2 == 1
        info = {"is_success": odd, "score": step * 10.0} if done else {}
        terminated, truncated = done and (self._both or not odd), done and (self._both or odd)
        return self._shown(), float(step), terminated, truncated, info

    def _shown(self) -> Any:
        return self._observation if self._reuse else self._observation.copy()


class Noisy(gym.Env[Any, Any]):
    """Everything random comes from the seed: dictionary observations, rewards, ends, action masks."""

    def __init__(self) -> None:
        self.observation_space = spaces.Dict(
            {
                "image": spaces.Box(0, 255, (3, 4), np.uint8),
                "state": spaces.Box(-10.0, 10.0, (3,), np.float64),
                "token": spaces.Discrete(4, start=-1),
            }
        )
        self.action_space = spaces.MultiDiscrete([2, 3])

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._draw(), {"draw": self.np_random.random()}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        ends = self.np_random.random(2) < 0.15
        reward = self.np_random.normal() + float(action.sum())
        info = {"draw": self.np_random.random()} if self.np_random.random() < 0.5 else {}
        return self._draw(), reward, bool(ends[0]), bool(ends[1]), info

    def action_masks(self) -> Any:
        return self._mask

    def _draw(self) -> dict[str, Any]:
        self._mask = self.np_random.random(5) < 0.5
        self._mask[[0, 2]] = True
        return {
            "image": self.np_random.integers(0, 256, (3, 4), dtype=np.uint8),
            "state": self.np_random.normal(size=3),
            "token": self.np_random.integers(-1, 3),
        }


class Failing(gym.Env[Any, Any]):
    """Raises in its third step."""

    observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._n_steps = 0
        return np.zeros(1, dtype=np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._n_steps += 1
        if self._n_steps == 3:
            raise RuntimeError("the simulator lost its licence")
        return np.zeros(1, dtype=np.float32), 0.0, False, False, {}
