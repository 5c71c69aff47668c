"""Device, threads, precision and compiling: decided from the size of the work alone, and refused in words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from zoo.errors import ZooError
from zoo.optim.runtime import Runtime, torch_settings
from zoo.optim.state import State
from zoo.optim.update_runner import UpdateRunner

SMALL, LARGE = 1e4, 1e9
"""Multiplications in a gradient step of a few hundred weights, and of an image network."""


def runtime(**choices: Any) -> Runtime:
    return Runtime(**{"device": "cpu", "compile": "auto", "threads": "auto", **choices})


def threads(heard: Runtime) -> int:
    """Return how many threads torch has where the choices are in force."""
    with heard.in_force():
        return torch.get_num_threads()


def told(gradient_steps: float, multiplications: float = SMALL, **choices: Any) -> Runtime:
    heard = runtime(**choices)
    heard.expect(gradient_steps, multiplications)
    return heard


def test_only_long_runs_are_compiled_and_only_once_their_operations_are_known() -> None:
    for gradient_steps, compiles in ((1e3, False), (1e6, True)):
        heard = told(gradient_steps)
        assert heard.is_undecided
        assert not heard.compiles
        with heard.in_force():
            heard.decide(200)
        assert heard.compiles == compiles
        assert not heard.is_undecided


def test_threads_follow_the_form_that_was_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    heard = told(1e6, 5e6)
    with heard.in_force():
        assert torch.get_num_threads() == 1
        assert heard.state()["threads"] == "auto"
        heard.decide(1000)
        assert torch.get_num_threads() == 2
    assert threads(heard) == 2
    assert heard.state() == {"compile": True, "threads": 2, "precision": "float32"}


@pytest.mark.parametrize(("given", "expected"), [("3", 3), ("9", 4), ("2,1", 2)])
def test_large_networks_get_what_the_environment_allows_and_not_what_torch_had_before(
    given: str, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", given)
    with torch_settings(threads=1):
        assert threads(told(1, LARGE, compile=False)) == expected


def test_without_a_limit_large_networks_get_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1, 7} if process == 0 else {0})
    assert threads(told(1, LARGE, compile=False)) == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "0")
    assert threads(told(1, LARGE, compile=False)) == 3


def test_more_than_four_threads_for_each_core_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    assert runtime(threads=12).threads == 12
    with pytest.raises(ZooError, match="`threads=13` are too many for the 3 cores"):
        runtime(threads=13)


def test_a_resumed_run_takes_the_decisions_of_the_first_part() -> None:
    first = told(1e6)
    with first.in_force():
        first.decide(1000)
    rest = runtime()
    rest.load_state(first.state())
    rest.expect(1, LARGE)
    assert rest.compiles
    assert not rest.is_undecided
    assert threads(rest) == 1
    assert rest.state() == first.state()


# Denormals


def n_not_flushed() -> int:
    """Return how many of many numbers are not taken for zero; torch shares the work among its threads."""
    return int((torch.full((1_000_000,), 1e-30) * 1e-10).count_nonzero())


def test_denormals_are_flushed_within_the_block_and_not_afterwards() -> None:
    torch.set_flush_denormal(False)
    with torch_settings(1):
        assert n_not_flushed() == 0
    with torch_settings(1):
        torch.set_flush_denormal(False)
        with torch_settings(1):
            assert n_not_flushed() == 0
        assert n_not_flushed() == 1_000_000
    assert n_not_flushed() == 1_000_000


@pytest.mark.parametrize("left", [torch.no_grad, torch.inference_mode])
def test_gradients_are_recorded_within_the_block_whatever_an_interrupt_left(left: Any) -> None:
    with left():
        with torch_settings(threads=1):
            weight = torch.ones(1, requires_grad=True)
            (2.0 * weight).sum().backward()
            assert weight.grad is not None
        assert not torch.is_grad_enabled()


def test_threads_that_are_started_within_the_block_flush_too() -> None:
    def compute() -> int:
        with torch_settings(threads=2):
            return n_not_flushed()

    with ThreadPoolExecutor(1) as executor:
        assert executor.submit(compute).result() == 0


# Precision


BACKENDS = torch.backends.mkldnn.matmul, torch.backends.cuda.matmul  # type: ignore[attr-defined]


def precision() -> list[str]:
    """Return how products are computed now, on processors and on GPUs."""
    return [backend.fp32_precision for backend in BACKENDS]


@pytest.fixture
def _own_precision() -> Iterator[None]:
    yield
    torch.set_float32_matmul_precision("highest")
    for backend in BACKENDS:
        backend.fp32_precision = "none"


@pytest.mark.usefixtures("_own_precision")
@pytest.mark.parametrize("of_all", ["highest", "medium"])
@pytest.mark.parametrize("of_backends", [None, ("none", "none"), ("bf16", "tf32"), ("bf16", "ieee")])
def test_products_are_as_precise_as_asked_for_within_the_block_alone(
    of_all: str, of_backends: tuple[str, str] | None
) -> None:
    """Whatever the process had before, in torch's older words or its newer ones."""
    torch.set_float32_matmul_precision(of_all)
    for backend, each in zip(BACKENDS, of_backends or (), strict=False):
        backend.fp32_precision = each
    before = precision()
    with torch_settings(1):
        assert precision() == ["ieee", "ieee"]
        with torch_settings(1, "bf16"):
            assert precision() == ["bf16", "tf32"]
            assert torch.get_float32_matmul_precision() == "medium", "the compiler asks for it"
        assert precision() == ["ieee", "ieee"]
    assert precision() == before
    if of_backends is None:
        assert torch.get_float32_matmul_precision() == of_all


