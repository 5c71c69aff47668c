"""What is learned of demonstrations: sequences of whole episodes, and which of these are held back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_cloning import agent, linear_expert

from zoo.algorithms.demonstrations import Demonstrations, validation_episodes


@pytest.mark.parametrize(
    ("policy", "lengths", "batch_size", "shape"),
    [
        ("LinearPolicy", (5, 3, 7), 4, (4, 4)),
        ("LinearPolicy", (5, 3, 7), 100, (1, 15)),
        ("MlpLstmPolicy", (8,) * 6, 16, (3, 2)),  # sequences of 8 steps, two in a minibatch
        ("MlpLstmPolicy", (8,) * 6, 4, (6, 1)),
        ("MlpLstmPolicy", (70, 64), 64, (3, 2)),  # 5 sequences of at most 32 steps, one of them twice
    ],
)
def test_a_minibatch_has_about_so_many_steps(
    policy: str, lengths: Any, batch_size: int, shape: tuple[int, int]
) -> None:
    learner = agent("ppo2", policy)
    rng = np.random.default_rng(0)
    demonstrations = Demonstrations(linear_expert(lengths=lengths), learner, 0.0, rng)
    rows = demonstrations.minibatches(rng, batch_size)
    assert rows.shape == shape
    assert set(rows.reshape(-1).tolist()) == set(demonstrations.train.tolist())
    assert demonstrations.n_train == sum(lengths)


@pytest.mark.parametrize(
    ("n_episodes", "fraction", "n"), [(5, 0.0, 0), (1, 0.5, 0), (5, 0.01, 1), (5, 0.4, 2), (5, 0.99, 4)]
)
def test_some_episodes_are_held_back_but_never_all(n_episodes: int, fraction: float, n: int) -> None:
    found = validation_episodes(n_episodes, fraction, np.random.default_rng(0))
    assert len(set(found.tolist())) == len(found) == n
    assert set(found.tolist()) <= set(range(n_episodes))
