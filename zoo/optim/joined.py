"""Vectors joined into one, such as a gradient of all layers, without copying the products among them.

Inductor lets a kernel write into its part of what it is joined into, but not where that part is a view of
what the kernel makes, as a layer's gradient (out, in) is one in the vector of all. Then it copies.

This uses private parts of PyTorch; `zoo.optim.tracing` imports it, as it does `zoo.optim.products`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._inductor import ir
from torch._inductor.lowering import register_lowering

from zoo.optim.compiled_cache import version_of


@torch.library.custom_op(f"zoo::joined_{version_of(__file__)}", mutates_args=())
def joined(vectors: Sequence[Tensor]) -> Tensor:
    """Return vectors one behind the other."""
    return torch.cat(list(vectors))


@joined.register_fake
def _(vectors: Sequence[Tensor]) -> Tensor:
    return vectors[0].new_empty(sum(vector.shape[0] for vector in vectors))


@register_lowering(joined._opoverload, type_promotion_kind=None)
def _lowered(vectors: Any) -> Any:
    return ir.TensorBox(_Joined.create(vectors, 0))


class _Joined(ir.ConcatKernel):
    """As inductor's own, but for products, which are written to where they are joined."""

    @classmethod
    def realize_into(cls, src: Any, dst: Any) -> Any:
        product = _product_in(src)
        if product is None:
            return super().realize_into(src, dst)
        storage, layout = ir.as_storage_and_layout(dst)
        place = ir.FixedLayout(layout.device, layout.dtype, product.get_size(), offset=layout.offset)
        product.layout = ir.NonOwningLayout(ir.ReinterpretView(data=storage, layout=place))
        return product


def _product_in(vector: Any) -> ir.CppTemplateBuffer | ir.ExternKernelOut | None:
    """Return the product that a vector is, row by row, where that lies in memory of its own."""
    if not ir.is_storage_and_layout(vector):
        return None
    whole = vector
    while isinstance(whole, ir.TensorBox | ir.BaseView | ir.StorageBox):
        whole = whole.data
    if not isinstance(whole, ir.CppTemplateBuffer | ir.ExternKernelOut):
        return None
    if not isinstance(whole.layout, ir.FixedLayout) or not whole.layout.is_contiguous():
        return None
    is_all = vector.get_numel() == whole.get_numel() and vector.get_layout().is_contiguous()
    return whole if is_all and vector.get_dtype() == whole.get_dtype() else None


def _cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    are_vectors = all(each.dim() == 1 and each.device.type == "cpu" for each in tensors)
    are_alike = len({each.dtype for each in tensors}) == 1
    return joined(list(tensors)) if are_vectors and are_alike else NotImplemented


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {torch.ops.aten.cat.default: _cat}
"""What joining becomes in a traced graph."""
