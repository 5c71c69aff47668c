"""How observations of each space are stored, and arrays and dictionaries of them treated alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from zoo.buffers.arrays import ArraySpec, find_not_finite, observation_spec, split_rows

IMAGE = spaces.Box(0, 255, (4, 5, 3), np.uint8)


@pytest.mark.parametrize(
    ("space", "raw", "normalized"),
    [
        (spaces.Box(-1, 1, (3,), np.float32), np.float32, np.float32),
        (spaces.Box(-1, 1, (3,), np.float64), np.float32, np.float32),
        (spaces.Box(-5, 5, (3,), np.int64), np.int64, np.float32),
        (IMAGE, np.uint8, np.uint8),
        (spaces.Discrete(3), np.int64, np.int64),
        (spaces.MultiDiscrete([2, 3]), np.int64, np.int64),
        (spaces.MultiBinary(3), np.int8, np.int8),
    ],
    ids=str,
)
def test_dtype_of_stored_observations(space: spaces.Space[Any], raw: Any, normalized: Any) -> None:
    assert observation_spec(space) == ArraySpec(space.shape, np.dtype(raw))
    assert observation_spec(space, normalized=True) == ArraySpec(space.shape, np.dtype(normalized))


def test_pieces_are_views_of_rows_in_their_order() -> None:
    column = {"a": np.arange(7), "b": {"c": np.arange(14).reshape(7, 2)}}
    cut = list(split_rows(column, 3))
    assert [part["a"].tolist() for part in cut] == [[0, 1, 2], [3, 4, 5], [6]]
    assert [part["b"]["c"][:, 0].tolist() for part in cut] == [[0, 2, 4], [6, 8, 10], [12]]
    assert all(np.shares_memory(part["b"]["c"], column["b"]["c"]) for part in cut)
    assert [part.tolist() for part in split_rows(np.arange(4), 4)] == [[0, 1, 2, 3]]
    assert not list(split_rows(np.arange(0), 4))


def test_of_all_that_is_not_finite_the_earliest_is_told_and_of_one_step_the_first_column() -> None:
    columns: dict[str, Any] = {name: np.zeros((5, 2), np.float32) for name in ("a", "b", "c")}
    columns["parts"] = {"d": np.zeros((5, 2, 3)), "numbers": np.zeros((5, 2), np.int64)}
    assert find_not_finite(columns) is None
    columns["c"][3, 0] = -np.inf
    assert find_not_finite(columns) == ("c", 0, -np.inf)
    columns["parts"]["d"][1, 1, 2] = np.inf
    columns["a"][2, 0] = np.nan
    assert find_not_finite(columns) == ("parts", 1, np.inf)
    columns["b"][1, 0] = np.inf
    assert find_not_finite(columns) == ("b", 0, np.inf)
