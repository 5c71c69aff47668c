"""Products of updates whose factors are rounded to bfloat16, where torch itself would round none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from zoo.optim.operations import counted
from zoo.optim.processor import has_bfloat16_vectors
from zoo.optim.program import Program
from zoo.optim.rounding import (
    eager_products,
    is_large,
    rounding_large_products,
    rounds_large_products,
)
from zoo.optim.runtime import Runtime, _rounds_factors, computing_with
from zoo.optim.state import Outcome, State

LARGE = 100, 100, 150
"""Rows, inner dimension and columns of a product that is just large enough."""

NARROW = 16, 400, 256
"""Of one that is just wide enough."""


@pytest.fixture(autouse=True)
def _with_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the processor multiply bfloat16, emulated if need be; torch then is told to round nothing."""
    monkeypatch.setattr("zoo.optim.runtime.has_bfloat16_vectors", lambda: True)


@pytest.fixture
def in_bfloat16() -> Iterator[None]:
    with computing_with(1, "bf16"):
        yield


def factors(rows: int, inner: int, columns: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    return torch.randn(rows, inner, dtype=dtype), torch.randn(inner, columns, dtype=dtype)


def of_rounded(left: Tensor, right: Tensor) -> Tensor:
    """Return the product of rounded factors with the sums as exact as can be."""
    return (left.bfloat16().double() @ right.bfloat16().double()).float()


@pytest.mark.usefixtures("in_bfloat16")
@pytest.mark.parametrize("shape", [LARGE, NARROW, NARROW[::-1]])
def test_large_products_are_of_rounded_factors(shape: tuple[int, int, int]) -> None:
    """And come out rounded themselves, to 8 bits."""
    left, right = factors(*shape)
    with eager_products():
        found = left @ right
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, of_rounded(left, right), rtol=2**-8, atol=1e-4)
    assert not torch.allclose(found, left @ right, rtol=2**-10, atol=1e-4)


