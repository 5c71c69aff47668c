"""What a run draws from, streams of their own, one for each seed; and what numbers it goes on with."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

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


def test_a_dictionary_of_numbers_stays_the_same_object() -> None:
    owner = SimpleNamespace(seconds={"env": 0.0}, best=None)
    shared = owner.seconds
    Attributes(owner, ("seconds", "best")).load_state({"seconds": {"env": 2.0}, "best": 3.0})
    assert owner.seconds is shared
    assert (shared, owner.best) == ({"env": 2.0}, 3.0)
