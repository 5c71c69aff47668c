"""What the products of a traced step become."""

from __future__ import annotations

import subprocess
import sys

# A process of its own: other tests ask whether tracing, which they have no use for, was imported.
TRACE = """
import sys
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from zoo.optim import tracing

for shape in sys.argv[1:]:
    rows, inner, columns = (int(number) for number in shape.split("x"))
    left, right = torch.randn(rows, inner), torch.randn(inner, columns)
    graph = make_fx(torch.mm, tracing._DECOMPOSITIONS, tracing_mode="fake")(left, right)
    products = [node for node in graph.graph.nodes if node.target == torch.ops.aten.mm.default]
    print(*("x".join(map(str, node.meta["val"].shape)) for node in products))
    product = graph(left, right)
    torch.testing.assert_close(product, left @ right)
    assert product.is_contiguous()

elsewhere = torch.randn(64, 32, device="meta"), torch.randn(32, 2, device="meta")
graph = make_fx(torch.mm, tracing._DECOMPOSITIONS, tracing_mode="fake")(*elsewhere)
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
}
"""Rows, inner dimension and columns of a product; shape of what is computed."""


def test_tall_and_narrow_products_are_taken_with_their_factors_swapped() -> None:
    command = [sys.executable, "-c", TRACE, *PRODUCTS]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert dict(zip(PRODUCTS, ended.stdout.split(), strict=True)) == PRODUCTS
