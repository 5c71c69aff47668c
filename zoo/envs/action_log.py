"""The actions of several environments since each was last seeded: with the seed, all that its state takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zoo.envs.spaces import Space

INITIAL_CAPACITY = 1024
"""Steps that fit before the ring grows."""


class ActionLog:
    """One ring for all environments, so that keeping a step of all of them is one assignment.

    It holds as many steps as lie behind the environment that was seeded longest ago, and doubles where they
    don't fit.
    """

    def __init__(self, num_envs: int, action_space: Space) -> None:
        self.n_steps = 0
        """Steps that were added so far; the clock of whoever counts lengths of episodes."""
        self._starts = [0] * num_envs
        self._ring = np.zeros(
            (INITIAL_CAPACITY, num_envs, *(action_space.shape or ())), dtype=action_space.dtype
        )
        self._capacity = self._full_at = INITIAL_CAPACITY

    def add(self, actions: NDArray[Any]) -> None:
        """Keep one action of each environment, (num_envs, …)."""
        n_steps = self.n_steps
        if n_steps == self._full_at:
            self._make_room()
        self._ring[n_steps % self._capacity] = actions
        self.n_steps = n_steps + 1

    def start(self, env: int) -> None:
        """Forget what ``env`` did: it is being seeded."""
        self._starts[env] = self.n_steps

    def steps_since_start(self, env: int) -> int:
        """Return how many actions of ``env`` are kept."""
        return self.n_steps - self._starts[env]

    def since_start(self, env: int) -> NDArray[Any]:
        """Return a copy of the actions of ``env`` since its start, (n, …)."""
        steps = np.arange(self._starts[env], self.n_steps) % self._capacity
        actions: NDArray[Any] = self._ring[steps, env]
        return actions

    def restore(self, each: Sequence[NDArray[Any]]) -> None:
        """Take over the actions of every environment; they end with the same step."""
        self.n_steps = max(len(actions) for actions in each)
        while self._capacity < self.n_steps:
            self._capacity *= 2
        self._ring = np.zeros((self._capacity, *self._ring.shape[1:]), self._ring.dtype)
        for env, actions in enumerate(each):
            self._starts[env] = self.n_steps - len(actions)
            self._ring[self._starts[env] : self.n_steps, env] = actions
        self._full_at = self._capacity

    def _make_room(self) -> None:
        """Let go of the steps that nobody needs any more; if there are none, double the ring."""
        oldest = min(self._starts)
        if self.n_steps - oldest == self._capacity:
            steps = np.arange(oldest, self.n_steps)
            larger = np.zeros((2 * self._capacity, *self._ring.shape[1:]), self._ring.dtype)
            larger[steps % len(larger)] = self._ring[steps % self._capacity]
            self._ring, self._capacity = larger, len(larger)
        self._full_at = oldest + self._capacity
