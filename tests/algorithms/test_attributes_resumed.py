"""What a run draws from, streams of their own, one for each seed; and what numbers it goes on with."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from zoo.algorithms.resuming import Attributes, Generators


def learning(seed: int) -> float:
    with Generators(seed).torch_of_this_run():
        return torch.rand((), dtype=torch.float64).item()


def predicting(seed: int) -> float:
    with Generators(seed).torch_for_predicting():
        return torch.rand((), dtype=torch.float64).item()


def predicting_from(seed: int) -> float:
    generators = Generators(0)
    with generators.predicting_from(seed), generators.torch_for_predicting():
        return torch.rand((), dtype=torch.float64).item()


@pytest.mark.parametrize("draw", [learning, predicting, predicting_from])
def test_each_seed_has_a_stream_of_its_own(draw: Callable[[int], float]) -> None:
    assert len({draw(seed) for seed in range(200)}) == 200
    assert draw(7) == draw(7)


def test_learning_and_predicting_draw_from_different_streams() -> None:
    assert learning(3) != predicting(3)
    generators = Generators(3)
    assert not np.array_equal(generators.rng.random(4), generators.predict_rng.random(4))


def counted(seconds: dict[str, Any] | None = None, best: float | None = None) -> tuple[Any, Attributes]:
    owner = SimpleNamespace(seconds=seconds or {"env": 0.0, "update": 0.0}, best=best)
    return owner, Attributes(owner, ("seconds", "best"))


@pytest.mark.parametrize("wrong", [{"env": 1.0, "update": "x"}, {"env": None, "update": 1.0}])
def test_one_number_that_is_none_makes_a_dictionary_another_kind(wrong: dict[str, Any]) -> None:
    owner, attributes = counted()
    with pytest.raises(TypeError, match="`seconds` is "):
        attributes.load_state({"seconds": wrong, "best": None})
    assert owner.seconds == {"env": 0.0, "update": 0.0}


def test_numbers_are_those_of_64_bits() -> None:
    largest = float(np.nextafter(2.0**63, 0.0))
    owner, attributes = counted()
    attributes.load_state({"seconds": {"env": largest, "update": -largest}, "best": largest})
    assert owner.seconds == {"env": largest, "update": -largest}
    assert owner.best == largest
    for beyond in (2.0**63, -(2.0**63), float("inf"), float("nan")):
        with pytest.raises(TypeError, match="`best` is "):
            attributes.load_state({"seconds": {}, "best": beyond})


def test_a_count_goes_on_with_a_whole_number_alone() -> None:
    owner = SimpleNamespace(n=0)
    attributes = Attributes(owner, ("n",))
    for whole in (7, 8.0, 0):
        attributes.load_state({"n": whole})
        assert owner.n == whole
    for wrong in (1.5, True, "1", None, -3, float("inf"), float("nan"), 2**63):
        with pytest.raises(TypeError, match="`n` is "):
            attributes.load_state({"n": wrong})
    assert owner.n == 0


def test_numbers_may_be_bounded() -> None:
    owner = SimpleNamespace(n=0)
    attributes = Attributes(owner, ("n",), below=8)
    attributes.load_state({"n": 7})
    for beyond in (8, 10**15):
        with pytest.raises(TypeError, match="`n` is "):
            attributes.load_state({"n": beyond})
    assert owner.n == 7


@pytest.mark.parametrize("wrong", [np.zeros(5056, np.uint8), np.zeros(3, np.uint8), np.zeros(5056), "x"])
@pytest.mark.parametrize("name", ["torch", "predict_torch"])
def test_what_no_generator_takes_is_refused_at_once(name: str, wrong: Any) -> None:
    generators = Generators(0)
    state = generators.state()
    with pytest.raises((RuntimeError, TypeError)):
        generators.load_state({**state, name: wrong})
