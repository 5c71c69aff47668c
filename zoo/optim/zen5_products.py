"""Matrix products of compiled updates on AMD's Zen 5, as kernels that call oneDNN for one block at a time.

PyTorch leaves products of float32 to MKL, which does not use all of these processors (without this file SAC
takes 308 steps a second instead of 572, DQN 6,760 instead of 10,660). OneDNN, which PyTorch brings as
``brgemm``, does. A kernel of the graph calls it without what a call of an operation costs, which is most of
the time of a small product, and threads share the blocks.

All of it is private to PyTorch (tried with 2.13). Nothing but `zoo.optim.compile` knows of `decompositions`,
and works without; delete this once MKL or PyTorch have caught up.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._inductor.compile_fx  # before its parts
from torch import Tensor
from torch._inductor import ir
from torch._inductor.codegen.cpp_template import CppTemplate
from torch._inductor.lowering import register_lowering
from torch._inductor.utils import parallel_num_threads

ZEN_5 = 26
"""The family of AMD's processors from which on 512 bits are computed at once, as Linux numbers them."""

LANES = 16  # numbers of float32 that a processor of 512 bits takes at once

MULTIPLICATIONS_TO_SHARE = 500_000
"""From here on, some four microseconds of one thread, several gain more than they take to meet."""

MOST_ROWS, MOST_COLUMNS, MOST_INNER = 256, 256, 512
"""The largest block; what it reads of the right factor, 512 KiB, stays in a core's own cache."""

MOST_OUTER = 2
"""Outer products up to which their sum takes less than a product of matrices and what follows it."""

MOST_SUMS, FEWEST_ROWS = 2, 16
"""Columns up to which a product of so many rows is faster as sums along the rows."""

# Compiled graphs are kept by the names of their operations: another file, another name.
_VERSION = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:8]


def decompositions() -> dict[Any, Callable[..., Any]]:
    """Return replacements for a traced graph's matrix products on Zen 5; none elsewhere."""
    return {torch.ops.aten.mm.default: product} if is_zen_5() else {}


@functools.cache
def is_zen_5(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Tell whether oneDNN uses 512-bit units that MKL leaves alone."""
    backends = torch.backends
    if not (backends.mkl.is_available() and backends.mkldnn.is_available() and cpuinfo.is_file()):
        return False
    text = cpuinfo.read_text()
    family = re.search(r"^cpu family\s*: (\d+)$", text, re.MULTILINE)
    is_new = "AuthenticAMD" in text and family is not None and int(family[1]) >= ZEN_5
    return is_new and backends.cpu.get_cpu_capability() == "AVX512"


def product(left: Tensor, right: Tensor) -> Tensor:
    """Return ``left @ right`` in its fastest form; NotImplemented if empty or not float32 on a CPU."""
    is_empty = left.numel() == 0 or right.numel() == 0
    if left.device.type != "cpu" or left.dtype != torch.float32 or is_empty:
        return NotImplemented
    if left.shape[1] <= MOST_OUTER:  # outer products fuse with what follows
        outer = [left[:, i : i + 1] * right[i : i + 1] for i in range(left.shape[1])]
        return sum(outer[1:], outer[0])
    if right.shape[1] <= MOST_SUMS and left.shape[0] >= FEWEST_ROWS and left.is_contiguous():
        return (left[:, None] * right.t()).sum(2)  # so do sums
    swapped, n_copied_back = (right.t(), left.t()), left.shape[0] * right.shape[1]
    if _work(left, right) <= _work(*swapped) + n_copied_back:
        return blocked_product(left, right)
    return blocked_product(*swapped).t().contiguous()


def _work(left: Tensor, right: Tensor) -> int:
    """Return how many vectors are multiplied and numbers copied, which take about as long each."""
    n_vectors = left.numel() * -(-right.shape[1] // LANES)
    return n_vectors + sum(factor.numel() for factor in (left, right) if not factor.is_contiguous())


@torch.library.custom_op(f"zoo::blocked_product_{_VERSION}", mutates_args=())
def blocked_product(left: Tensor, right: Tensor) -> Tensor:
    """Return ``left @ right``, row by row, of two matrices of float32."""
    return (left @ right).contiguous()


@blocked_product.register_fake
def _(left: Tensor, right: Tensor) -> Tensor:
    return left.new_empty(left.shape[0], right.shape[1])


@register_lowering(blocked_product._opoverload, type_promotion_kind=None)
def _lowered(*factors: Any) -> Any:
    kernel = ir.ExternKernel
    left, right = (kernel.require_contiguous_strides(kernel.realize_input(factor)) for factor in factors)
    size = [left.get_size()[0], right.get_size()[1]]
    layout = ir.FixedLayout(torch.device("cpu"), torch.float32, size)
    code = _Template("blocked_product", [left, right], layout, parallel_num_threads())
    lowered = code.generate().output_node()  # type: ignore[no-untyped-call]
    lowered.data.data.allow_epilogue_fusion = False
    return lowered


class _Template(CppTemplate):
    """The code of one product."""

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
