"""The actions of several environments since each was last seeded: with the seed, all that its state takes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zoo.envs.spaces import Space, action_array

logger = logging.getLogger(__name__)

INITIAL_CAPACITY = 1024
"""Steps that fit before the ring grows; a power of two, as every later capacity."""

MANY_STEPS = 2**20
"""Steps since an environment was seeded that are told, as nothing bounds what they take."""


class ActionLog:
    """One ring for all environments, so that keeping a step of all of them is one assignment.

    It holds as many steps as lie behind the environment that was seeded longest ago, and doubles where they
    don't fit. ``first_index`` is the place of the first environment among all, for messages.
    """

    def __init__(self, num_envs: int, action_space: Space, first_index: int = 0) -> None:
        self._first_index = first_index
        self.n_steps = 0
        """Steps that were added so far; the clock of whoever counts lengths of episodes."""
        self._starts = [0] * num_envs
        self._use(action_array(action_space, INITIAL_CAPACITY, num_envs), oldest=0)

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
        self._use(np.empty((capacity, *self._ring.shape[1:]), self._ring.dtype), oldest=0)
        for env, actions in enumerate(each):
            self._starts[env] = self.n_steps - len(actions)
            self._ring[self._starts[env] : self.n_steps, env] = actions

    def _make_room(self) -> None:
        """Let go of the steps that nobody needs any more; if there are none, double the ring."""
        ring, oldest = self._ring, min(self._starts)
        if self.n_steps - oldest == len(ring):
            if len(ring) == MANY_STEPS:
                self._tell_growth(oldest)
            steps = np.arange(oldest, self.n_steps)
            ring = np.empty((2 * len(ring), *ring.shape[1:]), ring.dtype)
            ring[steps % len(ring)] = self._ring[steps & self._last]
        self._use(ring, oldest)

    def _tell_growth(self, oldest: int) -> None:
        logger.warning(
            "env %d keeps the %s actions since it was last seeded, all of which resuming would repeat, and"
            " will keep ever more: let its episodes end (env.max_episode_steps), or seed it at more of their"
            " ends (env.reseed_every)",
            self._first_index + self._starts.index(oldest),
            f"{MANY_STEPS:,}",
        )

    def _use(self, ring: NDArray[Any], oldest: int) -> None:
        self._ring = ring
        self._last = len(ring) - 1
        self._full_at = oldest + len(ring)
