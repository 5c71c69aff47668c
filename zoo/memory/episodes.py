"""Where each transition of a replay memory stands in its episode."""

from __future__ import annotations

import numpy as np

Array = np.ndarray

UNDER_WAY = -1
"""What stands for the steps to an episode's last one while nobody knows it."""


class Episodes:
    """Steps before and behind each transition in its episode, for rings (length, n_envs).

    ``since`` is how many steps its episode had before, ``to_go`` how many come after it, `UNDER_WAY` until
    the episode has ended. Where a full ring has overwritten an episode's first steps, those are still counted
    in ``since``. Both follow from which transitions ended their episodes, so `rebuild` makes them anew.
    """

    BYTES_EACH = 8
    """What they take for each transition."""

    def __init__(self, length: int, n_envs: int) -> None:
        self.length = length
        self.since = np.zeros((length, n_envs), np.int32)
        self.to_go = np.full((length, n_envs), UNDER_WAY, np.int32)
        self._lengths = np.zeros(n_envs, np.int64)

    def added(self, positions: Array, envs: Array, ended: Array) -> None:
        """Take note that a transition was written to each of these places, and which end their episodes."""
        self.since[positions, envs] = self._lengths[envs]
        self.to_go[positions, envs] = UNDER_WAY
        self._lengths[envs] += 1
        if ended.any():
            self.ended(positions[ended], envs[ended])

    def ended(self, positions: Array, envs: Array) -> None:
        """Take note that the newest transitions of environments, at these places, end their episodes."""
        lengths = np.minimum(self._lengths[envs], self.length)
        steps = counted(lengths)
        self.to_go[(positions.repeat(lengths) - steps) % self.length, envs.repeat(lengths)] = steps
        self._lengths[envs] = 0

    def rebuild(self, ended: Array, heads: Array, sizes: Array) -> None:
        """Count anew in rings whose newest rows stand before ``heads`` and that hold ``sizes`` rows."""
        self.to_go[:] = UNDER_WAY
        for env, (head, size) in enumerate(zip(heads.tolist(), sizes.tolist(), strict=True)):
            places = (head - size + np.arange(size)) % self.length
            lasts = np.flatnonzero(ended[places, env])
            lengths = np.diff(np.concatenate([[-1], lasts, [size - 1]]))
            steps = counted(lengths)
            self.since[places, env] = steps
            n_ended = size - lengths[-1]
            self.to_go[places[:n_ended], env] = np.repeat(lengths[:-1], lengths[:-1]) - 1 - steps[:n_ended]
            self._lengths[env] = lengths[-1]


def counted(lengths: Array) -> Array:
    """Return 0, 1, … below each of these lengths, one after the other."""
    return np.arange(lengths.sum()) - (lengths.cumsum() - lengths).repeat(lengths)
