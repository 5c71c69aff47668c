"""Tensors in dicts, tuples and lists, taken apart and put together again."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

from torch import Tensor

Tree = Any
"""A tensor, or dicts, tuples and lists of trees."""


def leaves(tree: Tree) -> list[Tensor]:
    """Return the tensors of a tree, always in the same order."""
    if isinstance(tree, Tensor):
        return [tree]
    if not isinstance(tree, dict | tuple | list):
        raise _unexpected(tree)
    found: list[Tensor] = []
    for part in tree.values() if isinstance(tree, dict) else tree:
        if isinstance(part, Tensor):
            found.append(part)
        else:
            found.extend(leaves(part))
    return found


def mapped(function: Callable[[Tensor], Any], tree: Tree) -> Tree:
    """Return the tree with the function's result in the place of each tensor."""
    if isinstance(tree, Tensor):
        return function(tree)
    if isinstance(tree, dict):
        return {name: mapped(function, part) for name, part in tree.items()}
    if isinstance(tree, tuple | list):
        parts = [mapped(function, part) for part in tree]
        return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
    raise _unexpected(tree)


def _unexpected(tree: Any) -> TypeError:
    return TypeError(f"expected tensors, or dicts, tuples and lists of them; found {type(tree).__name__}")


def rebuilt(tree: Tree, tensors: Iterable[Tensor]) -> Tree:
    """Return a tree of the same form that holds these tensors, as many as it has `leaves`."""
    following = iter(tensors)
    return mapped(lambda _: next(following), tree)


def row(rows: Tree, index: int) -> Tree:
    """Return one row of tensors with a leading dimension."""
    return mapped(lambda tensor: tensor[index], rows)


def form(tree: Tree, first_dimension: int = 0) -> Hashable:
    """Return what two trees share if one graph serves both: names, shapes from that dimension on, dtypes."""
    if isinstance(tree, dict):
        return tuple((name, form(part, first_dimension)) for name, part in tree.items())
    if isinstance(tree, tuple | list):
        return type(tree), *(form(part, first_dimension) for part in tree)
    return tree.shape[first_dimension:], tree.dtype
