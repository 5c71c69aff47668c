"""What the matrix products of a traced step become."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from zoo.optim.processor import mkl_holds_back
from zoo.optim.program import Program
from zoo.optim.runtime import Runtime
from zoo.optim.state import Outcome, State

LARGE = 100, 100, 150
"""Rows, inner dimension and columns of a product that is just large enough for oneDNN."""

NARROW = 256, 400, 16
"""Of one that is just wide enough for it, and taken with its factors swapped."""


@pytest.fixture
def with_onednn(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    decompositions()
    monkeypatch.setattr("zoo.optim.products.mkl_holds_back", lambda: True)
    with torch.compiler.config.patch(force_disable_caches=True):  # a graph that is kept lowers nothing
        yield


@pytest.fixture
def without_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    decompositions()
    monkeypatch.setattr("zoo.optim.products.mkl_holds_back", lambda: False)


def decompositions() -> Any:
    """Import, once a test runs, what says where inductor keeps its files, and then what products become."""
    from zoo.optim.tracing import DECOMPOSITIONS

    return DECOMPOSITIONS


def traced(left: Tensor, right: Tensor) -> torch.fx.GraphModule:
    return make_fx(torch.mm, decompositions(), tracing_mode="fake")(left, right)


def products_of(graph: torch.fx.GraphModule) -> list[tuple[Any, tuple[int, ...]]]:
    """Return the operations that multiply matrices, and the shapes of what comes out."""
    products = torch.ops.aten.mm.default, torch.ops.zoo.onednn_product.default
    return [
        (node.target, tuple(node.meta["val"].shape)) for node in graph.graph.nodes if node.target in products
    ]


def matrix(rows: int, columns: int, transposed: bool = False, **options: Any) -> Tensor:
    return torch.randn(columns, rows, **options).t() if transposed else torch.randn(rows, columns, **options)


@pytest.mark.usefixtures("without_onednn")
@pytest.mark.parametrize(
    ("shape", "computed"),
    [
        ((64, 32, 2), (2, 64)),
        ((64, 32, 25), (25, 64)),
        ((26, 32, 25), (25, 26)),
        ((64, 32, 26), (64, 26)),
        ((25, 32, 25), (25, 25)),
        ((64, 32, 1), (64, 1)),  # a vector, for which there are kernels of its own
        ((3, 32, 64), (3, 64)),
        ((20, 32, 10), (20, 10)),
        (LARGE, (100, 150)),
    ],
)
def test_tall_and_narrow_products_are_taken_with_their_factors_swapped(
    shape: tuple[int, int, int], computed: tuple[int, int]
) -> None:
    rows, inner, columns = shape
    left, right = matrix(rows, inner), matrix(inner, columns)
    graph = traced(left, right)
    assert products_of(graph) == [(torch.ops.aten.mm.default, computed)]
    product = graph(left, right)
    torch.testing.assert_close(product, left @ right)
    assert product.is_contiguous()


@pytest.mark.usefixtures("without_onednn")
def test_a_gpu_takes_products_as_they_are() -> None:
    graph = traced(matrix(64, 32, device="meta"), matrix(32, 2, device="meta"))
    assert products_of(graph) == [(torch.ops.aten.mm.default, (64, 2))]


def compiled(graph: torch.fx.GraphModule, *given: Tensor) -> Tensor:
    """Return the one result of a graph that is compiled; it has to be oneDNN that multiplies."""
    from torch._inductor.utils import run_and_get_code

    from zoo.optim import tracing

    (result,), codes = run_and_get_code(lambda: tracing._inductor(graph, list(given))(*given))
    assert "aoti_torch_cpu__linear_pointwise(" in "".join(codes)
    return result


@pytest.mark.usefixtures("with_onednn", "needs_compiler")
@pytest.mark.parametrize(("shape", "computed"), [(LARGE, (100, 150)), (NARROW, (16, 256))])
@pytest.mark.parametrize("left_transposed", [False, True])
@pytest.mark.parametrize("right_transposed", [False, True])
def test_onednn_computes_large_products_of_any_layout(
    shape: tuple[int, int, int],
    computed: tuple[int, int],
    left_transposed: bool,
    right_transposed: bool,
) -> None:
    rows, inner, columns = shape
    left, right = matrix(rows, inner, left_transposed), matrix(inner, columns, right_transposed)
    graph = traced(left, right)
    assert products_of(graph) == [(torch.ops.zoo.onednn_product.default, computed)]
    torch.testing.assert_close(graph(left, right), left @ right, rtol=1e-4, atol=1e-4)
    listed = make_fx(lambda *factors: [graph(*factors)])(left, right)
    torch.testing.assert_close(compiled(listed, left, right), left @ right, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("with_onednn", "needs_compiler")
@pytest.mark.parametrize("stretched", ["left", "right"])
def test_onednn_takes_factors_whose_rows_are_one_and_the_same(stretched: str) -> None:
    def product(one: Tensor, other: Tensor) -> list[Tensor]:
        rows = one[:1].expand(128, 128)
        return [rows @ other if stretched == "left" else other @ rows]

    one, other = matrix(128, 128), matrix(128, 128)
    graph = make_fx(product, decompositions(), tracing_mode="fake")(one, other)
    torch.testing.assert_close(compiled(graph, one, other), product(one, other)[0])


@pytest.mark.usefixtures("with_onednn", "needs_compiler")
@pytest.mark.parametrize("n_steps", [1, 3], ids=["single", "loop"])
def test_steps_with_large_products_end_as_eager_ones(n_steps: int) -> None:
    def step(state: State, shared: Tensor, row: Tensor) -> Outcome:
        error = row @ state["weights"]
        return Outcome(
            state.replaced({"weights": state["weights"] - shared * row.t() @ error}),
            {"loss": error.square().mean()},
        )

    start, rows = matrix(128, 128), torch.randn(n_steps, 128, 128)
    found = {}
    for compiles in (False, True):
        runtime = Runtime(device="cpu", compile=compiles, threads=1)
        program = Program(State(weights=start.clone()), runtime)
        with runtime.in_force():
            ran = program.run(step, torch.tensor(1e-3), rows)
        assert runtime.compiles is compiles
        found[compiles] = program.state["weights"], ran.metrics
    torch.testing.assert_close(found[True], found[False], rtol=1e-4, atol=1e-5)
    assert not torch.allclose(found[True][0], start)


@pytest.mark.usefixtures("with_onednn")
@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((100, 100, 149), {}),
        ((15, 400, 256), {}),
        (LARGE, {"dtype": torch.float64}),
        (LARGE, {"device": "meta"}),
    ],
    ids=["smaller", "narrower", "double", "elsewhere"],
)
def test_other_products_are_not_onednns(shape: tuple[int, int, int], options: dict[str, Any]) -> None:
    rows, inner, columns = shape
    graph = traced(matrix(rows, inner, **options), matrix(inner, columns, **options))
    assert products_of(graph) == [(torch.ops.aten.mm.default, (rows, columns))]


@pytest.mark.parametrize(
    ("maker", "family", "capability", "holds_back"),
    [
        ("AuthenticAMD", 26, "AVX512", True),
        ("AuthenticAMD", 25, "AVX512", False),
        ("AuthenticAMD", 26, "AVX2", False),
        ("GenuineIntel", 26, "AVX512", False),
    ],
)
def test_mkl_holds_back_where_it_leaves_512_bit_units_alone(
    maker: str,
    family: int,
    capability: str,
    holds_back: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mkl_holds_back.cache_clear()
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"processor\t: 0\nvendor_id\t: {maker}\ncpu family\t: {family}\nmodel\t\t: 2\n")
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    assert mkl_holds_back(cpuinfo) is holds_back
    assert not mkl_holds_back(tmp_path / "missing")
    for library in (torch.backends.mkl, torch.backends.mkldnn):
        mkl_holds_back.cache_clear()
        with monkeypatch.context() as without:
            without.setattr(library, "is_available", lambda: False)
            assert not mkl_holds_back(cpuinfo)
    mkl_holds_back.cache_clear()
