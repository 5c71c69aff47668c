"""State trees, taken apart for two files: arrays for safetensors, everything else for JSON.

A state tree is a dict with keys of text, nested at will; its leaves are NumPy arrays or what JSON gives back
as it took it: numbers, texts, booleans, None, and lists and dicts of these. A dict in it may be `Lasting`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zoo.errors import ZooError
from zoo.files.printing import one_line

Arrays = dict[str, NDArray[Any]]
Tree = dict[str, Any]

SEPARATOR = "/"


class Lasting(dict[str, Any]):
    """A part of a tree, of arrays alone, whose content has a name: under that name it is never another one.

    So whoever has written it once need not do so again, in however many trees it stands.
    """

    def __init__(self, name: str, tree: Mapping[str, Any]) -> None:
        super().__init__(tree)
        self.name = name


def lasting_parts(tree: Mapping[str, Any]) -> dict[str, Lasting]:
    """Return the `Lasting` parts of a tree by their paths."""
    return dict(_lasting_parts(tree, ()))


def split(tree: Mapping[str, Any]) -> tuple[Arrays, Tree]:
    """Return the arrays by their paths (``"memory/rewards"``), and the tree with a note for each of them.

    In a path, a ``/`` of a key is written ``~1`` and a ``~`` is written ``~0``, as in a JSON pointer: every
    key is possible, and no two paths are equal. The arrays are the tree's own, not copies. Raises `TypeError`
    for a leaf that would not come back from JSON as it was.
    """
    arrays: Arrays = {}
    return arrays, _without_arrays(tree, (), arrays)


def join(
    arrays: Mapping[str, NDArray[Any]], values: Mapping[str, Any], names: Mapping[str, str] | None = None
) -> Tree:
    """Return the tree that `split` took apart, its `Lasting` parts by path with these names.

    Raises `ZooError` if arrays and values don't belong together.
    """
    tree = _copied(values, (), names or {})
    places = {_path(keys): (parent, keys[-1]) for parent, keys in _leaves(tree, ())}
    for path, array in arrays.items():
        if path not in places:
            raise ZooError(f"the array {one_line(path)} has no place among the values beside it")
        parent, key = places[path]
        if parent[key] != _note(array):
            note = one_line(repr(parent[key]), 60)
            raise ZooError(f"{one_line(path)} is {_note(array)} among the arrays, {note} among the values")
        parent[key] = array
    return tree


def _without_arrays(tree: Mapping[str, Any], keys: tuple[str, ...], arrays: Arrays) -> Tree:
    values: Tree = {}
    for key, value in tree.items():
        here = (*keys, _checked_key(key, keys))
        if isinstance(value, np.ndarray):
            arrays[_path(here)] = value
            values[key] = _note(value)
        elif isinstance(value, Mapping):
            values[key] = _without_arrays(value, here, arrays)
        else:
            values[key] = _checked(value, here)
    return values


def _checked(value: Any, keys: tuple[str, ...]) -> Any:
    """Return a leaf as it is, lists copied."""
    if isinstance(value, list):
        return [_checked(item, (*keys, str(index))) for index, item in enumerate(value)]
    if isinstance(value, dict):
        return {_checked_key(key, keys): _checked(item, (*keys, str(key))) for key, item in value.items()}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    hint = "; give each array of a list a key of its own" if isinstance(value, np.ndarray) else ""
    raise TypeError(
        f"{_path(keys)} is a {type(value).__name__}, which JSON does not give back as it is{hint}"
    )


def _checked_key(key: Any, keys: tuple[str, ...]) -> str:
    if not isinstance(key, str):
        raise TypeError(
            f"the key {key!r} in {_path(keys) or 'the tree'} is a {type(key).__name__}, not a text"
        )
    return key


def _note(array: NDArray[Any]) -> str:
    """Return what stands in an array's place among the values, for whoever reads them."""
    return f"<array {array.dtype} {list(array.shape)}>"


def _path(keys: Iterable[str]) -> str:
    return SEPARATOR.join(key.replace("~", "~0").replace(SEPARATOR, "~1") for key in keys)


def _copied(values: Mapping[str, Any], keys: tuple[str, ...], names: Mapping[str, str]) -> Tree:
    tree = {
        key: _copied(value, (*keys, key), names) if isinstance(value, Mapping) else value
        for key, value in values.items()
    }
    name = names.get(_path(keys)) if keys else None
    return tree if name is None else Lasting(name, tree)


def _lasting_parts(tree: Mapping[str, Any], keys: tuple[str, ...]) -> Iterator[tuple[str, Lasting]]:
    for key, value in tree.items():
        if isinstance(value, Lasting):
            yield _path((*keys, key)), value
        elif isinstance(value, Mapping):
            yield from _lasting_parts(value, (*keys, key))


def _leaves(tree: Tree, keys: tuple[str, ...]) -> Iterator[tuple[Tree, tuple[str, ...]]]:
    """Give the dict and the keys of every leaf."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*keys, key))
        else:
            yield tree, (*keys, key)
