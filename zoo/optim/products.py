"""Matrix products of compiled updates on a CPU: which kernels compute them.

PyTorch leaves products of float32 to MKL, which does not use all of an AMD Zen 5 (see
`zoo.optim.processor`). OneDNN, which PyTorch brings as well, does: there it takes half the time for layers of
256 units, and a third for those of 64. `zoo.optim.blocked_product` makes them kernels of the graph, where
MKL's are calls of operations. With ``precision=bf16`` products may be others, see `zoo.optim.rounding`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from zoo.optim.blocked_product import blocked_product, rounded_blocked_product
from zoo.optim.processor import LANES, mkl_holds_back
from zoo.optim.rounding import is_large, rounds_large_products

MOST_OUTER = 2
"""Outer products up to which their sum takes less than a product of matrices and what follows it."""

MOST_SUMS, FEWEST_ROWS = 2, 16
"""Columns up to which a product of so many rows is faster as sums along the rows."""

FEW_COLUMNS = 25
"""Columns up to which MKL was faster with a product's factors swapped, for batches of 64 and 256."""


def _addmm(bias: Tensor, left: Tensor, right: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """Add the bias after the product, where it fuses with what follows: ``addmm`` starts by copying it."""
    return left @ right + bias if alpha == beta == 1 else NotImplemented


def _mm(left: Tensor, right: Tensor) -> Tensor:
    """Choose who computes a product, and whether with its factors swapped."""
    if left.device.type != "cpu":
        return NotImplemented
    if rounds_large_products() and is_large(left, right):
        return _with_less_work(rounded_blocked_product, left, right)
    n_columns = right.shape[1]
    is_empty = left.numel() == 0 or right.numel() == 0
    if left.shape[1] <= MOST_OUTER and not is_empty:  # outer products fuse with what follows
        outer = [left[:, i : i + 1] * right[i : i + 1] for i in range(left.shape[1])]
        return sum(outer[1:], outer[0])
    if mkl_holds_back() and left.dtype == torch.float32 and not is_empty:
        is_tall = left.shape[0] >= FEWEST_ROWS and left.is_contiguous()
        if n_columns <= MOST_SUMS and is_tall:  # which fuse, too
            return (left[:, None] * right.t()).sum(2)
        return _with_less_work(blocked_product, left, right)
    if 1 < n_columns <= FEW_COLUMNS < left.shape[0]:  # up to six times faster
        return (right.t() @ left.t()).t().contiguous()
    return NotImplemented


def _with_less_work(product: Callable[[Tensor, Tensor], Tensor], left: Tensor, right: Tensor) -> Tensor:
    """Return what ``product`` makes of the factors, swapped where that is less work."""
    swapped, n_copied_back = (right.t(), left.t()), left.shape[0] * right.shape[1]
    if _work(left, right) <= _work(*swapped) + n_copied_back:
        return product(left, right)
    return product(*swapped).t().contiguous()


def _work(left: Tensor, right: Tensor) -> int:
    """Return how many vectors are multiplied and numbers copied, which take about as long each."""
    n_vectors = left.numel() * -(-right.shape[1] // LANES)
    return n_vectors + sum(factor.numel() for factor in (left, right) if not factor.is_contiguous())


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.addmm.default: _addmm,
    torch.ops.aten.mm.default: _mm,
}
"""What products of a traced graph become."""
