"""What each environment has shown, apart from the others, until it is taken in by the one normaliser."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from zoo.envs.normalize import SINGLE, Normalizer
from zoo.envs.step_arrays import Observations


class MomentsByRow:
    """Mean and sum of squared deviations of what each of ``n_rows`` environments shows (Welford 1962).

    A row's numbers depend on nothing but what that row has shown, to the last bit.
    """

    def __init__(self, normalizer: Normalizer, n_rows: int) -> None:
        self._shapes = {key: moments.mean.shape for key, moments in normalizer.moments.items()}
        self._sizes = [moments.mean.size for moments in normalizer.moments.values()]
        self.counts = np.zeros((n_rows, 1))
        self.means = np.zeros((n_rows, sum(self._sizes)))
        self.squares = np.zeros((n_rows, sum(self._sizes)))

    def start(self, rows: Sequence[int]) -> None:
        """Forget what these rows have shown."""
        self.counts[rows] = self.means[rows] = self.squares[rows] = 0.0

    def update(self, observations: Observations, counted: NDArray[np.bool_]) -> None:
        """Take in what each row shows, (n_rows, …) or a dict of it, of those that are ``counted``."""
        n = len(counted)
        parts = [
            np.reshape(observations[key] if key != SINGLE else observations, (n, -1)) for key in self._shapes
        ]
        values = np.concatenate(parts, axis=1, dtype=np.float64)
        self.counts += counted[:, np.newaxis]
        deviations = np.where(counted[:, np.newaxis], values - self.means, 0.0)
        self.means += deviations / np.maximum(self.counts, 1.0)
        deviations *= values - self.means
        self.squares += deviations

    def seen_by(self, row: int) -> NDArray[np.float64]:
        """Return what a row has shown in the form that `Normalizer.merge` takes, without any return."""
        means, squares = (
            np.split(moments[row], np.cumsum(self._sizes)[:-1]) for moments in (self.means, self.squares)
        )
        parts = zip(means, squares, strict=True)
        by_part = [np.concatenate([self.counts[row], mean, square]) for mean, square in parts]
        return np.concatenate([*by_part, np.zeros(3)])
