"""What one step of a vector environment gives, in one form for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from zoo.envs.env_group import EpisodeEnd, Info
from zoo.envs.monitor import EpisodeRecord
from zoo.envs.same_step import SameStepVectorEnv
from zoo.envs.step_arrays import Observations


@dataclass(slots=True)
class Step:
    """What one step of all environments gave; raw values.

    They are valid until the next step, and for ever where a `SameStepVectorEnv` gave them.

    ``final_observations`` are the rows for ``finished``, in that order: what the episodes ended with, which
    ``observations`` shows no more where the environment was reset within the step. ``valid`` is None if all
    rows are real transitions; a row that merely reset its environment, or stood idle, is False there and
    belongs in no memory and no count.

    ``action_masks`` says which actions are valid for ``observations``, (num_envs, mask_size), and
    ``final_action_masks`` which were for ``final_observations``; both are None without masks.
    """

    observations: Observations
    rewards: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    finished: NDArray[np.int64]
    final_observations: Observations | None
    valid: NDArray[np.bool_] | None
    episodes: list[EpisodeRecord]
    action_masks: NDArray[np.bool_] | None
    final_action_masks: NDArray[np.bool_] | None
    _infos: Any = field(repr=False)
    _env: VectorEnv[Any, Any, Any] = field(repr=False)
    _ends: Sequence[EpisodeEnd] = field(default=(), repr=False)

    @property
    def infos(self) -> Info:
        """The infos in Gymnasium's vector form, merged when they are read."""
        if isinstance(self._env, SameStepVectorEnv):
            return self._env.merged_infos(self._infos, self._ends)
        infos: Info = self._infos
        return infos
