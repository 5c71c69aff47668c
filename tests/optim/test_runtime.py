"""Device, threads and compiling: decided from the size of the work alone, and refused in words."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from zoo.errors import ZooError
from zoo.optim.runtime import Runtime, torch_settings

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


def test_only_long_runs_are_compiled_after_first_steps() -> None:
    for gradient_steps, compiles in ((1e3, False), (1e6, True)):
        heard = told(gradient_steps)
        assert heard.compile == "auto"
        with heard.in_force():
            heard.decide(200)
        assert heard.compile == compiles


def test_threads_follow_the_form_that_was_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    heard = told(1e6, 5e6)
    with heard.in_force():
        assert torch.get_num_threads() == 1
        assert heard.state()["threads"] == "auto"
        heard.decide(1000)
        assert torch.get_num_threads() == 2
    assert threads(heard) == 2
    assert heard.state() == {"compile": True, "threads": 2}


@pytest.mark.parametrize(("given", "expected"), [("3", 3), ("9", 4), ("2,1", 2)])
def test_large_networks_use_omp_num_threads(
    given: str, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", given)
    with torch_settings(threads=1):
        assert threads(told(1, LARGE, compile=False)) == expected


def test_resumed_run_keeps_the_first_parts_decisions() -> None:
    first = told(1e6)
    with first.in_force():
        first.decide(1000)
    rest = runtime()
    rest.load_state(first.state())
    rest.expect(1, LARGE)
    assert rest.compile is True
    assert threads(rest) == 1
    assert rest.state() == first.state()


# Denormals
def n_not_flushed() -> int:
    """Return how many of many numbers are not taken for zero; torch shares the work among its threads."""
    return int((torch.full((1_000_000,), 1e-30) * 1e-10).count_nonzero())


def test_denormals_are_flushed_only_within_the_block() -> None:
    torch.set_flush_denormal(False)
    with torch_settings(1):
        assert n_not_flushed() == 0
    with torch_settings(1):
        torch.set_flush_denormal(False)
        with torch_settings(1):
            assert n_not_flushed() == 0
        assert n_not_flushed() == 1_000_000
    assert n_not_flushed() == 1_000_000


def test_matmul_precision_is_highest_within_the_block() -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        with torch_settings(1):
            assert torch.get_float32_matmul_precision() == "highest"
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"compile": "yes"}, "`compile=yes` is not one of auto, true, false"),
        ({"threads": "many"}, "`threads=many` is neither auto nor a number"),
        ({"threads": 0}, "`threads=0` is neither auto nor a number of at least 1"),
        ({"threads": 1.5}, "`threads=1.5` is neither auto nor a number of at least 1"),
        ({"threads": True}, "`threads=True` is neither auto nor a number of at least 1"),
        ({"compile": 7}, "`compile=7` is not one of auto, true, false"),
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


def test_modules_with_tensors_beyond_state_run_eagerly(caplog: pytest.LogCaptureFixture) -> None:
    """Who asked for compiling is told why not; who left it to the rules is not."""
    trained, frozen, recurrent, unsaved = (nn.Linear(2, 2) for _ in range(4))
    normalized = nn.BatchNorm1d(2)
    unsaved.register_buffer("scale", torch.ones(2), persistent=False)
    frozen.bias.requires_grad, recurrent.state_size = False, 4
    for module, name in (
        *((trained, None), (normalized, None), (frozen, "bias"), (unsaved, "scale")),
        (recurrent, "recurrent"),
    ):
        caplog.clear()
        heard, automatic = runtime(compile=True), runtime()
        heard.disable_if_uncompilable(module)
        assert heard.compile == (name is None)
        told = [record.getMessage() for record in caplog.records]
        assert [name in each for each in told] == [True] * (name is not None)
        automatic.disable_if_uncompilable(module)
        assert automatic.compile == ("auto" if name is None else False)
        assert len(caplog.records) == len(told)
