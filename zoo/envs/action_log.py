"""The actions of several environments since each was last seeded: with the seed, all that its state takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zoo.envs.spaces import Space

INITIAL_CAPACITY = 1024
"""Steps that fit before the ring grows; a power of two, as every later capacity."""


class ActionLog:
    """One ring for all environments, so that keeping a step of all of them is one assignment.

    It holds as many steps as lie behind the environment that was seeded longest ago, and doubles where they
    don't fit.
    """

    def __init__(self, num_envs: int, action_space: Space) -> None:
        self.n_steps = 0
        """Steps that were added so far; the clock of whoever counts lengths of episodes."""
        self._starts = [0] * num_envs
        shape = (INITIAL_CAPACITY, num_envs, *(action_space.shape or ()))
        self._use(np.zeros(shape, dtype=action_space.dtype), oldest=0)

    def add(self, actions: NDArray[Any]) -> None:
        """Keep one action of each environment, (num_envs, …)."""
        n_steps = self.n_steps
        if n_steps == self._full_at:
            self._make_room()
        self._ring[n_steps & self._last] = actions
        self.n_steps = n_steps + 1

    def start(self, env: int) -> None:
        """Forget what ``env`` did: it is being seeded."""
        self._starts[env] = self.n_steps

    def steps_since_start(self, env: int) -> int:
        """Return how many actions of ``env`` are kept."""
        return self.n_steps - self._starts[env]

    def since_start(self, env: int) -> NDArray[Any]:
        """Return a copy of the actions of ``env`` since its start, (n, …)."""
        steps = np.arange(self._starts[env], self.n_steps) & self._last
        actions: NDArray[Any] = self._ring[steps, env]
        return actions

    def restore(self, each: Sequence[NDArray[Any]]) -> None:
        """Take over the actions of every environment; they end with the same step."""
        self.n_steps = max(len(actions) for actions in each)
        capacity = INITIAL_CAPACITY
        while capacity < self.n_steps:
            capacity *= 2
        self._use(np.zeros((capacity, *self._ring.shape[1:]), self._ring.dtype), oldest=0)
        for env, actions in enumerate(each):
            self._starts[env] = self.n_steps - len(actions)
            self._ring[self._starts[env] : self.n_steps, env] = actions

    def _make_room(self) -> None:
        """Let go of the steps that nobody needs any more; if there are none, double the ring."""
        ring, oldest = self._ring, min(self._starts)
        if self.n_steps - oldest == len(ring):
            steps = np.arange(oldest, self.n_steps)
            ring = np.zeros((2 * len(ring), *ring.shape[1:]), ring.dtype)
            ring[steps % len(ring)] = self._ring[steps & self._last]
        self._use(ring, oldest)

    def _use(self, ring: NDArray[Any], oldest: int) -> None:
        self._ring = ring
        self._last = len(ring) - 1
        self._full_at = oldest + len(ring)
