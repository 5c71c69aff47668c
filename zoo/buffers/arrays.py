"""Preallocated arrays for observations of any space: an array, or a dictionary of arrays, treated alike."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from zoo.envs.spaces import is_image

Array = np.ndarray

Arrays = Any
"""An array (…), or a dictionary of arrays by key."""


@dataclass(frozen=True)
class ArraySpec:
    """Shape of one entry and type of one column that an environment or a policy adds to a buffer."""

    shape: tuple[int, ...]
    dtype: Any


def observation_spec(space: spaces.Space[Any], *, normalized: bool = False) -> Any:
    """Return how observations of ``space`` are stored: in their own type, 64-bit floats in 32 bits."""
    if isinstance(space, spaces.Dict):
        return {key: observation_spec(part, normalized=normalized) for key, part in space.spaces.items()}
    dtype = np.dtype(space.dtype) if space.dtype is not None else np.dtype(np.float32)
    if dtype == np.float64 or (normalized and isinstance(space, spaces.Box) and not is_image(space)):
        dtype = np.dtype(np.float32)
    return ArraySpec(tuple(space.shape or ()), dtype)


def allocate(spec: Any, leading: tuple[int, ...]) -> Arrays:
    """Return zeroed arrays of shape (*leading, *entry shape) for a spec or a dictionary of specs."""
    if isinstance(spec, Mapping):
        return {key: allocate(part, leading) for key, part in spec.items()}
    return np.zeros((*leading, *spec.shape), spec.dtype)


def n_bytes(spec: Any) -> int:
    """Return the size of one entry in bytes."""
    if isinstance(spec, Mapping):
        return sum(n_bytes(part) for part in spec.values())
    return math.prod(spec.shape) * np.dtype(spec.dtype).itemsize


def assign(column: Arrays, index: Any, values: Arrays) -> None:
    """Write ``values`` at ``index``."""
    if isinstance(column, dict):
        for key, part in column.items():
            part[index] = values[key]
    else:
        column[index] = values


def transform(function: Callable[[np.ndarray], Any], column: Arrays) -> Arrays:
    """Apply a function to the array, or to each array in the dictionaries."""
    if isinstance(column, dict):
        return {key: transform(function, part) for key, part in column.items()}
    return function(column)


def merge_leading(column: Arrays) -> Arrays:
    """Return views of arrays (a, b, …) as (a · b, …)."""
    return transform(lambda array: array.reshape(array.shape[0] * array.shape[1], *array.shape[2:]), column)


def take_rows(column: Arrays, places: np.ndarray) -> Arrays:
    """Return the rows of a column at ``places`` (…)."""
    return transform(lambda array: array.take(places, axis=0), column)


def n_rows(column: Arrays) -> int:
    """Return the length of a column's first axis, which all its arrays share."""
    while isinstance(column, dict):
        column = next(iter(column.values()))
    return len(column)


def split_rows(column: Arrays, length: int) -> Iterator[Arrays]:
    """Cut a column along its first axis into views of ``length`` rows, the last one shorter."""
    for start in range(0, n_rows(column), length):
        yield transform(itemgetter(slice(start, start + length)), column)


def join(columns: list[Arrays]) -> Arrays:
    """Concatenate columns along their first axis."""
    if isinstance(columns[0], dict):
        return {key: np.concatenate([column[key] for column in columns]) for key in columns[0]}
    return np.concatenate(columns)


class NotFinite(NamedTuple):
    """Where a number is NaN or infinite, and which of them."""

    name: str
    env: int
    value: float


def arrays_in(column: Any) -> Iterator[np.ndarray]:
    """Yield all arrays of a column, or of an environment's own actions: dictionaries and tuples of them."""
    if isinstance(column, Mapping):
        column = tuple(column.values())
    if isinstance(column, tuple):
        for part in column:
            yield from arrays_in(part)
    else:
        yield np.asarray(column)


LARGEST = float(np.finfo(np.float32).max)
"""The largest number that is finite in 32 bits, in which networks compute."""


def find_not_finite(columns: Mapping[str, Arrays]) -> NotFinite | None:
    """Return the first entry that is not finite in 32 bits, or a reward whose square is not: (n_envs, …)."""
    for name, column in columns.items():
        for array in (column,) if type(column) is np.ndarray else arrays_in(column):
            if array.dtype.kind == "f" and not float(np.vdot(array, array)) <= LARGEST**2:
                limit = math.sqrt(LARGEST) if name == "rewards" else LARGEST
                for place in np.argwhere(~(np.abs(array) <= limit)):
                    return NotFinite(name, int(place[0]), float(array[tuple(place)]))
    return None
