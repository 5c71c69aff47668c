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
from zoo.envs.vector_infos import info_of


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

    def own_infos(self) -> list[Info]:
        """Return the info of each environment's own step: where an episode ended, that of its end."""
        n_envs = len(self.rewards)
        if isinstance(self._env, SameStepVectorEnv):
            infos = [dict(info or {}) for info in self._infos]
            for end in self._ends:
                infos[end.env_index] = dict(end.info)
            return infos
        infos = [info_of(self._infos, i) for i in range(n_envs)]
        if "final_info" in self._infos:
            for i in self.finished.tolist():
                infos[i] = info_of(self._infos["final_info"], i)
        return infos

    @property
    def infos(self) -> Info:
        """The infos in Gymnasium's vector form, merged when they are read."""
        if isinstance(self._env, SameStepVectorEnv):
            return self._env.merged_infos(self._infos, self._ends)
        infos: Info = self._infos
        return infos
