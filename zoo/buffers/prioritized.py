"""Prioritised replay (Schaul et al. 2016, https://arxiv.org/abs/1511.05952), in its proportional form.

A transition is drawn with the probability P(i) = pᵢ^α / Σ p^α of its priority pᵢ = |δᵢ| + ε, the size of its
error when it was last learned from (at first the largest so far), and has the weight (N·P(i))^−β.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from zoo.buffers.arrays import Array
from zoo.buffers.config import PrioritizedConfig
from zoo.buffers.replay import ReplayBuffer, UniformSampler
from zoo.config.schedules import Schedule

BYTES_EACH = 17
"""What a transition's priority takes, with its part of the tree."""

MOST_NEW = 1024
"""Steps that may wait to be given their priorities at once."""


class PrioritizedSampler(UniformSampler):
    """Priorities of transitions; weights are divided by the largest that any stored transition has."""

    def __init__(self, config: PrioritizedConfig) -> None:
        self.config = config
        self.beta = Schedule("linear", config.beta, 1.0, fraction=config.beta_fraction)
        self._largest = 1.0
        self._new: list[Array] = []
        self._drawn = np.empty(0, np.int64)

    def allocate(self, length: int, n_envs: int) -> None:
        self.n_envs, self.tree = n_envs, SumTree(length * n_envs)

    def add(self, positions: Array, envs: Array) -> None:
        """Give the largest priority so far to the transitions that were written there."""
        self._new.append(positions * self.n_envs + envs)
        if len(self._new) == MOST_NEW:
            self._insert_new()

    def _insert_new(self) -> None:
        if self._new:
            self.tree.set(np.concatenate(self._new), self._largest**self.config.alpha)
            self._new = []

    def _clear_given_up(self, buffer: ReplayBuffer) -> None:
        """Take out the rows at the heads of rings that hold no transition."""
        rows = (buffer.heads + np.arange(buffer.n_given_up)[:, None]) % buffer.length
        places = (rows * self.n_envs + np.arange(self.n_envs)).reshape(-1)
        places = places[self.tree.numbers[places] > 0]
        if len(places):
            self.tree.set(places, 0.0)

    def sample(
        self, rng: np.random.Generator, shape: tuple[int, ...], buffer: ReplayBuffer, progress: float
    ) -> tuple[Array, Array, Array]:
        """Sample by priority, with weights for the β of this ``progress``.

        The sum of all priorities is cut into as many equal parts as a batch has transitions, and each part
        gives one of them: so they come in the order of their places.
        """
        self._insert_new()
        if buffer.n_given_up:
            self._clear_given_up(buffer)
        numbers = np.zeros(1)
        while not numbers.all():  # rounding may lead past the end of a group, to an empty place: very rarely
            shares = (rng.random(shape) + np.arange(shape[-1])) / shape[-1]
            self._drawn, numbers = self.tree.draw(shares.reshape(-1))
        weights = (numbers / self.tree.smallest) ** -self.beta(progress)
        positions, envs = np.divmod(self._drawn.reshape(shape), self.n_envs)
        return positions, envs, weights.astype(np.float32).reshape(shape)

    def update_priorities(self, td_errors: Array, rows: Array | slice) -> None:
        """Update the priorities of the last sample; for a repeated transition the last error counts."""
        priorities = np.abs(td_errors.reshape(-1)[rows].astype(np.float64)) + self.config.epsilon
        if not np.isfinite(td_errors).all() or not len(priorities):
            return  # if they are not finite, the run is about to end with a message about the parameters
        self._largest = max(self._largest, float(priorities.max()))
        self.tree.set(self._drawn[rows], priorities**self.config.alpha)

    def state(self) -> dict[str, Any]:
        """Return the priorities to the power of α, and the largest one so far."""
        self._insert_new()
        return {"priorities": np.trim_zeros(self.tree.numbers, "b").copy(), "largest": self._largest}

    def load_state(self, state: Mapping[str, Any]) -> None:
        priorities = state["priorities"]
        numbers = np.zeros_like(self.tree.numbers)
        numbers[: len(priorities)] = priorities
        self._new, self._largest = [], float(state["largest"])
        self.tree.set(np.arange(len(numbers)), numbers)


FAN_OUT = 24
"""Children of a node: wide, because a level costs a few calls of NumPy, whatever its width."""

WIDEST_TOP = 2048
"""Nodes that are searched at once at the top, where a further level would cost more."""


class SumTree:
    """``size`` numbers of at least 0, at first all 0; their groups' sums and smallest positive numbers."""

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
        """Set leaves; for duplicate indices the last value wins."""
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

    def draw(self, shares: Array) -> tuple[Array, Array]:
        """Return the places (n,) on which ``shares`` (n,) of the sum fall, 0 to 1, and their numbers."""
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
