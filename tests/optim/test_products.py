"""What the matrix products of a traced step become."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from zoo.optim.processor import mkl_holds_back

# A process of its own: other tests ask whether tracing, which they have no use for, was imported.
TRACE = """
import sys
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from zoo.optim import tracing
from zoo.optim.products import DECOMPOSITIONS

for shape in sys.argv[1:]:
    rows, inner, columns = (int(number) for number in shape.split("x"))
    left, right = torch.randn(rows, inner), torch.randn(inner, columns)
    graph = make_fx(torch.mm, DECOMPOSITIONS, tracing_mode="fake")(left, right)
    products = [node for node in graph.graph.nodes if node.target == torch.ops.aten.mm.default]
    print(*("x".join(map(str, node.meta["val"].shape)) for node in products))
    product = graph(left, right)
    torch.testing.assert_close(product, left @ right)
    assert product.is_contiguous()

elsewhere = torch.randn(64, 32, device="meta"), torch.randn(32, 2, device="meta")
graph = make_fx(torch.mm, DECOMPOSITIONS, tracing_mode="fake")(*elsewhere)
assert [node.meta["val"].shape for node in graph.graph.nodes if node.op == "call_function"] == [(64, 2)]
"""

PRODUCTS = {
    "64x32x2": "2x64",
    "64x32x25": "25x64",
    "26x32x25": "25x26",
    "64x32x26": "64x26",
    "25x32x25": "25x25",
    "64x32x1": "64x1",  # a vector, for which there are kernels of its own
    "3x32x64": "3x64",
    "20x32x10": "20x10",
}
"""Rows, inner dimension and columns of a product; shape of what is computed."""


ONEDNN = """
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from zoo.optim import products, tracing

products.mkl_holds_back = lambda: True


def traced(left, right):
    graph = make_fx(torch.mm, products.DECOMPOSITIONS, tracing_mode="fake")(left, right)
    targets = [node.target for node in graph.graph.nodes if node.op == "call_function"]
    return graph, targets


def of_shape(rows, columns, transposed, dtype=torch.float32):
    if transposed:
        return torch.randn(columns, rows, dtype=dtype).t()
    return torch.randn(rows, columns, dtype=dtype)


for rows, inner, columns in [(128, 120, 100), (100, 100, 150), (150_000, 5, 2)]:
    for left_transposed in (False, True):
        for right_transposed in (False, True):
            left, right = of_shape(rows, inner, left_transposed), of_shape(inner, columns, right_transposed)
            graph, targets = traced(left, right)
            assert targets == [torch.ops.zoo.onednn_product.default], targets
            expected = left @ right
            torch.testing.assert_close(graph(left, right), expected)
            listed = make_fx(lambda *both: [graph(*both)])(left, right)
            (product,) = tracing._inductor(listed, [left, right])(left, right)
            torch.testing.assert_close(product, expected)

small = traced(of_shape(100, 100, False), of_shape(100, 149, False))[1]
double = traced(*(of_shape(256, 256, False, torch.float64) for _ in range(2)))[1]
elsewhere = traced(*(torch.randn(256, 256, device="meta") for _ in range(2)))[1]
assert small == double == elsewhere == [torch.ops.aten.mm.default], (small, double, elsewhere)
"""


def run(*command: str) -> str:
    ended = subprocess.run([sys.executable, "-c", *command], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_tall_and_narrow_products_are_taken_with_their_factors_swapped() -> None:
    assert dict(zip(PRODUCTS, run(TRACE, *PRODUCTS).split(), strict=True)) == PRODUCTS


@pytest.mark.usefixtures("needs_compiler")
def test_onednn_computes_large_products_of_any_layout() -> None:
    run(ONEDNN)


@pytest.mark.parametrize(
    ("maker", "capability", "holds_back"),
    [
        ("AuthenticAMD", "AVX512", True),
        ("AuthenticAMD", "AVX2", False),
        ("GenuineIntel", "AVX512", False),
    ],
)
def test_mkl_holds_back_where_it_leaves_512_bit_units_alone(
    maker: str, capability: str, holds_back: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"processor\t: 0\nvendor_id\t: {maker}\n")
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    assert mkl_holds_back(cpuinfo) is holds_back
    assert not mkl_holds_back(tmp_path / "missing")
