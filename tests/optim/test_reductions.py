"""What the sums of a traced step become: the same numbers, in another order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from zoo.optim.program import Program
from zoo.optim.runtime import Runtime
from zoo.optim.state import State

PIECE = 65_536


def traced(function: Callable[[Tensor], Tensor], given: Tensor) -> torch.fx.GraphModule:
    from zoo.optim.tracing import DECOMPOSITIONS

    return make_fx(function, DECOMPOSITIONS, tracing_mode="fake")(given)


def operations(graph: torch.fx.GraphModule) -> list[str]:
    return [node.target.__name__ for node in graph.graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize(
    ("length", "n_sums"),
    [(0, 1), (1, 1), (63, 1), (64, 3), (65, 3), (4 * PIECE, 3), (4 * PIECE + 1, 3), (999_999, 3)],
)
def test_the_norm_of_a_long_vector_is_summed_in_rows(length: int, n_sums: int) -> None:
    vector = torch.randn(length, generator=torch.Generator().manual_seed(0))
    graph = traced(torch.linalg.vector_norm, vector)
    assert sum(name.startswith("sum") for name in operations(graph)) == n_sums
    torch.testing.assert_close(graph(vector).double(), vector.double().norm(), rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    "norm",
    [
        lambda matrix: torch.linalg.vector_norm(matrix),
        lambda matrix: torch.linalg.vector_norm(matrix[0], 1),
        lambda matrix: torch.linalg.vector_norm(matrix[0], float("inf")),
        lambda matrix: torch.linalg.vector_norm(matrix, dim=1),
        lambda matrix: torch.linalg.vector_norm(matrix[0], keepdim=True),
        lambda matrix: torch.linalg.vector_norm(matrix[0], dtype=torch.float64),
        lambda matrix: torch.linalg.vector_norm(matrix[0].to("meta")),
        lambda matrix: torch.linalg.vector_norm(matrix[0].half()),
    ],
    ids=["matrix", "sum", "largest", "of rows", "kept axis", "double", "elsewhere", "half"],
)
def test_other_norms_stay_what_they_are(norm: Callable[[Tensor], Tensor]) -> None:
    graph = traced(norm, torch.randn(4, 6))
    assert "linalg_vector_norm.default" in operations(graph)


MEANS: dict[str, tuple[Callable[[Tensor], Tensor], tuple[int, ...], bool]] = {
    "before a short axis": (lambda x: x.mean(1), (8, 25, 2), True),
    "counted from the end": (lambda x: x.mean(-2), (8, 25, 15), True),
    "before a longer one": (lambda x: x.mean(1), (8, 25, 16), False),
    "last": (lambda x: x.mean(2), (8, 25, 2), False),
    "first": (lambda x: x.mean(0), (8, 25, 2), False),
    "over two": (lambda x: x.mean((0, 1)), (8, 25, 2), False),
    "kept": (lambda x: x.mean(1, keepdim=True), (8, 25, 2), False),
    "double": (lambda x: x.mean(1, dtype=torch.float64), (8, 25, 2), False),
    "of four axes": (lambda x: x.mean(1), (3, 4, 5, 2), False),
    "of a matrix": (lambda x: x.mean(1), (8, 2), False),
    "elsewhere": (lambda x: x.to("meta").mean(1), (8, 25, 2), False),
}


@pytest.mark.parametrize(("mean", "shape", "is_turned"), MEANS.values(), ids=MEANS.keys())
def test_the_axis_of_a_mean_is_put_last_before_a_short_one_alone(
    mean: Callable[[Tensor], Tensor], shape: tuple[int, ...], is_turned: bool
) -> None:
    values = torch.randn(*shape)
    graph = traced(mean, values)
    assert ("laid_out.default" in operations(graph)) == is_turned
    expected = mean(values)
    if not expected.is_meta:
        torch.testing.assert_close(graph(values), expected)


@pytest.mark.usefixtures("needs_compiler")
def test_compiled_sums_are_those_of_eager_ones() -> None:
    def sums(state: State, values: Tensor) -> Any:
        return torch.linalg.vector_norm(state["vector"]), (values * 2).mean(1), values.mean(-2).argmax(1)

    vector, values = torch.randn(2 * PIECE + 3), torch.randn(64, 25, 3)
    programs = [
        Program(State(vector=vector), Runtime(device="cpu", compile=compile, threads=2))
        for compile in (False, True)
    ]
    eager, compiled = (program.call(sums, values) for program in programs)
    assert programs[1].runtime.compiles
    for found, expected in zip(compiled, eager, strict=True):
        torch.testing.assert_close(found, expected)
