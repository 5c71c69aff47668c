"""Tuple and Dict spaces, nested at will: their parts by path, and values nested as the space is.

``"arm/0"`` is the path of the first part of the part ``"arm"``; a space without parts has one part, itself,
at the path ``""``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gymnasium import spaces

from zoo.errors import ZooError

Space = spaces.Space[Any]


def is_composite(space: Space) -> bool:
    """Whether values of ``space`` are tuples or dictionaries."""
    return isinstance(space, spaces.Tuple | spaces.Dict)


def leaf_spaces(space: Space) -> Iterator[tuple[str, Space]]:
    """Yield path and space of every part that is no Tuple or Dict itself, in the order of the space."""
    return leaves(space, None)


def leaves(space: Space, values: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield path and value of every part; the parts' spaces themselves where there are no values."""
    if not is_composite(space):
        yield path[1:], space if values is None else values
        return
    for key, part in _parts(space):
        yield from leaves(part, None if values is None else values[key], f"{path}/{key}")


def flat_space(space: Space) -> Space:
    """Return a space of observations as one Dict of parts by path, if it is a Tuple or a nested Dict."""
    if not is_composite(space) or (
        isinstance(space, spaces.Dict) and not any(map(is_composite, space.values()))
    ):
        return space
    parts = list(leaf_spaces(space))
    if len(dict(parts)) < len(parts):
        raise ZooError(f"the parts of an observation need names that differ when joined by /: {space}")
    return spaces.Dict(parts)


def flat_parts(space: spaces.Dict, values: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield path and value of every part of an observation, for the keys of a `flat_space`.

    What that space has not, and what is nested otherwise, is yielded as it stands.
    """
    start = f"{path}/" if path else ""
    if path in space.spaces or not isinstance(values, Mapping | tuple | list):
        yield path, values
    elif isinstance(values, Mapping):
        for key, part in values.items():
            yield from flat_parts(space, part, f"{start}{key}")
    else:
        for index, part in enumerate(values):
            yield from flat_parts(space, part, f"{start}{index}")


def nested(space: Space, by_path: Mapping[str, Any], path: str = "") -> Any:
    """Return what stands at the paths in tuples and dictionaries, as ``space`` is nested."""
    if isinstance(space, spaces.Dict):
        return {key: nested(part, by_path, f"{path}/{key}") for key, part in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(nested(part, by_path, f"{path}/{index}") for index, part in enumerate(space))
    return by_path[path[1:]]


def row(values: Any, index: Any) -> Any:
    """Return the row at ``index`` of arrays that stand in tuples and dictionaries, nested as they are."""
    if isinstance(values, tuple):
        return tuple(row(part, index) for part in values)
    if isinstance(values, Mapping):
        return {key: row(part, index) for key, part in values.items()}
    return values[index]


def from_record(space: Space, record: Any) -> Any:
    """Return the action that a record holds, nested as ``space`` is; an action without parts is its own."""
    if not is_composite(space):
        return record
    return nested(space, {path: record[path] for path in record.dtype.names})


def _parts(space: Any) -> Iterator[tuple[Any, Space]]:
    yield from space.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
