"""Sums of compiled graphs on a CPU, in forms that inductor makes quick code of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from zoo.optim.intermediates import laid_out
from zoo.optim.processor import LANES

LONGEST_PLAIN_SUM = 65_536
"""Numbers up to which a processor of 512 bits adds in registers; beyond, partial sums lie in memory."""

N_SUMMANDS = 4
"""Numbers that are added to each other before they are to a sum: for that each waits for the last."""

FEW_COLUMNS = 16
"""Columns below which inductor takes the rows of each sum to several threads, one sum after the other."""


def _vector_norm(
    vector: Tensor, order: float = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """Sum the squares of a long vector in rows, each of which inductor adds in registers, several at once."""
    is_plain = order == 2 and dim is None and not keepdim and dtype is None and vector.dim() == 1
    is_known = vector.device.type == "cpu" and vector.dtype in (torch.float32, torch.float64)
    if not (is_plain and is_known):
        return NotImplemented
    squares = vector.square()
    n_rows = max(1, -(-len(vector) // (N_SUMMANDS * LONGEST_PLAIN_SUM)))
    n_columns = len(vector) // (N_SUMMANDS * n_rows * LANES) * LANES
    if not n_columns:
        return squares.sum().sqrt()
    whole, rest = squares.tensor_split([N_SUMMANDS * n_rows * n_columns])
    summands = whole.view(N_SUMMANDS, n_rows, n_columns).unbind()
    return (sum(summands[1:], summands[0]).sum(1).sum() + rest.sum()).sqrt()


def _mean(tensor: Tensor, dim: Sequence[int] | None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """Put the axis of a mean last where a short one follows: quantiles (batch, quantiles, actions)."""
    is_plain = tensor.dim() == 3 and dim in ([1], [-2]) and not keepdim and dtype is None
    if not is_plain or tensor.device.type != "cpu" or tensor.shape[2] >= FEW_COLUMNS:
        return NotImplemented
    return laid_out(tensor.transpose(1, 2)).mean(2)


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.linalg_vector_norm.default: _vector_norm,
    torch.ops.aten.mean.dim: _mean,
}
"""What sums of a traced graph become."""
