"""Matrix products of compiled updates on a CPU: which kernels compute them.

PyTorch leaves products of float32 to MKL, which does not use all of an AMD Zen 5 (see
`zoo.optim.processor`). OneDNN, which PyTorch brings as well, does: it takes half the time for layers of 256
units. A call of it costs some ten microseconds more, so small products stay with MKL. PyTorch has a switch
that would send all of them to oneDNN, which is why there is an operation of our own. With
``precision=bf16`` they may be others, see `zoo.optim.rounding`.

This uses private parts of PyTorch, and `zoo.optim.tracing` imports it, once it has said where inductor may
keep its files.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._inductor import ir, mkldnn_ir
from torch._inductor.lowering import permute, register_lowering

from zoo.optim.processor import mkl_holds_back
from zoo.optim.rounding import is_large, rounded_product, rounds_large_products

FEW_COLUMNS = 25
"""Columns up to which a product was seen to be faster with its factors swapped, for batches of 64 and 256."""


# Compiled graphs are kept by the names of their operations: whoever changes what this becomes renames it.
@torch.library.custom_op("zoo::onednn_product", mutates_args=())
def onednn_product(left: Tensor, right: Tensor) -> Tensor:
    """Return ``left @ right``; in compiled graphs it is oneDNN that computes it."""
    return left @ right


@onednn_product.register_fake
def _(left: Tensor, right: Tensor) -> Tensor:
    return left.new_empty(left.shape[0], right.shape[1])


@register_lowering(torch.ops.zoo.onednn_product.default, type_promotion_kind=None)
def _lowered(left: Any, right: Any) -> Any:
    """Make it the call of oneDNN's linear layer that has the transposed right factor for weights.

    These may lie in memory as they like, but for rows that overlap; `LinearUnary.create` would copy them. Of
    the left factor oneDNN's caller would make a contiguous copy itself, more slowly than a graph does.
    """
    layer = mkldnn_ir.LinearUnary
    rows = layer.require_contiguous(layer.realize_input(left))
    weights = layer.realize_input(permute(right, [1, 0]))
    size = [rows.get_size()[0], weights.get_size()[0]]
    layout = ir.FixedLayout(torch.device("cpu"), rows.get_dtype(), size)
    no_bias, no_activation = None, ("none", [-1], "")
    node = layer(layout=layout, inputs=[rows, weights], constant_args=[no_bias, *no_activation])
    return ir.TensorBox.create(mkldnn_ir._create_output_node(node))


def _addmm(bias: Tensor, left: Tensor, right: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """Add the bias after the product, where it fuses with what follows: ``addmm`` starts by copying it."""
    return left @ right + bias if alpha == beta == 1 else NotImplemented


def _mm(left: Tensor, right: Tensor) -> Tensor:
    """Swap the factors of a tall and narrow product, and give a large one to oneDNN."""
    if left.device.type != "cpu":
        return NotImplemented
    n_rows, n_columns = left.shape[0], right.shape[1]
    if 1 < n_columns <= FEW_COLUMNS < n_rows:  # up to six times faster in MKL, and faster in oneDNN
        return (right.t() @ left.t()).t().contiguous()
    if not is_large(left, right):
        return NotImplemented
    if rounds_large_products():
        return rounded_product(left, right)
    return torch.ops.zoo.onednn_product(left, right) if mkl_holds_back() else NotImplemented


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.addmm.default: _addmm,
    torch.ops.aten.mm.default: _mm,
}
"""What products of a traced graph become."""
