"""What the matrix products of a traced step become."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from zoo.optim.processor import mkl_holds_back
from zoo.optim.program import Program
from zoo.optim.rounding import rounding_large_products
from zoo.optim.runtime import Runtime, computing_with
from zoo.optim.state import Outcome, State


@pytest.fixture
def in_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    decompositions()
    monkeypatch.setattr("zoo.optim.products.mkl_holds_back", lambda: True)
    with torch.compiler.config.patch(force_disable_caches=True):  # a graph that is kept lowers nothing
        yield


@pytest.fixture
def with_vectors() -> None:
    """Skip where oneDNN has no function for blocks of its own, or one for matrix units."""
    if torch.backends.cpu.get_cpu_capability() != "AVX512" or torch.cpu._is_amx_tile_supported():
        pytest.skip("needs a processor with AVX-512 and without AMX")


@pytest.fixture
def with_mkl(monkeypatch: pytest.MonkeyPatch) -> None:
    decompositions()
    monkeypatch.setattr("zoo.optim.products.mkl_holds_back", lambda: False)


def decompositions() -> Any:
    """Import, once a test runs, what says where inductor keeps its files, and then what products become."""
    from zoo.optim.tracing import DECOMPOSITIONS

    return DECOMPOSITIONS


def traced(left: Tensor, right: Tensor) -> torch.fx.GraphModule:
    return make_fx(torch.mm, decompositions(), tracing_mode="fake")(left, right)


def blocked() -> Any:
    decompositions()
    from zoo.optim.blocked_product import blocked_product

    return blocked_product._opoverload


def products_of(graph: torch.fx.GraphModule) -> list[tuple[Any, tuple[int, ...]]]:
    """Return the operations that multiply matrices, and the shapes of what comes out."""
    products = torch.ops.aten.mm.default, blocked()
    return [
        (node.target, tuple(node.meta["val"].shape)) for node in graph.graph.nodes if node.target in products
    ]


def matrix(rows: int, columns: int, transposed: bool = False, **options: Any) -> Tensor:
    return torch.randn(columns, rows, **options).t() if transposed else torch.randn(rows, columns, **options)


@pytest.mark.usefixtures("with_mkl")
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
        ((100, 100, 150), (100, 150)),
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


@pytest.mark.usefixtures("with_mkl")
def test_a_gpu_takes_products_as_they_are() -> None:
    graph = traced(matrix(64, 32, device="meta"), matrix(32, 2, device="meta"))
    assert products_of(graph) == [(torch.ops.aten.mm.default, (64, 2))]


def compiled(function: Any, *given: Tensor, threads: int = 1) -> list[Tensor]:
    """Return what a function gives that is compiled; it has to be oneDNN that multiplies."""
    from torch._inductor.utils import run_and_get_code

    from zoo.optim import tracing

    with computing_with(threads), torch.compiler.config.patch(force_disable_caches=True):
        graph = make_fx(function, decompositions(), tracing_mode="fake")(*given)
        results, codes = run_and_get_code(lambda: tracing._inductor(graph, list(given))(*given))
    assert "at::native::cpublas::brgemm(" in "".join(codes)
    return list(results)


def assert_same_products(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=2e-4)
    assert found.is_contiguous()


@pytest.mark.usefixtures("in_blocks")
@pytest.mark.parametrize(
    ("shape", "transposed", "computed"),
    [
        ((64, 256, 256), "", (64, 256)),
        ((64, 256, 256), "right", (256, 64)),
        ((256, 256, 256), "right", (256, 256)),
        ((256, 64, 256), "left", (256, 256)),
        ((256, 64, 4), "left", (4, 256)),
        ((64, 256, 3), "", (64, 3)),
        ((64, 256, 2), "left", (2, 64)),
        ((2, 64, 256), "", (2, 256)),
        ((1, 64, 256), "", (1, 256)),
        ((64, 256, 1), "left", (1, 64)),
        ((2, 256, 1), "", (2, 1)),
    ],
    ids=[
        "rows as they lie",
        "a layer's few rows are copied, not its weights",
        "as much either way",
        "a layer's gradient",
        "a first layer's gradient, to fill vectors",
        "narrow",
        "narrow, to fill vectors",
        "wide",
        "a row",
        "a column, as a row",
        "a short column",
    ],
)
def test_factors_are_swapped_where_that_is_less_work(
    shape: tuple[int, int, int], transposed: str, computed: tuple[int, int]
) -> None:
    rows, inner, columns = shape
    left = matrix(rows, inner, transposed == "left")
    right = matrix(inner, columns, transposed == "right")
    graph = traced(left, right)
    assert products_of(graph) == [(blocked(), computed)]
    assert_same_products(graph(left, right), left @ right)


@pytest.mark.usefixtures("in_blocks")
@pytest.mark.parametrize("n_columns", [1, 2])
def test_one_or_two_columns_are_no_product_of_matrices_where_rows_are_summed(n_columns: int) -> None:
    left, right = matrix(64, 256), matrix(256, n_columns)
    graph = traced(left, right)
    assert products_of(graph) == []
    assert_same_products(graph(left, right), left @ right)


@pytest.mark.usefixtures("in_blocks", "needs_compiler")
def test_columns_and_outer_products_are_right_with_what_they_fuse_with() -> None:
    def gradients(one: Tensor, column: Tensor, row: Tensor, two: Tensor) -> list[Tensor]:
        outer = torch.where(one > 0, column @ row, 0.0)
        sums = [(one @ row.t() + 1).relu(), (one @ two.t() + 1).relu(), one.tanh() @ two.t()]
        return [*sums, outer, outer.t() @ one, column.t() @ one]

    given = matrix(64, 256), matrix(64, 1), matrix(1, 256), matrix(2, 256)
    for found, expected in zip(compiled(gradients, *given), gradients(*given), strict=True):
        assert_same_products(found, expected)


@pytest.mark.parametrize("who", ["in_blocks", "with_mkl"])
@pytest.mark.parametrize("n_outer", [1, 2])
def test_one_or_two_outer_products_are_no_product_of_matrices(
    who: str, n_outer: int, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue(who)
    left, right = matrix(64, n_outer), matrix(n_outer, 256)
    graph = traced(left, right)
    assert products_of(graph) == []
    torch.testing.assert_close(graph(left, right), left @ right)


def in_all_layouts(rows: int, inner: int, columns: int) -> list[tuple[Tensor, Tensor]]:
    """Return pairs of factors, each of which is transposed in memory or is not."""
    layouts = itertools.product([False, True], repeat=2)
    return [(matrix(rows, inner, left), matrix(inner, columns, right)) for left, right in layouts]


def products_of_pairs(*factors: Tensor) -> list[Tensor]:
    return [left @ right for left, right in zip(factors[::2], factors[1::2], strict=True)]


@pytest.mark.usefixtures("in_blocks", "needs_compiler")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "shape",
    [(3, 5, 7), (64, 256, 256), (16, 400, 270), (300, 1100, 40), (520, 33, 550)],
    ids=["small", "layer", "few rows", "long sums", "many blocks"],
)
def test_blocks_make_up_the_product_of_factors_in_any_layout(
    shape: tuple[int, int, int], threads: int
) -> None:
    pairs = in_all_layouts(*shape)
    found = compiled(products_of_pairs, *itertools.chain(*pairs), threads=threads)
    for product, (left, right) in zip(found, pairs, strict=True):
        assert_same_products(product, left @ right)


@pytest.mark.usefixtures("in_blocks", "needs_compiler")
def test_blocks_are_those_of_factors_that_are_parts_of_others() -> None:
    def products(one: Tensor, other: Tensor) -> list[Tensor]:
        row, later = one[:1].expand(128, 128), other.view(-1)[256 : 256 + 128 * 40].view(128, 40)
        parts = [one[5:45, 3:60] @ other[2:59, 7:], one[::2, ::3] @ other[:43], one[64:] @ one, one @ later]
        return [row @ other, other @ row, *parts, one @ one, one @ one.t()]

    given = matrix(128, 128), matrix(128, 128)
    for found, expected in zip(compiled(products, *given), products(*given), strict=True):
        assert_same_products(found, expected)


def rounded_products_of_pairs(*factors: Tensor) -> list[Tensor]:
    with rounding_large_products(True):
        return products_of_pairs(*factors)


@pytest.mark.usefixtures("with_vectors", "needs_compiler")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "shape", [(64, 256, 256), (100, 301, 77), (40, 1101, 64)], ids=["layer", "odd", "long sums"]
)
def test_blocks_of_rounded_factors_make_up_their_product(shape: tuple[int, int, int], threads: int) -> None:
    pairs = in_all_layouts(*shape)
    found = compiled(rounded_products_of_pairs, *itertools.chain(*pairs), threads=threads)
    for product, (left, right) in zip(found, pairs, strict=True):
        assert_same_products(product, (left.bfloat16().double() @ right.bfloat16().double()).float())


@pytest.mark.usefixtures("with_vectors", "needs_compiler")
def test_numbers_between_two_of_bfloat16_are_rounded_to_the_even_one() -> None:
    right = torch.full((128, 128), 1 + 2**-8)
    right[::3], right[:, ::5] = 1 + 3 * 2**-8, -(1 + 2**-8)
    (found,) = compiled(rounded_products_of_pairs, torch.eye(128), right)
    assert torch.equal(found, right.bfloat16().float())


@pytest.mark.usefixtures("with_vectors", "needs_compiler")
def test_numbers_that_are_not_finite_go_through_products_of_rounded_factors() -> None:
    left, right = torch.ones(128, 128), torch.ones(128, 128)
    left[3, 5], right[7, 11], right[8, 12] = torch.nan, torch.nan, torch.inf
    (found,) = compiled(rounded_products_of_pairs, left, right)
    torch.testing.assert_close(found, left @ right, equal_nan=True)


@pytest.mark.usefixtures("in_blocks", "needs_compiler")
@pytest.mark.parametrize("threads", [1, 2])
def test_what_is_made_of_a_product_is_computed_of_all_of_it(threads: int) -> None:
    def layers(rows: Tensor, weights: Tensor, bias: Tensor) -> list[Tensor]:
        first = torch.addmm(bias, rows, weights.t())
        hidden = first.relu()
        return [hidden, hidden @ weights, first.sin().sum(0), hidden.t().contiguous(), hidden.view(-1) * 2]

    given = torch.randn(200, 96), torch.randn(96, 96), torch.randn(96)
    for found, expected in zip(compiled(layers, *given, threads=threads), layers(*given), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-3)


@pytest.mark.usefixtures("in_blocks", "with_vectors", "needs_compiler")
def test_all_numbers_of_threads_sum_alike() -> None:
    left, right = matrix(300, 1100), matrix(1100, 200)
    (alone,), (shared,) = (compiled(products_of_pairs, left, right, threads=threads) for threads in (1, 2))
    assert torch.equal(alone, shared)


@pytest.mark.usefixtures("with_vectors", "needs_compiler")
def test_what_onednn_cannot_multiply_is_an_exception_also_among_threads() -> None:
    with torch.backends.mkldnn.flags(enabled=False), pytest.raises(RuntimeError):
        compiled(rounded_products_of_pairs, matrix(256, 256), matrix(256, 256), threads=2)


@pytest.mark.parametrize(
    ("shape", "threads", "expected"),
    [
        ((64, 256, 256), 1, (64, 256, 256, 1)),
        ((64, 256, 256), 2, (64, 256, 128, 2)),
        ((256, 256, 64), 2, (128, 256, 64, 2)),
        ((256, 256, 256), 2, (128, 256, 256, 2)),
        ((1000, 256, 256), 2, (256, 256, 256, 2)),
        ((1100, 256, 256), 2, (192, 256, 256, 2)),  # six blocks, three for each
        ((31, 256, 256), 2, (31, 256, 128, 2)),
        ((256, 256, 31), 2, (128, 256, 31, 2)),
        ((64, 1100, 256), 2, (64, 368, 128, 2)),
        ((64, 1100, 256), 1, (64, 368, 256, 1)),
        ((64, 64, 64), 2, (64, 64, 64, 1)),  # too little to share
        ((64, 64, 600), 1, (64, 64, 208, 1)),
    ],
)
def test_blocks_are_as_many_as_threads_can_share(
    shape: tuple[int, int, int], threads: int, expected: tuple[int, int, int, int]
) -> None:
    decompositions()
    from zoo.optim.blocked_product import blocks

    rows, inner, columns, n_threads = blocks(*shape, threads)
    assert (rows, inner, columns, n_threads) == expected


@pytest.mark.usefixtures("in_blocks", "needs_compiler")
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


@pytest.mark.usefixtures("in_blocks")
@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((100, 100, 1), {}),
        ((0, 100, 20), {}),
        ((100, 0, 20), {}),
        ((100, 100, 150), {"dtype": torch.float64}),
        ((100, 100, 150), {"device": "meta"}),
    ],
    ids=["vector", "no rows", "no sums", "double", "elsewhere"],
)
def test_other_products_are_not_taken_in_blocks(shape: tuple[int, int, int], options: dict[str, Any]) -> None:
    rows, inner, columns = shape
    graph = traced(matrix(rows, inner, **options), matrix(inner, columns, **options))
    assert blocked() not in [operation for operation, _ in products_of(graph)]


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
