"""Counting what a step asks of PyTorch, to know what compiling it would save."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

# The place that PyTorch's own documentation of dispatch modes imports from.
from torch.utils._python_dispatch import TorchDispatchMode

Result = TypeVar("Result")


class _Counter(TorchDispatchMode):
    """Counts the operations in it, those of backward passes included."""

    count = 0

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return operation(*args, **(kwargs or {}))


def counted(function: Callable[[], Result]) -> tuple[Result, int]:
    """Call the function; return its result and the number of tensor operations that it took."""
    counter = _Counter()  # type: ignore[no-untyped-call]
    with counter:
        result = function()
    return result, counter.count
