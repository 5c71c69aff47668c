"""Where some environments are: which of them is being stepped, and in which step after which seed.

It stands in an array that a worker process shares with its parent, so that the place can still be told when
an environment hangs, or has ended its process.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

N_COLUMNS = 4
"""Each row's seed and when it got it; in the first row of a group also which is at work, and when."""

NOWHERE = -1
LARGEST_SEED = 2**63 - 1


class Whereabouts:
    """The place of a group of environments, in its rows of an array (num_envs, ``N_COLUMNS``).

    ``now`` holds the row of the environment that is at work, or ``NOWHERE``, and the number of steps that all
    have begun; whoever steps them writes it there. ``first_index`` is the place of the first row among all.
    """

    def __init__(self, rows: NDArray[np.int64], first_index: int) -> None:
        self._seeds, self._seeded_at, self.now = rows[:, 0], rows[:, 1], rows[0, 2:]
        self._first_index = first_index

    def clear(self) -> None:
        """Forget what stood there."""
        self._seeds[:] = NOWHERE
        self._seeded_at[:] = 0
        self.now[:] = NOWHERE, 0

    def seeded(self, row: int, seed: int, n_steps: int) -> None:
        """Note that an environment gets a seed after ``n_steps`` steps; a very large one stays unknown."""
        self._seeds[row] = seed if seed <= LARGEST_SEED else NOWHERE
        self._seeded_at[row] = n_steps

    def move(self, n_steps: int, since_seeds: Sequence[int]) -> None:
        """Count steps anew, with ``n_steps`` begun in all, and so many of each row since its seed."""
        self.now[:] = NOWHERE, n_steps
        self._seeded_at[:] = n_steps - np.asarray(since_seeds)

    def name(self, row: int) -> str:
        """Return ``env 3 (step 17 after seed 40)``, or what is known of it."""
        seed, steps = int(self._seeds[row]), int(self.now[1] - self._seeded_at[row])
        known = [f"step {steps}"] * (steps > 0) + [f"seed {seed}"] * (seed != NOWHERE)
        return f"env {self._first_index + row}" + (f" ({' after '.join(known)})" if known else "")

    def at_work(self) -> str | None:
        """Return the name of the environment that is being stepped or reset, or None."""
        row = int(self.now[0])
        return None if row == NOWHERE else self.name(row)
