"""Device, threads and compiling: decided from the size of the work alone, and refused in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from zoo.errors import ZooError
from zoo.optim.runtime import Runtime

SMALL, LARGE = 1e4, 1e9
"""Multiplications in a gradient step of a few hundred weights, and of an image network."""


@pytest.fixture(autouse=True)
def _threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def runtime(**choices: Any) -> Runtime:
    return Runtime(**{"device": "cpu", "compile": "auto", "threads": "auto", **choices})


def told(gradient_steps: float, multiplications: float = SMALL, **choices: Any) -> Runtime:
    heard = runtime(**choices)
    heard.expect(gradient_steps, multiplications)
    return heard


def test_only_long_runs_are_compiled_and_only_once_their_operations_are_known() -> None:
    for gradient_steps, compiles in ((1e3, False), (1e6, True)):
        heard = told(gradient_steps)
        assert heard.is_undecided
        assert not heard.compiles
        heard.decide(200)
        assert heard.compiles == compiles
        assert not heard.is_undecided


def test_steps_of_more_operations_are_worth_compiling_sooner() -> None:
    few, many = told(3e4), told(3e4)
    few.decide(50)
    many.decide(1000)
    assert many.compiles
    assert not few.compiles


def test_nothing_is_decided_before_it_is_known_how_much_comes() -> None:
    assert not runtime().is_undecided
    assert not runtime().compiles


def test_a_plain_choice_stands_whatever_the_length() -> None:
    assert told(1, compile=True).compiles
    assert not told(1e9, compile=False).compiles
    assert not told(1e9, compile=False).is_undecided


def test_small_networks_get_one_thread() -> None:
    told(1)
    assert torch.get_num_threads() == 1


def test_given_threads_are_used() -> None:
    told(1, threads=2)
    assert torch.get_num_threads() == 2


def test_each_run_sets_its_own_threads() -> None:
    first, second = runtime(threads=2), runtime(threads=1)
    first.expect(1, SMALL)
    second.expect(1, SMALL)
    assert torch.get_num_threads() == 1
    first.expect(1, SMALL)
    assert torch.get_num_threads() == 2


def test_threads_follow_the_form_that_was_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zoo.optim.runtime._AVAILABLE_THREADS", 2)
    heard = told(1e6, 5e6)
    assert torch.get_num_threads() == 1
    assert heard.state()["threads"] == "auto"
    heard.decide(1000)
    assert torch.get_num_threads() == 2
    assert heard.state() == {"compile": True, "threads": 2}


def test_a_resumed_run_takes_the_decisions_of_the_first_part() -> None:
    first = told(1e6)
    first.decide(1000)
    rest = runtime()
    rest.load_state(first.state())
    rest.expect(1, LARGE)
    assert rest.compiles
    assert not rest.is_undecided
    assert torch.get_num_threads() == 1
    assert rest.state() == first.state()


def test_a_run_resumed_before_anything_was_decided_decides_as_the_first_part_would_have() -> None:
    first, rest = told(1e6), runtime()
    rest.load_state(first.state())
    rest.expect(1e6, SMALL)
    for heard in (first, rest):
        heard.decide(1000)
    assert rest.state() == first.state()


def test_denormals_are_flushed() -> None:
    runtime()
    tiny = torch.full((64,), 1e-30)
    assert (tiny * 1e-10).count_nonzero() == 0


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"compile": "yes"}, "`compile=yes` is not one of auto, true, false"),
        ({"threads": "many"}, "`threads=many` is neither auto nor a number"),
        ({"threads": 0}, "`threads=0` is neither auto nor a number of at least 1"),
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
