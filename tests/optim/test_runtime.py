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


def test_only_long_runs_are_compiled() -> None:
    assert not runtime().prepare(1, SMALL)
    assert runtime().prepare(1e7, SMALL)


def test_a_plain_choice_stands_whatever_the_length() -> None:
    assert runtime(compile=True).prepare(0.1, SMALL)
    assert not runtime(compile=False).prepare(1e6, SMALL)


def test_small_networks_get_one_thread() -> None:
    runtime().prepare(1, SMALL)
    assert torch.get_num_threads() == 1


def test_given_threads_are_used() -> None:
    runtime(threads=2).prepare(1, SMALL)
    assert torch.get_num_threads() == 2


def test_a_resumed_run_takes_the_decisions_of_the_first_part() -> None:
    first = runtime()
    compiled = first.prepare(1e7, SMALL)
    rest = runtime()
    rest.restore(first.resolved())
    assert rest.prepare(1, LARGE) == compiled
    assert rest.resolved() == first.resolved()


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
