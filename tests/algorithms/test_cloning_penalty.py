"""Which weights a penalty of their size makes smaller, when cloning ends, and what it is foreseen to take."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from test_cloning import agent, ends, linear_expert

from zoo.algorithms.cloning import Cloning, CloningTerms, Patience
from zoo.algorithms.demonstrations import Demonstrations
from zoo.algorithms.pretraining import PretrainConfig, Pretraining
from zoo.errors import NotFiniteError
from zoo.optim.runtime import Runtime


@pytest.mark.parametrize("l2_coef", [0.0, 1.0])
def test_weights_beside_those_that_are_taught_are_kept_small_as_well(l2_coef: float) -> None:
    """Of what is observed one number is always 0: only a penalty moves the weights that it has."""
    data, learner = linear_expert(), agent()
    data.observations[:, 1] = 0.0
    before = learner.get_parameters()["head.logits.weight"].copy()
    learner.pretrain(data, n_epochs=1, learning_rate=1e-4, l2_coef=l2_coef, validation_fraction=0.0)
    after = learner.get_parameters()["head.logits.weight"]
    assert (before[:, 0] != after[:, 0]).all()
    if l2_coef:
        assert (np.abs(after[:, 1]) < np.abs(before[:, 1])).all()
    else:
        np.testing.assert_array_equal(after[:, 1], before[:, 1])


def test_patience_that_begins_again_is_all_there() -> None:
    """Of two epochs that may be worse one was; then there are two again."""
    vector = torch.zeros(1)
    for keep_best in (True, False):
        patience = Patience(2)
        assert ends(patience, [1.0, 2.0], [vector] * 2) == [False, False]
        patience.begin_again(keep_best=keep_best)
        worse = [3.0, 4.0] if keep_best else [3.0, 4.0, 5.0]
        assert ends(patience, worse, [vector] * 3) == [False] * (len(worse) - 1) + [True]


def test_threads_of_a_pretraining_are_chosen_by_its_own_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two numbers are seen; there are logits of three choices, and a value."""
    foreseen: list[float] = []
    monkeypatch.setattr(Runtime, "expect", lambda self, steps, size: foreseen.append(size))
    Pretraining(agent(), linear_expert(), PretrainConfig(batch_size=5))
    assert foreseen == [((2 + 1) * 3 + (2 + 1) * 1) * 5]


def test_one_parameter_that_is_no_number_ends_an_epoch() -> None:
    learner, rng = agent(), np.random.default_rng(0)
    cloning = Cloning(learner.acting.policy, CloningTerms())
    demonstrations = Demonstrations(linear_expert(), learner, 0.0, rng)

    def spoil(*_: object) -> None:
        with torch.no_grad():
            cloning.parameters.flat[0] = torch.nan

    with pytest.raises(NotFiniteError, match="NaN or infinite"):
        cloning.epoch(demonstrations, rng, torch.tensor(0.0), spoil)
