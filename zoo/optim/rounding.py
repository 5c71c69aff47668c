"""Products of factors that are rounded to bfloat16, where PyTorch's own switch for that rounds nothing.

With ``precision=bf16`` PyTorch itself rounds the factors of products on GPUs and on processors with matrix
units. Others multiply vectors of bfloat16 twice as fast as those of float32 (see `zoo.optim.processor`), but
only what is bfloat16. There updates round large products here: the sums are float32, and what comes out of
them is rounded once more.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from zoo.optim.processor import has_bfloat16_vectors

MULTIPLICATIONS_OF_LARGE_PRODUCTS = 1_500_000
"""From here on a product was seen to win more than oneDNN's call and a copy of its factors take."""

NARROWEST_OF_LARGE_PRODUCTS = 16
"""Rows and columns below which oneDNN's kernels have too little to do at a time."""


def is_large(left: Tensor, right: Tensor) -> bool:
    """Tell whether the product of two matrices is one of float32 on a processor that oneDNN is good at."""
    (n_rows, n_inner), n_columns = left.shape, right.shape[1]
    return (
        left.device.type == "cpu"
        and left.dtype == torch.float32
        and n_rows * n_inner * n_columns >= MULTIPLICATIONS_OF_LARGE_PRODUCTS
        and min(n_rows, n_columns) >= NARROWEST_OF_LARGE_PRODUCTS
    )


def rounds_large_products() -> bool:
    """Tell whether the precision that is in force leaves it to us to round their factors."""
    asked = torch.backends.mkldnn.matmul.fp32_precision == "bf16"  # type: ignore[attr-defined]
    return asked and has_bfloat16_vectors()


def rounded_product(left: Tensor, right: Tensor) -> Tensor:
    """Return the product of the factors in bfloat16, as float32."""
    return (left.to(torch.bfloat16) @ right.to(torch.bfloat16)).to(torch.float32)


def eager_products() -> AbstractContextManager[Any]:
    """Return a context in which eager steps, backward passes too, compute products as compiled ones do."""
    if not rounds_large_products():
        return nullcontext()
    return _RoundedProducts()  # type: ignore[no-untyped-call]


class _RoundedProducts(TorchDispatchMode):
    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if operation is torch.ops.aten.mm.default and is_large(*args):
            return rounded_product(*args)
        if operation is torch.ops.aten.addmm.default and not kwargs and is_large(*args[1:]):
            return rounded_product(*args[1:]) + args[0]
        return operation(*args, **(kwargs or {}))
