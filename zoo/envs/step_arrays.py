"""The arrays that environments are stepped into, in this process or in memory that several share."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from zoo.envs.spaces import Observations, Space, action_array, mask_size

NO_ENV = -1


class StepArrays:
    """What one step of all environments takes and gives, (num_envs, …) each: views of one array of records.

    ``actions`` are records where they are tuples or dictionaries: `action_array`. ``action_masks`` are filled
    where the environments have masks; None where their actions can have none. ``progress`` says which
    environment is being stepped: `StepProgress`.
    """

    def __init__(self, records: NDArray[Any]) -> None:
        self.records = records
        shown, names = records["observations"], records.dtype.names or ()
        self.observations: Observations = shown
        if shown.dtype.names is not None:
            self.observations = {key: shown[key] for key in shown.dtype.names}
        self.actions: NDArray[Any] = records["actions"]
        self.rewards: NDArray[np.float64] = records["rewards"]
        self.terminated: NDArray[np.bool_] = records["terminated"]
        self.truncated: NDArray[np.bool_] = records["truncated"]
        self.action_masks: NDArray[np.bool_] | None = records["masks"] if "masks" in names else None
        self.progress: NDArray[np.int64] = records["progress"]

    @classmethod
    def allocate(cls, num_envs: int, observation_space: Space, action_space: Space) -> StepArrays:
        """Return zeroed arrays."""
        shown: Any = (observation_space.dtype, observation_space.shape)
        if isinstance(observation_space, spaces.Dict):
            parts: Any = [(key, part.dtype, part.shape) for key, part in observation_space.items()]
            shown = (np.dtype(parts, align=True),)
        actions, n_masks = action_array(action_space, 1), mask_size(action_space)
        fields: Any = [
            ("observations", *shown),
            ("actions", actions.dtype, actions.shape[1:]),
            ("rewards", np.float64),
            ("progress", np.int64, 4),
            ("terminated", np.bool_),
            ("truncated", np.bool_),
        ]
        if n_masks is not None:
            fields.append(("masks", np.bool_, (n_masks,)))
        return cls(np.zeros(num_envs, np.dtype(fields, align=True)))


class StepProgress:
    """How far environments are, in rows of an array (num_envs, 4) that other processes can read.

    Each row holds an environment's last seed, −1 where it is not known, and the step at which it got it.
    ``now``, in the first row, holds the environment at work, or `NO_ENV`, and the number of steps that all
    have begun.
    """

    def __init__(self, rows: NDArray[np.int64], first_index: int) -> None:
        self.seeds, self.seeded_at, self.now = rows[:, 0], rows[:, 1], rows[0, 2:]
        self._first_index = first_index

    def name(self, row: int) -> str:
        """Return ``env 3 (step 17 after seed 40)``, or what is known of it."""
        seed, steps = int(self.seeds[row]), int(self.now[1] - self.seeded_at[row])
        known = [f"step {steps}"] * (steps > 0) + [f"seed {seed}"] * (seed >= 0)
        return f"env {self._first_index + row}" + (f" ({' after '.join(known)})" if known else "")

    def at_work(self) -> str | None:
        """Return the name of the environment that is being stepped or reset, or None."""
        row = int(self.now[0])
        return None if row == NO_ENV else self.name(row)
