"""Which weights a penalty of their size makes smaller, when cloning ends, and what it is foreseen to take."""

from __future__ import annotations

import numpy as np
import pytest
from test_cloning import agent, linear_expert


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
