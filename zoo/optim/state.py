"""The tensors that updates read and replace, and what one step returns.

A step is a function of a state. Given a plain `State` it leaves it alone and returns the next one: so it is
traced into a graph. Given the runner's `LiveState` it overwrites the tensors themselves, which takes far
fewer operations, and returns the same object. The code of a step is the same for both, as long as it goes on
with the state that the last call returned, and asks for a `State.snapshot` where it needs an older tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from torch import Tensor

STOPPED = "stopped"
"""The state entry (a bool scalar) by which a step says that it moved nothing, and ends the call."""

Tree = Any
"""A tensor, or dicts, tuples and lists of trees."""


class State(dict[str, Tensor]):
    """All tensors that updates read and replace, by name."""

    def snapshot(self, name: str) -> Tensor:
        """Return the tensor as it is now, whatever later steps overwrite."""
        return self[name]

    def replaced(self, tensors: Mapping[str, Tensor]) -> State:
        """Return the next state, with these tensors in place of its own of the same names and shapes."""
        self._check_shapes(tensors)
        return State({**self, **tensors})

    def _check_shapes(self, tensors: Mapping[str, Tensor]) -> None:
        for name, tensor in tensors.items():
            if tensor.shape != self[name].shape:
                raise ValueError(f"{name}: {tuple(tensor.shape)} cannot replace {tuple(self[name].shape)}")


class LiveState(State):
    """The tensors themselves, which modules share: steps on it overwrite them."""

    @property
    def is_cuda(self) -> bool:
        """Whether they lie on a GPU."""
        return next(iter(self.values())).is_cuda

    def snapshot(self, name: str) -> Tensor:
        """Return a copy of the tensor."""
        return self[name].clone()

    def replaced(self, tensors: Mapping[str, Tensor]) -> LiveState:
        """Overwrite this state's tensors, and return it."""
        self.overwrite(tensors)
        return self

    def overwrite(self, tensors: Mapping[str, Tensor]) -> None:
        """Copy the tensors into those of the same names."""
        new = {name: tensor.detach() for name, tensor in tensors.items() if tensor is not self[name]}
        self._check_shapes(new)
        for name, tensor in zip(new, self.without_aliases(new.values()), strict=True):
            self[name].copy_(tensor)

    def without_aliases(self, tensors: Iterable[Tensor]) -> list[Tensor]:
        """Return the tensors, with a copy for each that shares memory with this state."""
        given = list(tensors)
        own = {tensor.untyped_storage().data_ptr() for tensor in self.values()} if given else set()
        return [each.clone() if each.untyped_storage().data_ptr() in own else each for each in given]


class StepResult(NamedTuple):
    """What one step returns: the next state, scalar metrics, and outputs for each sample of its row."""

    state: State
    metrics: dict[str, Tensor]
    outputs: Mapping[str, Tensor] = MappingProxyType({})


Step = Callable[[State, Any, Any], StepResult]
"""One update, in ordinary PyTorch: of the state, of what all steps share, and of this step's row.

The last two are trees. No ``.item()``, no NumPy, no branch on a value.
"""


def is_concrete(tensor: Tensor) -> bool:
    """Return whether the tensor holds numbers; those that a step is traced with have none."""
    return type(tensor) is Tensor


def tree_leaves(tree: Tree) -> list[Tensor]:
    """Return the tensors of a tree, always in the same order. Raises `TypeError` for anything else in it."""
    if isinstance(tree, Tensor):
        return [tree]
    if not isinstance(tree, dict | tuple | list):
        raise TypeError(f"expected tensors, or dicts, tuples and lists of them; found {type(tree).__name__}")
    return [
        leaf for part in (tree.values() if isinstance(tree, dict) else tree) for leaf in tree_leaves(part)
    ]


def tree_map(function: Callable[[Tensor], Any], tree: Tree) -> Tree:
    """Return the tree with the function's result in the place of each tensor."""
    if isinstance(tree, Tensor):
        return function(tree)
    if isinstance(tree, dict):
        return {name: tree_map(function, part) for name, part in tree.items()}
    parts = [tree_map(function, part) for part in tree]
    return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)


def tree_unflatten(tree: Tree, tensors: Iterable[Tensor]) -> Tree:
    """Return a tree of the same form that holds these tensors, as many as it has `tree_leaves`."""
    remaining = iter(tensors)
    return tree_map(lambda _: next(remaining), tree)


def tree_row(rows: Tree, index: int) -> Tree:
    """Return one row of tensors with a leading dimension."""
    return tree_map(lambda tensor: tensor[index], rows)


def tree_signature(tree: Tree, first_dimension: int = 0) -> Hashable:
    """Return what two trees share if one graph serves both: names, shapes from that dimension on, dtypes."""
    if isinstance(tree, dict):
        return tuple((name, tree_signature(part, first_dimension)) for name, part in tree.items())
    if isinstance(tree, tuple | list):
        return type(tree), *(tree_signature(part, first_dimension) for part in tree)
    return tree.shape[first_dimension:], tree.dtype
