"""The rows of a ring in segments, so that what did not change since it was written is not written again."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

import numpy as np

from zoo.files.tensors import Lasting
from zoo.memory.columns import Column, are_rows, assign, transform

Array = np.ndarray

MOST_SEGMENTS = 128
"""Segments that a ring is cut into at most: where one row changed, its whole segment is written again."""

SMALLEST_SEGMENT = 2**20
"""Bytes that a segment has at least."""


class Segments:
    """Pieces of ``columns`` (length, …), equally long but for the last, whose contents have names.

    A name stands for one content for ever, also in other processes. So whoever writes rows has to tell which
    have `changed`, before the next `state`.
    """

    def __init__(self, columns: Mapping[str, Column], length: int) -> None:
        row_bytes = max(1, sum(_n_bytes(column) for column in columns.values()) // length)
        self.columns = columns
        self.n_rows = max(-(-length // MOST_SEGMENTS), -(-SMALLEST_SEGMENT // row_bytes))
        self._names: list[str | None] = [None] * -(-length // self.n_rows)

    def changed(self, rows: Array) -> None:
        """Forget the names of the segments in which these rows stand."""
        has_changed = np.zeros(len(self._names), np.bool_)
        has_changed[rows // self.n_rows] = True
        for segment in np.flatnonzero(has_changed).tolist():
            self._names[segment] = None

    def state(self, used: int) -> dict[str, Lasting]:
        """Return views of the first ``used`` rows, by the first row of each segment."""
        parts = {}
        for segment, first in enumerate(range(0, used, self.n_rows)):
            name = self._names[segment] = self._names[segment] or secrets.token_hex(16)
            parts[str(first)] = Lasting(name, self._rows(first, min(first + self.n_rows, used)))
        return parts

    def load_state(self, state: Mapping[str, Mapping[str, Any]], used: int) -> None:
        """Take over the rows that `state` returned, and their names where they were cut as they are here.

        Raises `ValueError` if these are not the first ``used`` rows of such columns; then none is taken over.
        """
        firsts = [int(first) for first in state]
        cuts = list(zip(firsts, [*firsts, used][1:], state.values(), strict=True))
        is_whole = firsts[:1] == [0][:used] and all(first < last for first, last, _ in cuts)
        if not is_whole or not all(are_rows(part, last - first, self.columns) for first, last, part in cuts):
            raise ValueError("its rows are not those of this memory")
        for first, last, part in cuts:
            for name, column in self.columns.items():
                assign(column, slice(first, last), part[name])
        self._names = [None] * len(self._names)
        if firsts == list(range(0, used, self.n_rows)):
            for segment, part in enumerate(state.values()):
                self._names[segment] = part.name if isinstance(part, Lasting) else None

    def _rows(self, first: int, last: int) -> dict[str, Column]:
        return {
            name: transform(lambda array: array[first:last], column) for name, column in self.columns.items()
        }


def _n_bytes(column: Column) -> int:
    if isinstance(column, dict):
        return sum(_n_bytes(part) for part in column.values())
    return int(column.nbytes)
