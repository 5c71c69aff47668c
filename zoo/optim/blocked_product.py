"""A product of two matrices as a kernel of compiled graphs on a CPU: blocks, which oneDNN computes.

OneDNN has a function for one block of a product, which PyTorch brings as ``brgemm``. A kernel of the graph
calls it without what a call of an operation costs, which is most of the time of a small product, and threads
share the blocks.

This uses private parts of PyTorch; `zoo.optim.tracing` imports it, as it does `zoo.optim.products`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._inductor import ir
from torch._inductor.codegen.cpp_template import CppTemplate
from torch._inductor.lowering import register_lowering
from torch._inductor.utils import parallel_num_threads

MULTIPLICATIONS_FOR_THREADS = 500_000
"""From here on, some four microseconds of one thread, several gain more than they take to meet."""

FEWEST_ROWS = 16
"""Rows below which the columns are divided between threads instead."""

MOST_ROWS, MOST_COLUMNS, MOST_INNER = 256, 256, 512
"""The largest block; what it reads of the right factor, 512 KiB, stays in a core's own cache."""

LANES = 16
"""Numbers that oneDNN takes at once; blocks begin at multiples of it."""


# Compiled graphs are kept by the names of their operations: whoever changes what this becomes renames it.
@torch.library.custom_op("zoo::blocked_product", mutates_args=())
def blocked_product(left: Tensor, right: Tensor) -> Tensor:
    """Return ``left @ right``, row by row, of two matrices of float32."""
    return (left @ right).contiguous()


@blocked_product.register_fake
def _(left: Tensor, right: Tensor) -> Tensor:
    return left.new_empty(left.shape[0], right.shape[1])


@register_lowering(torch.ops.zoo.blocked_product.default, type_promotion_kind=None)
def _lowered(left: Any, right: Any) -> Any:
    kernel = ir.ExternKernel
    left, right = (kernel.require_contiguous_strides(kernel.realize_input(each)) for each in (left, right))
    size = [left.get_size()[0], right.get_size()[1]]
    layout = ir.FixedLayout(torch.device("cpu"), torch.float32, size)
    kernel_of_it = _Kernel("blocked_product", [left, right], layout, parallel_num_threads())
    node = kernel_of_it.generate().output_node()  # type: ignore[no-untyped-call]
    node.data.data.allow_epilogue_fusion = False  # the code below writes the product alone
    return node


class _Kernel(CppTemplate):
    """The code of one product."""

    def render(self, kernel: Any, template_buffer_node: Any = None, **_: Any) -> str:  # type: ignore[override]
        left, right = self.input_nodes
        output = template_buffer_node or self.output_node
        (n_rows, n_inner), n_columns = map(int, left.get_size()), int(right.get_size()[1])
        rows, inner, columns, threads = blocks(n_rows, n_inner, n_columns, self.num_threads)
        shared = "#pragma omp parallel for collapse(2)" if threads > 1 else ""
        return f"""{self.header().getvalue()}
#include <ATen/native/CPUBlas.h>
extern "C" {kernel.def_kernel({"left_data": left, "right_data": right}, {"product": output})}
{{
    {kernel.maybe_codegen_profile()}
    const float* left = &{kernel.index(left, ["0", "0"])};
    const float* right = &{kernel.index(right, ["0", "0"])};
    constexpr int64_t n_rows = {n_rows}, n_inner = {n_inner}, n_columns = {n_columns};
    {shared}
    for (int64_t i = 0; i < n_rows; i += {rows})
        for (int64_t j = 0; j < n_columns; j += {columns})
            for (int64_t k = 0; k < n_inner; k += {inner})
                at::native::cpublas::brgemm(
                    std::min<int64_t>({rows}, n_rows - i),
                    std::min<int64_t>({columns}, n_columns - j),
                    std::min<int64_t>({inner}, n_inner - k),
                    n_inner, n_columns, n_columns, k > 0,
                    left + i * n_inner + k, right + k * n_columns + j, product + i * n_columns + j);
}}
"""


def blocks(n_rows: int, n_inner: int, n_columns: int, threads: int) -> tuple[int, int, int, int]:
    """Return rows, inner dimension and columns of a block, and how many threads share the blocks.

    The inner dimension is divided as it is for one thread, so that all numbers of threads sum alike.
    """
    if n_rows * n_inner * n_columns < MULTIPLICATIONS_FOR_THREADS:
        threads = 1
    by_rows = n_rows >= FEWEST_ROWS * threads
    rows = part(n_rows, MOST_ROWS, threads if by_rows else 1)
    columns = part(n_columns, MOST_COLUMNS, 1 if by_rows else threads)
    return rows, part(n_inner, MOST_INNER, 1), columns, threads


def part(length: int, most: int, times: int) -> int:
    """Return into which parts, of ``most`` at most, a length is divided in at least so many."""
    n_parts = times * -(-length // (times * most))
    return min(length, LANES * -(-length // (n_parts * LANES)))
