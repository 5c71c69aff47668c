"""Matrix products of compiled updates on a CPU: which kernels compute them.

PyTorch leaves products of float32 to MKL, which does not use the 512-bit units of AMD's processors. OneDNN,
which PyTorch brings as well, does: for layers of 256 units it takes half the time on a Zen 5. A call of it
costs some ten microseconds more, so small products stay with MKL.

As `zoo.optim.tracing`, this uses private parts of PyTorch: it is imported once something is to be compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._inductor import ir, mkldnn_ir
from torch._inductor.lowering import permute, register_lowering

from zoo.optim.processor import mkl_holds_back

FEW_COLUMNS = 25
"""Columns up to which a product was seen to be faster with its factors swapped, for batches of 64 and 256."""

MULTIPLICATIONS_FOR_ONEDNN = 1_500_000
"""From here on a product was seen to be faster in oneDNN, whichever of its factors is transposed."""


@torch.library.custom_op("zoo::onednn_product", mutates_args=())
def onednn_product(left: Tensor, right: Tensor) -> Tensor:
    """Return ``left @ right``; in compiled graphs it is oneDNN that computes it."""
    return left @ right


@onednn_product.register_fake
def _(left: Tensor, right: Tensor) -> Tensor:
    return left.new_empty(left.shape[0], right.shape[1])


@register_lowering(torch.ops.zoo.onednn_product.default, type_promotion_kind=None)
def _lowered(left: Any, right: Any) -> Any:
    """Make it the call of oneDNN's linear layer that has the transposed right factor for weights."""
    linear = mkldnn_ir.LinearUnary
    rows = linear.require_contiguous(linear.realize_input(left))  # its caller would copy it, more slowly
    weights = linear.realize_input(permute(right, [1, 0]))
    size = [rows.get_size()[0], weights.get_size()[0]]
    layout = ir.FixedLayout(torch.device("cpu"), rows.get_dtype(), size)
    no_bias, no_activation = None, ("none", [-1], "")
    node = linear(layout=layout, inputs=[rows, weights], constant_args=[no_bias, *no_activation])
    return ir.TensorBox.create(mkldnn_ir._create_output_node(node))


def _addmm(bias: Tensor, left: Tensor, right: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """Add the bias after the product, where it fuses with what follows: ``addmm`` starts by copying it."""
    return left @ right + bias if alpha == beta == 1 else NotImplemented


def _mm(left: Tensor, right: Tensor) -> Tensor:
    """Give large products to oneDNN, and swap the factors of tall and narrow ones.

    MKL's kernels are up to six times faster so.
    """
    if left.device.type != "cpu":
        return NotImplemented
    (n_rows, n_inner), n_columns = left.shape, right.shape[1]
    is_large = n_rows * n_inner * n_columns >= MULTIPLICATIONS_FOR_ONEDNN
    if is_large and left.dtype == torch.float32 and mkl_holds_back():
        return torch.ops.zoo.onednn_product(left, right)
    if not 1 < n_columns <= FEW_COLUMNS < n_rows:
        return NotImplemented
    return (right.t() @ left.t()).t().contiguous()


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.addmm.default: _addmm,
    torch.ops.aten.mm.default: _mm,
}
"""What products of a traced graph become."""
