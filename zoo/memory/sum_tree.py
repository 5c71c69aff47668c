"""Numbers that are drawn in proportion to their size, however many there are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Array = np.ndarray

FAN_OUT = 24
"""Children of a node: wide, because a level costs a few calls of NumPy, whatever its width."""

MOST_TRIES = 100
"""Draws of which some place is 0, after which no more are made."""

WIDEST_TOP = 2048
"""Nodes that are searched at once at the top, where a further level would cost more."""


class SumTree:
    """``size`` numbers of at least 0, at first all 0; their groups' sums and smallest positive numbers.

    Whatever stands in a node is computed from its children alone, so nothing drifts, and the same numbers
    always give the same tree.
    """

    def __init__(self, size: int) -> None:
        self.numbers = np.zeros(_padded(size))
        self._sums = [self.numbers]
        """At each level from the numbers upwards: the sum below each node."""
        self._ends: list[Array] = []
        """At each level but the top, in groups of children: the sum of those up to and with each child."""
        self._smallest: list[Array] = []
        """Above the numbers: the smallest positive number below each node, infinite where there is none."""
        while len(self._sums[-1]) > WIDEST_TOP:
            n_nodes = len(self._sums[-1]) // FAN_OUT
            self._ends.append(np.zeros((n_nodes, FAN_OUT)))
            self._sums.append(np.zeros(_padded(n_nodes)))
            self._smallest.append(np.full(_padded(n_nodes), np.inf))

    @property
    def smallest(self) -> float:
        """The smallest positive number; infinite if there is none."""
        top = self._smallest[-1] if self._smallest else _positive(self.numbers)
        return float(top.min())

    def set(self, indices: Array, numbers: Array | float) -> None:
        """Put numbers at places; of several for one place the last stays."""
        self.numbers[indices] = numbers
        for level, ends_below in enumerate(self._ends):
            indices = indices // FAN_OUT
            children = self._sums[level].reshape(-1, FAN_OUT).take(indices, axis=0)
            ends = children.cumsum(axis=1)
            ends_below[indices] = ends
            self._sums[level + 1][indices] = ends[:, -1]
            if level:
                smallest = self._smallest[level - 1].reshape(-1, FAN_OUT).take(indices, axis=0)
            else:
                smallest = _positive(children)
            self._smallest[level][indices] = smallest.min(axis=1)

    def draw(self, shares: Callable[[], Array]) -> tuple[Array, Array]:
        """Return the places (n,) on which random ``shares`` (n,) of the sum fall, and their numbers.

        A place whose number is 0 is never drawn. Ascending shares are found faster than others. Raises
        `ValueError` if all numbers are 0, or can't be summed up.
        """
        for _ in range(MOST_TRIES):
            places, numbers = self._at(shares())
            if numbers.all():  # else rounding has led past the end of a group: once in many years
                return places, numbers
        raise ValueError("the numbers' sum is none: there is nothing to draw")

    def _at(self, shares: Array) -> tuple[Array, Array]:
        """Return the places that these shares of the sum, from 0 to less than 1, fall on; their numbers."""
        top = self._sums[-1]
        top_ends = top.cumsum()
        total = top_ends[-1]
        if not total > 0:
            raise ValueError("all numbers are 0: there is nothing to draw")
        targets = np.minimum(shares * total, np.nextafter(total, 0.0))
        nodes = top_ends[:-1].searchsorted(targets, side="right")
        numbers = top.take(nodes)
        starts = top_ends.take(nodes) - numbers
        for ends in reversed(self._ends):
            targets -= starts
            children = (ends.take(nodes, axis=0) > targets[:, None]).argmax(axis=1)
            nodes = nodes * FAN_OUT + children
            starts = ends.reshape(-1).take(nodes - 1) * (children > 0)
            numbers = ends.reshape(-1).take(nodes) - starts
        return nodes, numbers


def _padded(size: int) -> int:
    return -(-size // FAN_OUT) * FAN_OUT


def _positive(numbers: Array) -> Array:
    return np.where(numbers > 0, numbers, np.inf)