@pytest.mark.usefixtures("in_bfloat16")
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((100, 100, 149), torch.float32),
        ((15, 400, 256), torch.float32),
        ((256, 400, 15), torch.float32),
        (LARGE, torch.float64),
    ],
    ids=["smaller", "few rows", "few columns", "double"],
)
def test_other_products_stay_as_they_are(shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    left, right = factors(*shape, dtype)
    with eager_products():
        found = left @ right
    torch.testing.assert_close(found, (left.double() @ right.double()).to(dtype), rtol=1e-5, atol=1e-4)


@pytest.mark.usefixtures("in_bfloat16")
def test_small_products_are_those_of_float32() -> None:
    left, right = factors(64, 64, 64)
    with eager_products():
        found = left @ right
    with computing_with(1):
        assert torch.equal(found, left @ right)


def test_a_product_elsewhere_is_none_of_the_large_ones() -> None:
    assert is_large(*factors(*LARGE))
    assert not is_large(*(factor.to("meta") for factor in factors(*LARGE)))


def test_nothing_is_rounded_unless_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    left, right = factors(*LARGE)
    with computing_with(1), eager_products():
        assert not rounds_large_products()
        torch.testing.assert_close(left @ right, (left.double() @ right.double()).float())
    with computing_with(1, "bf16"):
        assert rounds_large_products()
    assert not rounds_large_products()
    monkeypatch.setattr("zoo.optim.runtime.has_bfloat16_vectors", lambda: False)
    with computing_with(1, "bf16"):
        assert not rounds_large_products(), "there torch does, or can't"


@pytest.mark.usefixtures("in_bfloat16")
def test_torch_itself_sends_no_product_of_a_processor_elsewhere() -> None:
    """OneDNN would take several times as long for the small ones, and round none."""
    assert torch.backends.mkldnn.matmul.fp32_precision == "ieee"  # type: ignore[attr-defined]
    assert torch.backends.cuda.matmul.fp32_precision == "tf32", "a GPU rounds its own"


@pytest.mark.usefixtures("in_bfloat16")
def test_a_layer_and_its_gradients_are_of_rounded_factors_and_its_bias_is_not() -> None:
    layer, rows, downstream = nn.Linear(128, 100), torch.randn(128, 128), torch.randn(128, 100)
    rows.requires_grad = True
    with eager_products():
        found = layer(rows)
        found.backward(downstream)
    product = of_rounded(rows.detach(), layer.weight.detach().t())
    torch.testing.assert_close(found - layer.bias, product, rtol=2**-8, atol=1e-4)
    assert layer.weight.grad is not None
    torch.testing.assert_close(
        layer.weight.grad, of_rounded(downstream.t(), rows.detach()), rtol=2**-8, atol=1e-4
    )
    assert rows.grad is not None
    torch.testing.assert_close(
        rows.grad, of_rounded(downstream, layer.weight.detach()), rtol=2**-8, atol=1e-4
    )
    assert layer.bias.grad is not None
    torch.testing.assert_close(layer.bias.grad, downstream.sum(0))


@pytest.mark.usefixtures("in_bfloat16")
def test_products_in_gradients_of_gradients_are_rounded_where_they_are_large() -> None:
    layer, rows = nn.Linear(128, 100, bias=False), torch.randn(128, 128)
    direction = torch.randn(100, 128)
    with eager_products():
        (gradient,) = torch.autograd.grad(layer(rows).square().sum() / 2, layer.weight, create_graph=True)
        (found,) = torch.autograd.grad(gradient, layer.weight, direction)
    asked = (direction @ rows.t() @ rows).detach()
    torch.testing.assert_close(found, asked, rtol=0.02, atol=2.0)
    assert not torch.allclose(found, asked, rtol=1e-4, atol=1e-2)


@pytest.mark.usefixtures("in_bfloat16")
def test_a_weighted_sum_with_a_product_stays_as_it_is() -> None:
    """Neither here nor compiled is it taken apart."""
    left, right = factors(*LARGE)
    bias = torch.randn(150)
    with eager_products():
        found = torch.addmm(bias, left, right, beta=0.5)
    torch.testing.assert_close(found, bias / 2 + left @ right, rtol=1e-6, atol=1e-5)


@pytest.mark.usefixtures("in_bfloat16")
def test_operations_are_counted_all_the_same() -> None:
    def product() -> Tensor:
        with eager_products():
            return left @ right

    left, right = factors(*LARGE)
    found, count = counted(product)
    assert count == 4, "two copies, a product, and a copy of that"
    torch.testing.assert_close(found, of_rounded(left, right), rtol=2**-8, atol=1e-4)


@pytest.mark.usefixtures("needs_compiler")
@pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() != "AVX512" or torch.cpu._is_amx_tile_supported(),
    reason="compiled steps multiply bfloat16 where there is AVX-512 and no AMX",
)
@pytest.mark.parametrize("n_steps", [1, 3], ids=["single", "loop"])
def test_compiled_steps_round_as_eager_ones(n_steps: int) -> None:
    def step(state: State, shared: Tensor, row: Tensor) -> Outcome:
        product = row @ state["weights"]
        gradient = row.t() @ product  # what is rounded, of a transposed factor
        return Outcome(
            state.replaced({"weights": state["weights"] - shared * gradient, "last": product}),
            {"mean": product.mean()},
        )

    # Factors that no bfloat16 holds; what comes out of rounded ones is a number that it holds, so the sums
    # are the same in any order.
    start, rows = torch.full((128, 128), 1 + 2**-12), torch.full((n_steps, 128, 128), 1 + 2**-12)
    for compiles in (False, True):
        runtime = Runtime(device="cpu", compile=compiles, threads=1, precision="bf16")
        program = Program(State(weights=start.clone(), last=torch.zeros(128, 128)), runtime)
        with runtime.in_force():
            program.run(step, torch.tensor(0.0), rows)
        assert runtime.compiles is compiles
        assert (program.state["last"] == 128).all()
        with runtime.in_force():
            ran = program.run(step, torch.tensor(2.0**-14), rows[:1])
        assert ran.metrics.item() == 128
        assert (program.state["weights"] == 1 + 2**-12 - 1).all()


def test_units_that_round_by_themselves_are_found_by_trying(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    assert _rounds_factors("bf16", cpu)
    assert not _rounds_factors("float32", cpu)
    monkeypatch.setattr("zoo.optim.runtime.has_bfloat16_vectors", lambda: False)
    assert _rounds_factors("bf16", cpu) == torch.cpu._is_amx_tile_supported()
    with rounding_large_products(True), eager_products():  # in place of such units
        assert _rounds_factors("bf16", cpu)


@pytest.mark.parametrize(
    ("vectors", "units", "library", "has"),
    [
        (True, False, True, True),
        (False, False, True, False),
        (True, True, True, False),
        (True, False, False, False),
    ],
)
def test_what_processors_have_vectors_alone(
    vectors: bool, units: bool, library: bool, has: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: vectors)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: units)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: library)
    assert has_bfloat16_vectors.__wrapped__() is has
