"""What is kept beside a ring."""

from __future__ import annotations

import numpy as np

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
