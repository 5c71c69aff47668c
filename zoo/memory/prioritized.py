"""Prioritised replay (Schaul et al. 2016, https://arxiv.org/abs/1511.05952), in its proportional form.

A transition is drawn with the probability P(i) = pᵢ^α / Σ p^α of its priority pᵢ = |δᵢ| + ε, the size of its
error when it was last learned from; one that never was has the largest priority so far. What is drawn too
often for a mean over all counts less, by the weight (N·P(i))^−β.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from zoo.memory.config import PrioritizedConfig
from zoo.memory.sampling import Drawn, Rings
from zoo.memory.sum_tree import SumTree
from zoo.optim.schedules import Schedule

Array = np.ndarray

BYTES_EACH = 17
"""What a transition's priority takes, with its part of the tree."""

MOST_NEW = 1024
"""Steps that may wait to be given their priorities at once."""


class PrioritizedSampler:
    """Priorities for rings of ``length`` rows of ``n_envs`` environments.

    Weights are divided by the largest that any stored transition has, so they are at most 1, and each
    transition's depends on all others, not on those that are drawn with it.
    """

    def __init__(self, config: PrioritizedConfig, length: int, n_envs: int) -> None:
        self.config = config
        self.n_envs = n_envs
        self.beta = Schedule("linear", config.beta, 1.0, fraction=config.beta_fraction)
        self.tree = SumTree(length * n_envs)
        self._envs = np.arange(n_envs)
        self._largest = 1.0
        self._new: list[Array] = []
        self._drawn = np.empty(0, np.int64)

    def added(self, positions: Array, envs: Array) -> None:
        """Give the largest priority so far to the transitions that were written there."""
        self._new.append(positions * self.n_envs + envs)
        if len(self._new) == MOST_NEW:
            self._take_in_new()

    def _take_in_new(self) -> None:
        if self._new:
            self.tree.set(np.concatenate(self._new), self._largest**self.config.alpha)
            self._new = []

    def _give_up(self, heads: Array, is_full: Array) -> None:
        """Take out the rows at the heads of rings that hold no transition there, but what was shown last."""
        if is_full.all():
            return
        empty = (heads * self.n_envs + self._envs)[~is_full]
        empty = empty[self.tree.numbers[empty] > 0]
        if len(empty):
            self.tree.set(empty, 0.0)

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...], rings: Rings, progress: float) -> Drawn:
        """Draw by priority, with weights for the β of this ``progress``.

        As in the paper, the sum of all priorities is cut into as many equal parts as a batch has
        transitions, and each part gives one of them: so they come in the order of their places.
        """
        self._take_in_new()
        self._give_up(rings.heads, rings.sizes == rings.length)
        first, n = np.arange(shape[-1]), shape[-1]
        self._drawn, numbers = self.tree.draw(lambda: ((rng.random(shape) + first) / n).reshape(-1))
        weights = (numbers / self.tree.smallest) ** -self.beta(progress)
        positions, envs = np.divmod(self._drawn.reshape(shape), self.n_envs)
        return Drawn(positions, envs, weights.astype(np.float32).reshape(shape))

    def learned(self, td_errors: Array, rows: Array | slice = slice(None)) -> None:
        """Give new priorities to what was drawn last; of several errors of one transition the last counts."""
        priorities = np.abs(td_errors.reshape(-1)[rows].astype(np.float64)) + self.config.epsilon
        if not np.isfinite(td_errors).all() or not len(priorities):
            return  # if they are not finite, the run is about to end with a message about the parameters
        self._largest = max(self._largest, float(priorities.max()))
        self.tree.set(self._drawn[rows], priorities**self.config.alpha)

    def state(self) -> dict[str, Any]:
        """Return the priorities to the power of α, and the largest one so far."""
        self._take_in_new()
        return {"priorities": np.trim_zeros(self.tree.numbers, "b").copy(), "largest": self._largest}

    def load_state(self, state: Mapping[str, Any], rings: Rings) -> None:
        """Take over what `state` returned. Raises `ValueError` if it is not of what these rings hold."""
        priorities, largest = state["priorities"], float(state["largest"])
        if len(priorities) > rings.length * self.n_envs:
            raise ValueError("its priorities are not those of this memory")
        numbers = np.zeros_like(self.tree.numbers)
        numbers[: len(priorities)] = priorities
        self._new, self._largest = [], largest
        self.tree.set(np.arange(len(numbers)), numbers)
