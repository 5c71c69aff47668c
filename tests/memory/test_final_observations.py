"""What is kept beside a ring."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from zoo.memory.columns import ColumnSpec
from zoo.memory.final_observations import FinalObservations


def test_there_are_never_more_than_twice_as_many_rows_as_were_needed_at_once() -> None:
    final = FinalObservations({"observations": ColumnSpec((2,), np.float32)}, 100)
    for place in range(60):
        final.keep(np.array([place]), {"observations": np.full((1, 2), place, np.float32)})
        assert place < len(final.columns["observations"]) <= 2 * (place + 1)
    final.forget(np.arange(0, 60, 2))
    before = len(final.columns["observations"])
    final.keep(np.arange(60, 90), {"observations": np.arange(60, 90)[:, None] * np.ones(2, np.float32)})
    assert len(final.columns["observations"]) == before
    assert final.places.tolist() == [*range(1, 60, 2), *range(60, 90)]
    assert final.at(final.places, "observations")[:, 1].tolist() == final.places.tolist()


@pytest.mark.parametrize(
    "places",
    [
        *([3, 1], [1, 1], [-1, 2], [1, 8]),
        *([[1, 3]], [1.0, 3.0]),
    ],
)
def test_places_that_are_none_in_order_are_refused(places: list[Any]) -> None:
    final = FinalObservations({"observations": ColumnSpec((2,), np.float32)}, n_places=8)
    with pytest.raises(ValueError, match="its final observations are not those of this memory"):
        final.load(np.array(places), {"observations": np.zeros((len(places), 2), np.float32)})


@pytest.mark.parametrize("shape", [(1, 2), (3, 2), (2,), (2, 1), (2, 2, 1)])
def test_what_is_not_one_row_for_each_place_is_refused(shape: tuple[int, ...]) -> None:
    final = FinalObservations({"observations": ColumnSpec((2,), np.float32)}, n_places=8)
    with pytest.raises(ValueError, match="its final observations are not those of this memory"):
        final.load(np.array([1, 3]), {"observations": np.zeros(shape, np.float32)})


def test_places_of_no_bytes_take_no_memory() -> None:
    final = FinalObservations({"observations": ColumnSpec((2,), np.float32)}, n_places=8)
    places = np.empty((2**40, 0), np.int64)
    with pytest.raises(ValueError, match="its final observations are not those of this memory"):
        final.load(places, {"observations": np.empty((2**40, 0), np.float32)})
