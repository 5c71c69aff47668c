"""Products of factors that are rounded to bfloat16, where PyTorch's own switch for that rounds nothing.

With ``precision=bf16`` PyTorch itself rounds the factors of products on GPUs and on processors with matrix
units. Others multiply vectors of bfloat16 twice as fast as those of float32 (see `zoo.optim.processor`), but
only what is bfloat16. There updates round the factors of large products, and sum in float32: eager ones here,
where what comes out is rounded once more, compiled ones in `zoo.optim.blocked_product`. All other products
stay what they are in float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

MULTIPLICATIONS_OF_LARGE_PRODUCTS = 1_500_000
"""From here on a product was seen to win more than a copy of its factors takes."""

NARROWEST_OF_LARGE_PRODUCTS = 16
"""Rows and columns below which oneDNN's kernels have too little to do at a time."""

_is_in_force: ContextVar[bool] = ContextVar("_is_in_force", default=False)


def is_large(left: Tensor, right: Tensor) -> bool:
    """Tell whether a product is worth rounding its factors: of two float32 matrices on a processor.

    Large is one of many multiplications, and of more than a few rows and columns.
    """
    (n_rows, n_inner), n_columns = left.shape, right.shape[1]
    return (
        left.device.type == "cpu"
        and left.dtype == torch.float32
        and n_rows * n_inner * n_columns >= MULTIPLICATIONS_OF_LARGE_PRODUCTS
        and min(n_rows, n_columns) >= NARROWEST_OF_LARGE_PRODUCTS
    )


@contextmanager
def rounding_large_products(on: bool) -> Iterator[None]:
    """Within the block updates round the factors of large products on the processor, or they don't."""
    token = _is_in_force.set(on)
    try:
        yield
    finally:
        _is_in_force.reset(token)


def rounds_large_products() -> bool:
    """Tell whether `rounding_large_products` is in force."""
    return _is_in_force.get()


def rounded_product(left: Tensor, right: Tensor) -> Tensor:
    """Return the product of the factors in bfloat16, as float32."""
    return (left.to(torch.bfloat16) @ right.to(torch.bfloat16)).to(torch.float32)


def eager_products() -> AbstractContextManager[Any]:
    """Return a context in which eager steps compute products, and their gradients, as compiled ones do."""
    return _RoundedProducts() if rounds_large_products() else nullcontext()


class _RoundedProducts(TorchFunctionMode):
    """Gives the large products of layers and of ``@`` to `_Product`.

    This sees the calls of a forward pass alone; autograd's are what `_Product` says.
    """

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not kwargs and function is F.linear and args[0].dim() == 2:
            rows, weight = args[:2]
            if is_large(rows, weight.t()):
                product = _product(rows, weight.t())
                return product if len(args) == 2 or args[2] is None else product + args[2]
        if not kwargs and function in _PRODUCTS and all(each.dim() == 2 for each in args) and is_large(*args):
            return _product(*args)
        return function(*args, **(kwargs or {}))


def _product(left: Tensor, right: Tensor) -> Tensor:
    product: Tensor = _Product.apply(left, right)  # type: ignore[no-untyped-call]
    return product


_PRODUCTS = {torch.mm, torch.matmul, Tensor.mm, Tensor.matmul}


class _Product(torch.autograd.Function):
    """The product of two matrices; it is rounded if it is large, and so is each product in its gradients."""

    @staticmethod
    def forward(context: Any, left: Tensor, right: Tensor) -> Tensor:
        context.save_for_backward(left, right)
        return rounded_product(left, right) if is_large(left, right) else left @ right

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None]:
        left, right = context.saved_tensors
        of_left, of_right = context.needs_input_grad
        return (
            _product(gradients[0], right.t()) if of_left else None,
            _product(left.t(), gradients[0]) if of_right else None,
        )
