"""Intermediate results of compiled graphs which had better lie in memory, such as a step size.

Inductor computes what is cheap anew wherever it is read. A root and two divisions of scalars inside Adam's
loop over the parameters took as long as all that the loop does with these, and the C++ compiler does not move
them out: for all it knows, the loop overwrites what they are made of.

This uses private parts of PyTorch; `zoo.optim.tracing` imports it, as it does `zoo.optim.products`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._inductor import ir
from torch._inductor.lowering import register_lowering
from torch._ops import OpOverload


# Compiled graphs are kept by the names of their operations: whoever changes what this becomes renames it.
@torch.library.custom_op("zoo::laid_out", mutates_args=())
def laid_out(tensor: Tensor) -> Tensor:
    """Return the same numbers, row by row; compiled graphs put them into memory before they are read."""
    return tensor.clone(memory_format=torch.contiguous_format)


@laid_out.register_fake
def _(tensor: Tensor) -> Tensor:
    return tensor.new_empty(tensor.shape)


@register_lowering(torch.ops.zoo.laid_out.default, type_promotion_kind=None)
def _lowered(tensor: Any) -> Any:
    tensor.realize()
    return ir.ExternKernel.require_contiguous(tensor)


def keep_scalars(graph: torch.fx.GraphModule) -> None:
    """Let scalars that larger tensors are computed from lie in memory before; on a CPU, where it pays.

    A graph that writes into tensors is left alone: it may write into a scalar after it was computed.
    """
    nodes = list(graph.graph.nodes)
    if any(isinstance(node.target, OpOverload) and node.target._schema.is_mutable for node in nodes):
        return
    for node in nodes:
        readers = [user for user in node.users if _size(user) > 1]
        if _size(node) == 1 and _is_computed(node) and readers:
            _lay_out(graph, node, readers)
    graph.recompile()


def keep_activations(graph: torch.fx.GraphModule) -> None:
    """Let a layer's rectified rows lie in memory where more than one operation reads them; on a CPU.

    A product lays them out for itself; a gradient would compute them anew, from numbers in another order.
    """
    for node in list(graph.graph.nodes):
        is_rectified = node.target is torch.ops.aten.relu.default and _size(node) > 1
        if is_rectified and node.meta["val"].dim() == 2 and len(node.users) > 1:
            _lay_out(graph, node, list(node.users))
    graph.recompile()


def _lay_out(graph: torch.fx.GraphModule, node: torch.fx.Node, readers: list[torch.fx.Node]) -> None:
    with graph.graph.inserting_after(node):
        kept = graph.graph.call_function(torch.ops.zoo.laid_out.default, (node,))
    for reader in readers:
        reader.replace_input_with(node, kept)


def _is_computed(node: torch.fx.Node) -> bool:
    return isinstance(node.target, OpOverload) and not node.target.is_view


def _size(node: torch.fx.Node) -> int:
    """Return how many numbers the node's tensor has; 0 for what is no tensor on a CPU."""
    value = node.meta.get("val")
    return value.numel() if isinstance(value, Tensor) and value.device.type == "cpu" else 0
