"""The arrays that environments are stepped into: one row each, in this process or shared by several."""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from zoo.envs.spaces import Space, action_array, batch_array, mask_size
from zoo.envs.whereabouts import N_COLUMNS
from zoo.errors import ZooError

Observations = Any
"""An array with one row an environment, or a dict of such arrays for a Dict space."""

CACHE_LINE = 64


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
    whereabouts: NDArray[np.int64]
    """Which environment is being stepped, for whoever has to say where one hangs: `Whereabouts`."""

    @classmethod
    def allocate(cls, num_envs: int, observation_space: Space, action_space: Space) -> StepArrays:
        """Return zeroed arrays."""
        n_masks = mask_size(action_space)
        return cls(
            batch_array(observation_space, num_envs),
            action_array(action_space, num_envs),
            np.zeros(num_envs),
            np.zeros(num_envs, dtype=np.bool_),
            np.zeros(num_envs, dtype=np.bool_),
            None if n_masks is None else np.zeros((num_envs, n_masks), dtype=np.bool_),
            np.zeros((num_envs, N_COLUMNS), dtype=np.int64),
        )

    def rows(self, start: int, stop: int) -> StepArrays:
        """Return views of the rows from ``start`` to ``stop``."""
        return StepArrays(*(_each(lambda array: array[start:stop], part) for part in vars(self).values()))

    def observation_parts(self) -> list[tuple[str | None, NDArray[Any]]]:
        """Return each key of the observations with its array; for those without keys, None with theirs."""
        if isinstance(self.observations, dict):
            return list(self.observations.items())
        return [(None, self.observations)]

    def shown(self, i: int) -> Any:
        """Return a copy of what environment ``i`` shows now."""
        return _each(lambda array: array[i].copy(), self.observations)

    def own(self, observation: Any) -> Any:
        """Return a copy of an observation in the type of its rows. Raises `ZooError` for another shape."""
        if not isinstance(self.observations, dict):
            return _own(self.observations, observation)
        return {key: _own(array, observation[key], key) for key, array in self.observations.items()}

    @property
    def n_bytes(self) -> int:
        """How much memory `within` needs, each array at a cache line of its own."""
        total = 0

        def add(array: NDArray[Any]) -> None:
            nonlocal total
            total += _aligned(array.nbytes)

        for part in vars(self).values():
            _each(add, part)
        return total

    def within(self, memory: mmap.mmap) -> StepArrays:
        """Return arrays of the same shapes and types that lie in ``memory``."""
        offset = 0

        def placed(array: NDArray[Any]) -> NDArray[Any]:
            nonlocal offset
            inside: NDArray[Any] = np.ndarray(array.shape, array.dtype, memory, offset=offset)
            offset += _aligned(array.nbytes)
            return inside

        return StepArrays(*(_each(placed, part) for part in vars(self).values()))


@contextlib.contextmanager
def anonymous_memory(size: int) -> Iterator[IO[bytes]]:
    """Give a file without a name that lives in memory for as long as somebody maps it."""
    in_memory = hasattr(os, "memfd_create")
    with os.fdopen(os.memfd_create("zoo-envs"), "r+b") if in_memory else tempfile.TemporaryFile() as file:
        try:
            os.truncate(file.fileno(), size)
        except OSError as error:
            raise ZooError(f"no memory for {size} bytes of observations: {error.strerror}") from error
        yield file


def copied(observations: Observations) -> Observations:
    """Return a copy of an array or of a dict of arrays."""
    if isinstance(observations, dict):
        return {key: values.copy() for key, values in observations.items()}
    return observations.copy()


def of_shape(shape: tuple[int, ...], observation: Any, key: str | None = None) -> Any:
    """Return an observation, or its part ``key``; another shape, which NumPy would broadcast, raises."""
    if np.shape(observation) == shape:
        return observation
    what = "an observation" if key is None else f"an observation `{key}`"
    raise ZooError(f"{what} of shape {np.shape(observation)}; observation_space says {shape}")


def _own(rows: NDArray[Any], observation: Any, key: str | None = None) -> NDArray[Any]:
    return np.array(of_shape(rows.shape[1:], observation, key), dtype=rows.dtype)


def _each(function: Any, part: Any) -> Any:
    """Apply a function to an array, to each of a dict of them, or to nothing."""
    if isinstance(part, dict):
        return {key: function(array) for key, array in part.items()}
    return None if part is None else function(part)


def _aligned(n_bytes: int) -> int:
    return -(-n_bytes // CACHE_LINE) * CACHE_LINE
