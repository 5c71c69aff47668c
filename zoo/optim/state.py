"""The tensors that updates read and replace, and what a step makes of them.

A step is a function of a state. Given a plain `State` it leaves it alone and returns the next one: so it is
traced into a graph. Given the program's `LiveState` it overwrites the tensors themselves, which takes far
fewer operations, and returns the same object. The code of a step is the same for both, as long as it goes on
with the state that the last call returned, and asks for a `State.snapshot` where it needs an older tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from torch import Tensor

STOPPED = "stopped"
"""The state entry (a bool scalar) by which a step says that it moved nothing, and nothing more is to move.

It ends the call.
"""


class State(dict[str, Tensor]):
    """All tensors that updates read and replace, by name."""

    def snapshot(self, name: str) -> Tensor:
        """Return the tensor as it is now, whatever later steps overwrite."""
        return self[name]

    def replaced(self, tensors: Mapping[str, Tensor]) -> State:
        """Return the next state, with these tensors in place of its own of the same names and shapes."""
        self._check(tensors)
        return State({**self, **tensors})

    def _check(self, tensors: Mapping[str, Tensor]) -> None:
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
        """Copy the tensors into those of the same names, and return this state itself."""
        new = {name: tensor.detach() for name, tensor in tensors.items() if tensor is not self[name]}
        self._check(new)
        for name, tensor in zip(new, self.apart(new.values()), strict=True):  # one may be what another was
            self[name].copy_(tensor)
        return self

    def apart(self, tensors: Iterable[Tensor]) -> list[Tensor]:
        """Return the tensors, with a copy for each that shares memory with this state."""
        given = list(tensors)
        own = {tensor.untyped_storage().data_ptr() for tensor in self.values()} if given else set()
        return [each.clone() if each.untyped_storage().data_ptr() in own else each for each in given]


class Outcome(NamedTuple):
    """What one step gives: the next state, scalar metrics, and outputs for each sample of its row."""

    state: State
    metrics: dict[str, Tensor]
    outputs: Mapping[str, Tensor] = MappingProxyType({})


Step = Callable[[State, Any, Any], Outcome]
"""One update, in ordinary PyTorch: of the state, of what all steps share, and of this step's row.

The last two are tensors, or dicts, tuples and lists of them. No ``.item()``, no NumPy, no branch on a value.
"""


class Taken(NamedTuple):
    """What some rows gave: their number, sums of the metrics, and outputs (n_rows, …)."""

    n_rows: int
    names: list[str]
    sums: Tensor
    outputs: dict[str, Tensor]


def is_concrete(tensor: Tensor) -> bool:
    """Return whether the tensor holds numbers; those that a step is traced with only stand for some."""
    return type(tensor) is Tensor
