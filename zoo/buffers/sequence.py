"""Sequences of several steps: windows over the rings of a replay buffer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from zoo.buffers.arrays import Array
from zoo.buffers.replay import Batch, ReplayBuffer
from zoo.errors import ZooError

NO_INDEX = -1
"""The ``next_index`` of a step whose next observation is in the window itself, or which ended its episode."""


class SequenceBuffer(ReplayBuffer):
    """A replay buffer whose batches are windows of ``n_steps`` steps of one environment, one after the other.

    A window may reach over ends of episodes, but not over the head of a ring. Observations are stored once.
    In a batch, window i is one of environment i, and columns have the shape (rows, n_envs, n_steps, …):

    - those of ``specs``, ``rewards``, ``terminated`` and ``dones`` (terminated or truncated); of ``states``
      only those before the first steps, (rows, n_envs, …);
    - ``next_index``: the index into ``next_observations`` (rows, n_next, …), and masks and states alike, of
      the last step of each window and of truncated ones; `NO_INDEX` for all others. ``n_next`` only grows,
      so that batches seldom change their shape.
    """

    def __init__(
        self, capacity: int, n_envs: int, specs: Mapping[str, Any], n_steps: int, n_frames: int = 1
    ) -> None:
        super().__init__(capacity, n_envs, specs, optimize_memory_usage=True, n_frames=n_frames)
        self.n_steps = n_steps
        self.n_next = n_envs if n_steps == 1 else 2 * n_envs  # one for the last step, one for a cut
        if n_steps > self._most_rows:
            enough = (n_steps + self.n_given_up) * n_envs
            raise ZooError(
                f"`algo.buffer_size={capacity}` keeps {self._most_rows} steps of each of {n_envs} envs,"
                f" fewer than a rollout, `algo.n_steps={n_steps}`; take {enough} or more"
            )

    @property
    def has_windows(self) -> bool:
        """Whether every environment has one."""
        return bool((self.sizes >= self.n_steps).all())

    def newest_starts(self) -> Array:
        """Return where the windows of the last steps begin, (1, n_envs)."""
        return (self.heads - self.n_steps)[None] % self.length

    def sample_starts(self, rng: np.random.Generator, n_rows: int) -> Array:
        """Draw where windows begin, (n_rows, n_envs): of each environment all are equally likely."""
        ages = rng.integers(0, self.sizes - self.n_steps + 1, size=(n_rows, self.n_envs))
        return (self.heads - self.n_steps - ages) % self.length

    def windows(self, firsts: Array) -> Batch:
        """Return the windows that begin at ``firsts`` (rows, n_envs), transformed."""
        positions = (firsts[..., None] + np.arange(self.n_steps)) % self.length
        places = positions * self.n_envs + self._envs[:, None]
        batch = {
            name: self._take(name, places[..., 0] if name == "states" else places) for name in self._rows
        }
        batch |= self._next_columns(positions, batch["dones"] & ~batch["terminated"])
        for change in self.transforms:
            batch = change(batch)
        return batch

    def _next_columns(self, positions: Array, truncated: Array) -> Batch:
        """Return the next columns of last and truncated steps; ``truncated`` (rows, n_envs, n_steps)."""
        truncated[..., -1] = False  # the last step of a window has a place of its own
        per_row = truncated.reshape(len(truncated), -1)
        most = self.n_envs + int(per_row.sum(1).max())
        while self.n_next < most:
            self.n_next *= 2
        numbers = self.n_envs + per_row.cumsum(1).reshape(truncated.shape) - 1
        next_index = np.where(truncated, numbers, NO_INDEX)
        next_index[..., -1] = self._envs
        rows, envs, _ = is_followed = np.nonzero(next_index != NO_INDEX)
        shape = len(positions), self.n_next
        followed, of_envs = np.repeat(positions[:, :1, -1], self.n_next, axis=1), np.zeros(shape, np.int64)
        at = rows, next_index[is_followed]
        followed[at], of_envs[at] = positions[is_followed], envs
        dones = self.columns["dones"][followed, of_envs]
        following = {
            f"next_{name}": self._following(followed, of_envs, dones, name) for name in self.policy_columns
        }
        return {"next_index": next_index, **following}

    def state(self) -> dict[str, Any]:
        return {**super().state(), "n_places": self.n_next}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self.n_next = int(state["n_places"])
