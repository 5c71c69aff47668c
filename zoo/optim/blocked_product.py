"""Products of two matrices as kernels of compiled graphs on a CPU: blocks, which oneDNN computes.

OneDNN has a function for one block of a product, which PyTorch brings as ``brgemm``. A kernel of the graph
calls it without what a call of an operation costs, which is most of the time of a small product, and threads
share the blocks. The factors are of float32, or rounded to bfloat16, which processors with AVX512_BF16
multiply twice as fast; the sums are float32 either way.

This uses private parts of PyTorch; `zoo.optim.products`, which `zoo.optim.tracing` imports, imports it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._inductor import ir
from torch._inductor.codegen.cpp_template import CppTemplate
from torch._inductor.lowering import register_lowering
from torch._inductor.utils import parallel_num_threads
from torch.nn import functional as F

from zoo.optim.compiled_cache import version_of
from zoo.optim.intermediates import laid_out
from zoo.optim.processor import LANES

MULTIPLICATIONS_TO_SHARE = 500_000
"""From here on, some four microseconds of one thread, several gain more than they take to meet."""

MOST_ROWS, MOST_COLUMNS, MOST_INNER = 256, 256, 512
"""The largest block; what it reads of the right factor, 512 KiB, stays in a core's own cache."""


VERSION = version_of(__file__)


@torch.library.custom_op(f"zoo::blocked_product_{VERSION}", mutates_args=())
def blocked_product(left: Tensor, right: Tensor) -> Tensor:
    """Return ``left @ right``, row by row, of two matrices of float32."""
    return (left @ right).contiguous()


@blocked_product.register_fake
def _(left: Tensor, right: Tensor) -> Tensor:
    return left.new_empty(left.shape[0], right.shape[1])


@register_lowering(blocked_product._opoverload, type_promotion_kind=None)
def _lowered(left: Any, right: Any) -> Any:
    return _in_blocks(_Template, left, right)


def rounded_blocked_product(left: Tensor, right: Tensor) -> Tensor:
    """Return the product of two matrices of float32 whose numbers are rounded to bfloat16, as float32."""
    n_inner = left.shape[1]
    if n_inner % 2:
        left, right = F.pad(left, (0, 1)), F.pad(right, (0, 0, 0, 1))
    right = right if right.is_contiguous() else laid_out(right)
    bits = right.view(torch.int32)
    rounded = bits + 0x7FFF + ((bits >> 16) & 1)  # to the nearest, or the even one; NaN as computed stays
    pairs = ((rounded[0::2] >> 16) & 0xFFFF) | (rounded[1::2] & -0x10000)
    return product_with_pairs(left.to(torch.bfloat16), pairs)


@torch.library.custom_op(f"zoo::product_with_pairs_{VERSION}", mutates_args=())
def product_with_pairs(left: Tensor, pairs: Tensor) -> Tensor:
    """Return the product, as float32, of two matrices of bfloat16.

    Of the right one two rows are one of ``pairs`` (int32), whose lower halves are the numbers of the first.
    """
    numbers = pairs.view(torch.bfloat16).view(*pairs.shape, 2).transpose(1, 2).flatten(0, 1)
    return left.float() @ numbers.float()


@product_with_pairs.register_fake
def _(left: Tensor, pairs: Tensor) -> Tensor:
    return left.new_empty(left.shape[0], pairs.shape[1], dtype=torch.float32)


@register_lowering(product_with_pairs._opoverload, type_promotion_kind=None)
def _lowered_with_pairs(left: Any, pairs: Any) -> Any:
    return _in_blocks(_TemplateWithPairs, left, pairs)


def _in_blocks(template: type[_Template], *factors: Any) -> Any:
    kernel = ir.ExternKernel
    left, right = (kernel.require_contiguous_strides(kernel.realize_input(factor)) for factor in factors)
    size = [left.get_size()[0], right.get_size()[1]]
    layout = ir.FixedLayout(torch.device("cpu"), torch.float32, size)
    code = template("blocked_product", [left, right], layout, parallel_num_threads())
    product = code.generate().output_node()  # type: ignore[no-untyped-call]
    product.data.data.allow_epilogue_fusion = False
    return product


class _Template(CppTemplate):
    """The code of one product."""

    right_block = "right + k * n_columns + j"
    before = ""

    def render(  # type: ignore[override]
        self, kernel: Any, template_buffer_node: Any = None, epilogue_nodes: Any = None, **_: Any
    ) -> str:
        assert not epilogue_nodes, "the code writes the product alone"
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
    const auto* left = &{kernel.index(left, ["0", "0"])};
    const auto* right = &{kernel.index(right, ["0", "0"])};
    {self.before}
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
                    left + i * n_inner + k, {self.right_block}, product + i * n_columns + j);
}}
"""


class _TemplateWithPairs(_Template):
    """That of one with pairs of rows.

    Where oneDNN can't multiply them, it throws. A small product finds that out where somebody can catch it,
    as nobody can among several threads.
    """

    right_block = "reinterpret_cast<const at::BFloat16*>(right + k / 2 * n_columns + j)"
    before = """
    static const bool is_possible = [] {
        const at::BFloat16 left[2] = {}, right[2] = {};
        float product[1];
        at::native::cpublas::brgemm(1, 1, 2, 2, 1, 1, false, left, right, product);
        return true;
    }();
    (void)is_possible;"""


def blocks(n_rows: int, n_inner: int, n_columns: int, threads: int) -> tuple[int, int, int, int]:
    """Return rows, inner dimension and columns of a block, and how many threads share the blocks.

    They share the longer of rows and columns: each reads all of the other factor, from another core's cache.
    The inner dimension is divided as it is for one thread, so that all numbers of threads sum alike.
    """
    if n_rows * n_inner * n_columns < MULTIPLICATIONS_TO_SHARE:
        threads = 1
    by_rows = n_rows >= n_columns
    rows = part_length(n_rows, MOST_ROWS, threads if by_rows else 1)
    columns = part_length(n_columns, MOST_COLUMNS, 1 if by_rows else threads)
    return rows, part_length(n_inner, MOST_INNER), columns, threads


def part_length(length: int, most: int, times: int = 1) -> int:
    """Return how long the parts of a length are: ``most`` at most, a multiple of `LANES` but for the whole.

    Their number is a multiple of ``times`` where the length is enough for that.
    """
    n_parts = times * -(-length // (times * most))
    return min(length, LANES * -(-length // (n_parts * LANES)))
