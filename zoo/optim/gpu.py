"""Work on a GPU: arrays that travel there together, and CUDA graphs, whose kernels are launched together.

Each copy and each launch costs tens of microseconds, more than most of the kernels take. A CUDA graph
(PyTorch's `torch.cuda.graph`) reads and writes the same memory at each replay, so what it is given is copied
into tensors that it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zoo.optim.update_runner import Tree, tree_leaves, tree_map

ALIGNMENT = 16  # bytes between the beginnings of arrays, a multiple of what any type asks for
WARM_UPS = 2  # calls before the capture, in which kernels are compiled and libraries prepare themselves


def tensors_on(device: torch.device, arrays: Sequence[np.ndarray]) -> list[Tensor]:
    """Return the arrays as tensors there, in one copy, which the processor does not wait for."""
    parts = [torch.from_numpy(np.asarray(array)) for array in arrays]
    starts = np.cumsum([0, *(-(-part.nbytes // ALIGNMENT) * ALIGNMENT for part in parts)]).tolist()

    def views(packed: Tensor) -> list[Tensor]:
        return [
            packed[start : start + part.nbytes].view(part.dtype).view(part.shape)
            for start, part in zip(starts, parts, strict=False)
        ]

    here = torch.empty(starts[-1], dtype=torch.uint8, pin_memory=device.type == "cuda")
    for view, part in zip(views(here), parts, strict=True):
        view.copy_(part)
    return views(here.to(device, non_blocking=True))


class CudaGraph:
    """CUDA graph of ``function``; each `replay` overwrites ``result``.

    What it changes in place and is to be as before after the capture is given as ``changed``.
    """

    def __init__(
        self, function: Callable[[], Tree], device: torch.device, changed: Iterable[Tensor] = ()
    ) -> None:
        before = [(tensor, tensor.clone()) for tensor in changed]
        with torch.cuda.device(device):  # which need not be the first one
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(WARM_UPS):
                    function()
            torch.cuda.current_stream().wait_stream(stream)
            for tensor, old in before:
                tensor.copy_(old)
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph, stream=stream):
                self.result = function()

    def replay(self) -> None:
        """Launch the kernels."""
        self._graph.replay()


class GraphedFunction:
    """A function of trees of tensors like the ``examples``, as a CUDA graph."""

    def __init__(self, function: Callable[..., Tree], examples: Sequence[Tree]) -> None:
        self._held: Any = tree_map(torch.clone, list(examples))
        self._graph = CudaGraph(lambda: function(*self._held), tree_leaves(self._held)[0].device)

    def __call__(self, *trees: Tree) -> Tree:
        for held, tensor in zip(tree_leaves(self._held), tree_leaves(list(trees)), strict=True):
            held.copy_(tensor)
        self._graph.replay()
        return tree_map(torch.clone, self._graph.result)
