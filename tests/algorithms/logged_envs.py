"""Environments that write down every step that they take, for tests to compare with what was learned from."""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from zoo import make_vec_env


class Transition(NamedTuple):
    """One step, as the environment saw it."""

    observation: np.ndarray
    action: Any
    reward: float
    next_observation: np.ndarray
    terminated: bool
    truncated: bool


class Logged(gym.Env[Any, Any]):
    """Random walks whose episodes end one time as terminated, the next time as truncated, and so on.

    Episode k lasts ``lengths[k % len(lengths)]`` steps; all of them are in ``log``.
    """

    def __init__(self, lengths: tuple[int, ...] = (3, 4, 2), actions: Any = None) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.action_space = actions or spaces.Discrete(3)
        self.lengths = lengths
        self.log: list[Transition] = []
        self._episode = -1

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._episode += 1
        self._step = 0
        self._observation = self._drawn()
        return self._observation, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._step += 1
        last = self._step == self.lengths[self._episode % len(self.lengths)]
        terminated, truncated = last and self._episode % 2 == 0, last and self._episode % 2 == 1
        reward = float(np.float32(self.np_random.normal() + np.sum(action)))
        following = self._drawn()
        self.log.append(
            Transition(self._observation, np.copy(action), reward, following, terminated, truncated)
        )
        self._observation = following
        return following, reward, terminated, truncated, {}

    def _drawn(self) -> np.ndarray:
        return self.np_random.normal(size=3).astype(np.float32)


LENGTHS = ((3, 4, 2), (1, 5), (20,))
"""Lengths of episodes in three environments; the last one's are longer than the rollouts of the tests."""

KINDS = ("own", "SAME_STEP", "NEXT_STEP", "reusing")


def logged_vector_env(kind: str, actions: spaces.Space[Any] | None = None) -> tuple[Any, list[Logged]]:
    """Return three logged environments as one of some kind or autoreset mode, and each by itself."""
    envs = [Logged(lengths, actions) for lengths in LENGTHS]
    makers = [lambda env=env: env for env in envs]  # type: ignore[misc]
    if kind == "own":
        waiting = list(envs)
        return make_vec_env(lambda: waiting.pop(0), len(envs), check=False), envs
    if kind == "reusing":
        return Reusing(makers, autoreset_mode=AutoresetMode.SAME_STEP), envs
    return SyncVectorEnv(makers, autoreset_mode=AutoresetMode[kind]), envs


class Reusing(SyncVectorEnv):
    """Writes each step's observations into the same array, as fast simulators do."""

    def __init__(self, env_fns: Any, **options: Any) -> None:
        super().__init__(env_fns, copy=False, **options)
