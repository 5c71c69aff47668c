"""The arrays that environments are stepped into, in this process or in memory that several share."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.vector.utils import create_empty_array
from numpy.typing import NDArray

from zoo.envs.spaces import Observations, Space, action_array, map_arrays, mask_size

CACHE_LINE = 64
NO_ENV = -1


@dataclass
class StepArrays:
    """What one step of all environments takes and gives, (num_envs, …) each."""

    observations: Observations
    actions: NDArray[Any]
    """Records where actions are tuples or dictionaries: `action_array`."""
    rewards: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    action_masks: NDArray[np.bool_] | None
    """Filled where the environments have masks; None where their actions can have none."""
    progress: NDArray[np.int64]
    """Which environment is being stepped: `StepProgress`."""

    @classmethod
    def allocate(cls, num_envs: int, observation_space: Space, action_space: Space) -> StepArrays:
        """Return zeroed arrays."""
        n_masks = mask_size(action_space)
        return cls(
            create_empty_array(observation_space, num_envs),
            action_array(action_space, num_envs),
            np.zeros(num_envs),
            np.zeros(num_envs, dtype=np.bool_),
            np.zeros(num_envs, dtype=np.bool_),
            None if n_masks is None else np.zeros((num_envs, n_masks), dtype=np.bool_),
            np.zeros((num_envs, 4), dtype=np.int64),
        )

    def map(self, function: Callable[[NDArray[Any]], Any]) -> StepArrays:
        """Return what a function makes of each array."""
        parts: Any = vars(self).values()
        mapped: Any = (None if part is None else map_arrays(function, part) for part in parts)
        return StepArrays(*mapped)

    def rows(self, start: int, stop: int) -> StepArrays:
        """Return views of the rows from ``start`` to ``stop``."""
        return self.map(lambda array: array[start:stop])

    @property
    def n_bytes(self) -> int:
        """Memory that `within` needs."""
        sizes: list[int] = []
        self.map(lambda array: sizes.append(_aligned(array.nbytes)))
        return sum(sizes)

    def within(self, memory: mmap.mmap) -> StepArrays:
        """Return arrays of the same shapes and types in ``memory``, each at a cache line of its own."""
        offset = 0

        def place(array: NDArray[Any]) -> NDArray[Any]:
            nonlocal offset
            placed: NDArray[Any] = np.ndarray(array.shape, array.dtype, memory, offset=offset)
            offset += _aligned(array.nbytes)
            return placed

        return self.map(place)


def _aligned(n_bytes: int) -> int:
    return -(-n_bytes // CACHE_LINE) * CACHE_LINE


class StepProgress:
    """How far environments are, in rows of an array (num_envs, 4) that other processes can read.

    Each row holds an environment's last seed, −1 where it is not known, and the step at which it got it.
    ``now``, in the first row, holds the environment at work, or `NO_ENV`, and the number of steps that all
    have begun.
    """

    def __init__(self, rows: NDArray[np.int64], first_index: int) -> None:
        self.seeds, self.seeded_at, self.now = rows[:, 0], rows[:, 1], rows[0, 2:]
        self._first_index = first_index

    def name(self, row: int) -> str:
        """Return ``env 3 (step 17 after seed 40)``, or what is known of it."""
        seed, steps = int(self.seeds[row]), int(self.now[1] - self.seeded_at[row])
        known = [f"step {steps}"] * (steps > 0) + [f"seed {seed}"] * (seed >= 0)
        return f"env {self._first_index + row}" + (f" ({' after '.join(known)})" if known else "")

    def at_work(self) -> str | None:
        """Return the name of the environment that is being stepped or reset, or None."""
        row = int(self.now[0])
        return None if row == NO_ENV else self.name(row)
