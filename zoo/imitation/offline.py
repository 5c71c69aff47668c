"""Offline learning: an off-policy algorithm whose replay buffer is filled once, from expert data.

For example ``class OfflineTD3(OfflineAlgorithm, TD3)``. A step of its run is a gradient step.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any, cast

import numpy as np

from zoo.algorithms.arguments import Policy
from zoo.algorithms.off_policy import OffPolicyAlgorithm
from zoo.buffers.arrays import transform
from zoo.buffers.replay import ReplayBuffer
from zoo.envs.transition import Transition
from zoo.errors import ZooError
from zoo.imitation.demonstrations import chosen_episodes, stored_actions, update_normalizer, without_dataset
from zoo.imitation.expert_data import Dataset, ExpertData


class OfflineAlgorithm(OffPolicyAlgorithm):
    """Base class for learning from ``dataset``.

    Its config also derives from `EpisodeChoice`. ``buffer_size`` becomes the size of the data, and
    ``learning_starts`` 0.
    """

    can_share = False
    learns_from_experts = True

    def __init__(
        self, policy: Policy = "MlpPolicy", env: Any = None, *, dataset: Dataset | None = None, **options: Any
    ) -> None:
        self._dataset, self._data = dataset, cast("ExpertData | None", None)
        super().__init__(policy, env, **options)

    def _buffer_shape(self) -> tuple[int, int]:
        return (1 if self._data is None else self._data.n_steps), 1

    def _make_buffer(self) -> None:
        if self._data is None and self._dataset is not None:
            self._data = chosen_episodes(self._dataset, self, self.config)  # type: ignore[arg-type]
        self.config.learning_starts, self.config.buffer_size = 0, self._buffer_shape()[0]
        super()._make_buffer()
        if self._data is not None and not len(self.buffer):
            fill(self.buffer, self._data, stored_actions(self._data, self))

    def _reset_envs(self) -> None:
        update_normalizer(self, self._data)
        super()._reset_envs()

    def _check_budget(self, n_steps: int) -> None:
        if not len(self.buffer):
            raise without_dataset(self)

    def collect(self) -> None:
        self._progress_before = self.progress
        self._collected = min(self._train_freq, self.total_timesteps - self.num_timesteps)
        self.num_timesteps += self._collected

    def _gradient_steps_due(self) -> int:
        return self._collected

    def gradient_steps_in(self, total_timesteps: int) -> float:
        return total_timesteps


def fill(buffer: ReplayBuffer, data: ExpertData, actions: Any) -> None:
    """Store all steps but the last ones of truncated episodes, whose next observations are unknown."""
    if data.terminated is None:
        raise ZooError("values can't be learned from expert data that does not say which episodes terminated")
    terminated, is_known = np.zeros(data.n_steps, np.bool_), np.ones(data.n_steps, np.bool_)
    for column in (terminated, is_known):
        column[data.starts + data.lengths - 1] = data.terminated
    masks = {} if data.action_masks is None else {"action_masks": data.action_masks}
    columns = {"observations": data.observations, "actions": actions, **masks}
    for i in np.flatnonzero(is_known).tolist():
        row, after = (transform(itemgetter([at]), columns) for at in (i, i if terminated[i] else i + 1))
        is_cut = np.array([not terminated[i] and not is_known[i + 1]])
        transition = Transition(after["observations"], data.rewards[[i]], terminated[[i]], is_cut)
        transition.new_action_masks = after.get("action_masks")
        transition.observations, transition.columns = row["observations"], row
        buffer.add(transition)
