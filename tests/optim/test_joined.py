"""How vectors of a traced step are joined: products among them lie where they are joined at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from zoo.optim.program import Program
from zoo.optim.runtime import Runtime
from zoo.optim.state import Outcome, State

SIZE = 64
WHOLE = SIZE * SIZE


@pytest.fixture(params=["brgemm(", "mm_out("])
def multiplier(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return what the code of a product calls, whoever multiplies."""
    tracing()
    monkeypatch.setattr("zoo.optim.products.mkl_holds_back", lambda: request.param == "brgemm(")
    called: str = request.param
    return called


def operation() -> Any:
    tracing()
    from zoo.optim.joined import joined

    return joined._opoverload


def tracing() -> Any:
    """Import, once a test runs, what says where inductor keeps its files."""
    from zoo.optim import tracing

    return tracing


def compiled(function: Callable[..., list[Tensor]], *given: Tensor) -> tuple[list[Tensor], str]:
    """Return what a compiled function gives, and its code."""
    from torch._inductor.utils import run_and_get_code

    with torch.compiler.config.patch(force_disable_caches=True):
        graph = make_fx(function, tracing().DECOMPOSITIONS, tracing_mode="fake")(*given)
        results, codes = run_and_get_code(lambda: tracing()._inductor(graph, list(given))(*given))
    return list(results), "".join(codes)


def gradients(one: Tensor, other: Tensor, bias: Tensor) -> list[Tensor]:
    return [torch.cat([bias * 2, (one @ other).view(-1), bias + 1, (other @ one).reshape(-1)])]


def read_elsewhere(one: Tensor, other: Tensor, bias: Tensor) -> list[Tensor]:
    product = one @ other
    flat = torch.cat([bias, product.view(-1)])
    return [flat * 2, product + 1, product.t().contiguous(), flat.square().sum()]


def given_back(one: Tensor, other: Tensor, bias: Tensor) -> list[Tensor]:
    product = one @ other
    return [torch.cat([bias, product.view(-1)]), product]


def twice(one: Tensor, other: Tensor, bias: Tensor) -> list[Tensor]:
    flat = (one @ other).view(-1)
    return [torch.cat([flat, bias, flat]), torch.cat([bias, flat])]


def in_parts(one: Tensor, other: Tensor, bias: Tensor) -> list[Tensor]:
    product = one @ other
    return [torch.cat([product.t().reshape(-1), product[3], product[:, 5], product.view(-1)[7:100], bias])]


def joined_again(one: Tensor, other: Tensor, bias: Tensor) -> list[Tensor]:
    first = torch.cat([bias[:3], (one @ other).view(-1)])
    return [torch.cat([first, bias, (one @ one).view(-1)]), first.sum()]


def as_bits(one: Tensor, other: Tensor, bias: Tensor) -> list[Tensor]:
    bits = torch.cat([bias.view(torch.int32), (one @ other).view(-1).view(torch.int32)])
    return [bits.view(torch.float32)]


def changed_after(one: Tensor, other: Tensor, bias: Tensor) -> list[Tensor]:
    product = one @ other
    flat = torch.cat([bias[:5], product.view(-1)])
    return [flat.mul(3).add(1), (product * 2).sum(0), flat.sqrt()]


@pytest.mark.usefixtures("needs_compiler")
@pytest.mark.parametrize(
    "function",
    [gradients, read_elsewhere, given_back, twice, in_parts, joined_again, as_bits, changed_after],
    ids=lambda function: function.__name__,
)
def test_what_is_joined_are_the_vectors(function: Callable[..., list[Tensor]], multiplier: str) -> None:
    given = torch.rand(SIZE, SIZE), torch.rand(SIZE, SIZE), torch.rand(11)
    found, code = compiled(function, *given)
    assert multiplier in code
    for result, expected in zip(found, function(*given), strict=True):
        torch.testing.assert_close(result, expected)


@pytest.mark.usefixtures("needs_compiler")
def test_products_are_not_copied(multiplier: str) -> None:
    given = torch.rand(SIZE, SIZE), torch.rand(SIZE, SIZE), torch.rand(11)
    _, code = compiled(gradients, *given)
    assert multiplier in code
    assert f"<static_cast<int64_t>({WHOLE}L)" not in code
    _, code = compiled(in_parts, *given)
    assert f"<static_cast<int64_t>({SIZE}L)" in code  # what the first one looks for is how a copy is written


@pytest.mark.usefixtures("multiplier", "needs_compiler")
@pytest.mark.parametrize("n_rows", [1, 3], ids=["single", "loop"])
def test_steps_that_write_what_is_joined_into_what_it_is_made_of_end_as_eager_ones(n_rows: int) -> None:
    def step(state: State, shared: Tensor, row: Tensor) -> Outcome:
        weights = state["weights"][5:].view(SIZE, SIZE)
        product = weights @ row
        flat = torch.cat([state["weights"][:5], product.view(-1)])
        return Outcome(state.replaced({"weights": flat * shared}), {"sum": product.sum()}, {})

    rows, start = torch.rand(n_rows, SIZE, SIZE), torch.rand(5 + WHOLE)
    found = {}
    for compiles in (True, False):
        program = Program(
            State({"weights": start.clone()}), Runtime(device="cpu", compile=compiles, threads=1)
        )
        ran = [program.run(step, torch.tensor(0.03), rows) for _ in range(2)]
        assert program.runtime.compile is compiles
        found[compiles] = program.state["weights"], ran[-1].metrics
    torch.testing.assert_close(found[True], found[False], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("tensors", "dim"),
    [
        ([torch.ones(2, 3), torch.zeros(2, 3)], 0),
        ([torch.ones(2, 3), torch.zeros(2, 3)], 1),
        ([torch.ones(3), torch.zeros(2, dtype=torch.float64)], 0),
    ],
    ids=["rows", "columns", "types"],
)
def test_other_joins_are_as_they_were(tensors: list[Tensor], dim: int) -> None:
    graph = make_fx(lambda *given: torch.cat(given, dim), tracing().DECOMPOSITIONS)(*tensors)
    assert operation() not in [node.target for node in graph.graph.nodes]
    assert torch.equal(graph(*tensors), torch.cat(tensors, dim))
