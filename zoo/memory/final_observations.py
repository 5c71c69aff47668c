"""What was shown last in each episode, kept beside a ring that stores what is shown once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from zoo.memory.columns import Column, allocate, are_rows, assign, join, transform

Array = np.ndarray

NOWHERE = -1
"""The row of a place that has none."""


class FinalObservations:
    """A row for each place (of ``n_places``) whose transition ended its episode, found without a search.

    ``specs`` name the columns. Rows are given out anew when their places are forgotten, and there are never
    more than twice as many as were needed at once.
    """

    BYTES_EACH = 4
    """What finding them takes for each place."""

    def __init__(self, specs: Mapping[str, Any], n_places: int) -> None:
        self.specs = dict(specs)
        self._row_of = np.full(n_places, NOWHERE, np.int32)
        self.clear()

    def __len__(self) -> int:
        return self._n_used - len(self._free)

    def clear(self) -> None:
        """Forget all."""
        self._row_of.fill(NOWHERE)
        self._free: list[int] = []
        self._n_used = 0
        self.columns: dict[str, Column] = {name: allocate(spec, (0,)) for name, spec in self.specs.items()}

    @property
    def nbytes(self) -> int:
        """What finding them takes, without what is kept."""
        return int(self._row_of.nbytes)

    @property
    def places(self) -> Array:
        """All places (n,) that have one, in order."""
        return np.flatnonzero(self._row_of != NOWHERE)

    def keep(self, places: Array, columns: Mapping[str, Column]) -> None:
        """Keep what was shown last (n, …) for these places (n,), of which none has one yet.

        Raises `IndexError` for places that there are not.
        """
        if (places < 0).any():
            raise IndexError("places are counted from 0")
        rows = self._new_rows(len(places))
        for name, column in self.columns.items():
            assign(column, rows, columns[name])
        self._row_of[places] = rows

    def load(self, places: Array, columns: Mapping[str, Column]) -> None:
        """Keep what `places` and `all` returned, and nothing else.

        Raises `ValueError` for places out of order, and for columns that are not one row for each.
        """
        self.clear()
        are_places = places.ndim == 1 and places.dtype == np.int64 and (places[1:] > places[:-1]).all()
        is_inside = are_places and (not len(places) or 0 <= places[0] <= places[-1] < len(self._row_of))
        if not is_inside or not are_rows(columns, len(places), self.columns):
            raise ValueError("its final observations are not those of this memory")
        self.keep(places, columns)

    def forget(self, places: Array) -> None:
        """Give up what is kept for these places (n,), where there is any."""
        rows = self._row_of[places]
        if (rows != NOWHERE).any():
            self._free += rows[rows != NOWHERE].tolist()
            self._row_of[places] = NOWHERE

    def at(self, places: Array, name: str, key: str | None = None) -> Column:
        """Return a column, or the part ``key`` of it, for these places (n,), which all have one."""
        rows = self._row_of[places]
        column = self.columns[name] if key is None else self.columns[name][key]
        return transform(lambda array: array.take(rows, axis=0), column)

    def all(self) -> dict[str, Column]:
        """Return all columns for all `places`."""
        return {name: self.at(self.places, name) for name in self.columns}

    def _new_rows(self, n: int) -> Array:
        n_again = min(n, len(self._free))
        again, self._free = self._free[len(self._free) - n_again :], self._free[: len(self._free) - n_again]
        first, self._n_used = self._n_used, self._n_used + n - n_again
        self._make_room(self._n_used)
        return np.array([*again, *range(first, self._n_used)], np.int64)

    def _make_room(self, n_rows: int) -> None:
        n_there = _n_rows(self.columns)
        if n_rows > n_there:
            more = max(n_rows, 2 * n_there) - n_there
            for name, spec in self.specs.items():
                self.columns[name] = join([self.columns[name], allocate(spec, (more,))])


def _n_rows(column: Column) -> int:
    while isinstance(column, dict):
        column = next(iter(column.values()))
    return len(column)
