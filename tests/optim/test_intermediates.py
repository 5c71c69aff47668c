"""Which intermediate results of a traced step lie in memory before they are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

N = 40


def tracing() -> Any:
    """Import, once a test runs, what says where inductor keeps its files."""
    from zoo.optim import tracing

    return tracing


def traced(function: Callable[..., list[Tensor]], *given: Tensor) -> torch.fx.GraphModule:
    graph = make_fx(function, tracing_mode="fake")(*given)
    tracing().intermediates.keep_scalars(graph)
    return graph


def kept(graph: torch.fx.GraphModule) -> list[str]:
    """Return what was computed before it was put into memory."""
    laid_out = torch.ops.zoo.laid_out.default
    return [node.args[0].target.__name__ for node in graph.graph.nodes if node.target is laid_out]


def code_of(graph: torch.fx.GraphModule, *given: Tensor) -> tuple[list[Tensor], str]:
    from torch._inductor.utils import run_and_get_code

    with torch.compiler.config.patch(force_disable_caches=True):
        results, codes = run_and_get_code(lambda: tracing()._inductor(graph, list(given))(*given))
    return results, "".join(codes)


def clipped(gradient: Tensor, norm: Tensor, limit: Tensor) -> list[Tensor]:
    factor = (limit / norm.sqrt()).clamp(max=1.0)
    return [gradient * factor, factor + 1]


def test_a_scalar_that_a_vector_is_computed_from_is_kept_and_those_that_it_is_made_of_are_not() -> None:
    given = torch.randn(N), torch.tensor(9.0), torch.tensor(2.0)
    graph = traced(clipped, *given)
    assert kept(graph) == ["clamp.default"]
    for found, expected in zip(graph(*given), clipped(*given), strict=True):
        assert torch.equal(found, expected)
    readers = {node.target.__name__: str(node.args[1]) for node in graph.graph.nodes if len(node.args) == 2}
    assert "laid_out" in readers["mul.Tensor"]


@pytest.mark.parametrize(
    ("function", "given"),
    [
        (lambda vector, scalar: [vector * scalar], (torch.randn(N), torch.tensor(2.0))),
        (lambda vector, pair: [vector * pair[0]], (torch.randn(N), torch.randn(2))),
        (lambda one, other: [one * (other + 1)], (torch.tensor(1.0), torch.tensor(2.0))),
        (lambda vector, other: [vector * (other + 1)], (torch.randn(N), torch.randn(N))),
        (
            lambda vector, scalar: [vector * (scalar + 1)],
            (torch.randn(N, device="meta"), torch.tensor(2.0, device="meta")),
        ),
    ],
    ids=["what is given", "a view of it", "for a scalar", "no scalar", "elsewhere"],
)
def test_nothing_else_is(function: Callable[..., list[Tensor]], given: tuple[Tensor, ...]) -> None:
    assert kept(traced(function, *given)) == []


def test_a_graph_that_writes_into_a_scalar_is_left_alone() -> None:
    def doubled(vector: Tensor) -> list[Tensor]:
        total = vector.sum()
        total.view(1).mul_(2)
        return [vector * total]

    assert kept(traced(doubled, torch.randn(N))) == []


def rectified(rows: Tensor, weight: Tensor) -> list[Tensor]:
    hidden = (rows @ weight).relu()
    return [hidden @ weight, torch.ops.aten.threshold_backward(rows @ weight.t(), hidden, 0)]


@pytest.mark.parametrize(
    ("function", "shape", "n_kept"),
    [
        (rectified, (N, N), 1),
        (lambda rows, weight: [(rows @ weight).relu() @ weight], (N, N), 0),  # one reader
        (lambda image, _: [(values := image.relu()) + 1, values.sum()], (1, N, N), 0),  # no rows
        (lambda rows, weight: [(values := (rows @ weight).tanh()) @ weight, values + 1], (N, N), 0),
    ],
    ids=["read twice", "read once", "image", "tanh"],
)
def test_rectified_rows_are_kept_where_they_are_read_twice(
    function: Callable[..., list[Tensor]], shape: tuple[int, ...], n_kept: int
) -> None:
    given = torch.randn(shape), torch.randn(N, N)
    graph = make_fx(function, tracing_mode="fake")(*given)
    tracing().intermediates.keep_activations(graph)
    assert kept(graph) == ["relu.default"] * n_kept
    for found, expected in zip(graph(*given), function(*given), strict=True):
        assert torch.equal(found, expected)


@pytest.mark.usefixtures("needs_compiler")
@pytest.mark.parametrize(("keeps", "roots_in_the_loop"), [(True, False), (False, True)])
def test_compiled_a_kept_scalar_is_computed_outside_the_loop_over_the_vector(
    keeps: bool, roots_in_the_loop: bool
) -> None:
    given = torch.randn(N), torch.tensor(9.0), torch.tensor(2.0)
    graph = traced(clipped, *given) if keeps else make_fx(clipped, tracing_mode="fake")(*given)
    results, code = code_of(graph, *given)
    loops = [part.split("\n    }\n")[0] for part in code.split("for(int64_t x0=")[1:]]
    assert loops
    assert any("std::sqrt" in loop for loop in loops) == roots_in_the_loop
    for found, expected in zip(results, clipped(*given), strict=True):
        torch.testing.assert_close(found, expected)


@pytest.mark.usefixtures("needs_compiler")
def test_what_is_laid_out_lies_row_by_row_eagerly_and_compiled() -> None:
    laid_out, matrix = tracing().intermediates.laid_out, torch.randn(3, 5)
    eager = laid_out(matrix.t())
    assert eager.is_contiguous()
    assert torch.equal(eager, matrix.t())
    assert eager.data_ptr() != laid_out(eager).data_ptr()
    graph = make_fx(lambda given: [laid_out((given + 1).t())], tracing_mode="fake")(matrix)
    ((result,), _) = code_of(graph, matrix)
    assert result.stride() == (3, 1)
    assert torch.equal(result, (matrix + 1).t())