def multiplies_bfloat16() -> bool:
    try:
        runtime(precision="bf16")
    except ZooError:
        return False
    return True


MULTIPLIES_BFLOAT16 = multiplies_bfloat16()


def test_a_precision_for_which_there_are_no_units_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a run goes on that had them."""
    monkeypatch.setattr("zoo.optim.runtime._rounds_factors", lambda precision, device: False)
    message = "`precision=bf16`: this processor has no matrix units (AMX); use precision=float32"
    with pytest.raises(ZooError, match=re.escape(message)):
        runtime(precision="bf16")
    with pytest.raises(ZooError, match=re.escape(message)):
        runtime().load_state({**runtime().state(), "precision": "bf16"})


@pytest.mark.skipif(not MULTIPLIES_BFLOAT16, reason="this processor has no matrix units")
@pytest.mark.parametrize("compile", [False, True])
def test_factors_are_rounded_and_sums_are_not(compile: bool) -> None:
    """Eagerly and compiled, next to a program of the same process that computes in float32."""
    factors, ones = torch.full((256, 256), 1 + 2**-12), torch.ones(256, 256)

    def product(state: State, left: Tensor, right: Tensor) -> Tensor:
        return (left @ right).relu()

    for name, expected in (("float32", 1 + 2**-12), ("bf16", 1.0), ("float32", 1 + 2**-12)):
        chosen = runtime(compile=compile, precision=name)
        runner = UpdateRunner(State(x=torch.zeros(1)), chosen)
        with chosen.in_force():
            result = runner.call(product, factors, ones)
            large = runner.call(product, ones * 2**-8, ones * (1 + 2**-7))
        assert (result == 256 * expected).all()
        assert (large == 1 + 2**-7).all(), "what bfloat16 holds is summed up exactly"


def test_a_resumed_run_has_the_precision_of_the_first_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zoo.optim.runtime._rounds_factors", lambda precision, device: True)
    first, rest = runtime(precision="bf16"), runtime()
    rest.load_state(first.state())
    with rest.in_force():
        assert precision() == ["bf16", "tf32"]


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"compile": "yes"}, "`compile=yes` is not one of auto, true, false"),
        ({"threads": "many"}, "`threads=many` is neither auto nor a number"),
        ({"threads": 0}, "`threads=0` is neither auto nor a number of at least 1"),
        ({"threads": 1.5}, "`threads=1.5` is neither auto nor a number of at least 1"),
        ({"threads": True}, "`threads=True` is neither auto nor a number of at least 1"),
        ({"compile": 7}, "`compile=7` is not one of auto, true, false"),
        ({"precision": "half"}, "`precision=half` is not one of float32, bf16"),
        ({"device": "gpu"}, "`device=gpu` is not one of auto, cpu, cuda"),
    ],
)
def test_other_choices_are_refused(choices: dict[str, Any], message: str) -> None:
    with pytest.raises(ZooError, match=message):
        runtime(**choices)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_gpu_that_is_not_there_is_refused() -> None:
    with pytest.raises(ZooError, match="no usable GPU; use device=cpu"):
        runtime(device="cuda")
    assert runtime(device="auto").device.type == "cpu"


def test_only_a_module_of_trained_parameters_alone_is_compiled(caplog: pytest.LogCaptureFixture) -> None:
    """Who asked for compiling is told why not; who left it to the rules is not."""
    trained, frozen, counting, recurrent = (
        nn.Linear(2, 2),
        nn.Linear(2, 2),
        nn.BatchNorm1d(2),
        nn.Linear(2, 2),
    )
    frozen.bias.requires_grad, recurrent.state_size = False, 4
    for module, name in (
        *((trained, None), (frozen, "bias"), (counting, "running_mean"), (recurrent, "recurrent")),
    ):
        caplog.clear()
        heard, automatic = runtime(compile=True), runtime()
        heard.check_compilable(module)
        assert heard.compiles == (name is None)
        told = [record.getMessage() for record in caplog.records]
        assert [name in each for each in told] == [True] * (name is not None)
        automatic.check_compilable(module)
        assert automatic.compile == ("auto" if name is None else False)
        assert len(caplog.records) == len(told)
