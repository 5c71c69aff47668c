"""What each environment has shown, against NumPy's own moments of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from zoo.envs import Normalizer
from zoo.envs.moments_by_row import MomentsByRow

PARTS = spaces.Dict({"a": spaces.Box(-9.0, 9.0, (2,)), "b": spaces.Box(-9.0, 9.0, (1, 3))})


def test_each_row_has_the_moments_of_what_counted_of_it() -> None:
    """The third shows something, but nothing of it counts."""
    rows = MomentsByRow(Normalizer(PARTS), 3)
    generator = np.random.default_rng(0)
    shown: list[list[Any]] = [[], [], []]
    for step in range(5):
        seen = {"a": generator.normal(3.0, 2.0, (3, 2)), "b": generator.normal(-1.0, 1.0, (3, 1, 3))}
        counted = np.array([True, step % 2 == 0, False])
        rows.update(seen, counted)
        for row in np.flatnonzero(counted):
            shown[row].append((seen["a"][row], seen["b"][row].reshape(3)))
    for row, n in ((0, 5), (1, 3)):
        expected: list[float] = []
        for values in (np.array([part[k] for part in shown[row]]) for k in range(2)):
            mean = values.mean(axis=0)
            expected += [n, *mean, *((values - mean) ** 2).sum(axis=0)]
        np.testing.assert_allclose(rows.seen_by(row), [*expected, 0.0, 0.0, 0.0], rtol=1e-12)
    assert not rows.seen_by(2).any()


def test_mean_of_one_number_is_that_number_to_its_last_bit() -> None:
    rows = MomentsByRow(Normalizer(spaces.Box(-9.0, 9.0, (1,))), 1)
    rows.update(np.full((1, 1), 1e-20), np.array([True]))
    assert rows.seen_by(0).tolist() == [1.0, 1e-20, 0.0, 0.0, 0.0, 0.0]


def test_what_rows_have_shown_changes_nothing_but_the_statistics_of_observations() -> None:
    normalizer = Normalizer(PARTS)
    rows = MomentsByRow(normalizer, 2)
    rows.update({"a": np.full((2, 2), 4.0), "b": np.full((2, 1, 3), -2.0)}, np.array([True, True]))
    rows.start([1])
    normalizer.merge(np.stack([rows.seen_by(row) for row in range(2)]))
    state = normalizer.state()["arrays"]
    assert state["return.count"] == pytest.approx(1e-4)
    assert state["observations/a.count"] == state["observations/b.count"] == 1.0
    np.testing.assert_allclose(state["observations/a.mean"], np.full(2, 4.0))
