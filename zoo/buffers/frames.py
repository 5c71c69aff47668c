"""Frame stacks that store each frame once: three of four are also in the previous observation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from zoo.buffers.arrays import Array, ArraySpec
from zoo.envs.spaces import channels_first


def frame_spec(spec: Any, n_frames: int) -> ArraySpec | None:
    """Return the spec of the newest frame of pictures that show ``n_frames``; None for other observations."""
    if n_frames == 1 or not isinstance(spec, ArraySpec) or len(spec.shape) != 3 or spec.dtype != np.uint8:
        return None
    first, height, last = spec.shape
    if first % n_frames == 0 and channels_first((first // n_frames, height, last)):
        return ArraySpec((first // n_frames, height, last), spec.dtype)
    return None if last % n_frames else ArraySpec((first, height, last // n_frames), spec.dtype)


class FrameStacks:
    """The newest frames (length, n_envs, *frame) of observations, the rings of a replay buffer.

    A stack is put together from the frames of its row and of those before. Where they are not what it shows,
    as at the start of an episode, it is kept whole beside the rings.
    """

    def __init__(self, frames: Array, spec: ArraySpec) -> None:
        self.frames = frames
        self.n_envs = frames.shape[1]
        self._rows = frames.reshape(-1, *frames.shape[2:])
        self._axis = 0 if frames.shape[2] < spec.shape[0] else 2
        self._width = frames.shape[2 + self._axis]
        self.n_frames = spec.shape[self._axis] // self._width
        self._whole: dict[int, Array] = {}
        """Stacks by row · n_envs + env."""
        self._is_whole = np.zeros(len(self._rows), np.bool_)

    def write(self, rows: Array, envs: Array, stacks: Array) -> None:
        """Store stacks (n, *shape) at these places, one an environment."""
        earlier, self.frames[rows, envs] = np.split(stacks, [-self._width], axis=1 + self._axis)
        places = rows * self.n_envs + envs
        is_whole = (self._before(places, 1) != earlier).any((1, 2, 3))
        for i in np.flatnonzero(is_whole | self._is_whole[places]).tolist():
            if is_whole[i]:
                self._whole[int(places[i])] = stacks[i].copy()
            else:
                del self._whole[int(places[i])]
        self._is_whole[places] = is_whole

    def take(self, places: Array) -> Array:
        """Return the stacks (…, *shape) at ``places`` (…), each row · n_envs + env."""
        stacks = self._before(places, 0)
        is_whole = self._is_whole.take(places)
        if is_whole.any():
            stacks[is_whole] = [self._whole[place] for place in places[is_whole].tolist()]
        return stacks

    def _before(self, places: Array, newest: int) -> Array:
        """Return the frames of the rows before ``places`` (…), the last one ``newest`` rows before."""
        ages = np.arange(self.n_frames - 1, newest - 1, -1)
        frames = self._rows.take((places[..., None] - ages * self.n_envs) % len(self._rows), axis=0)
        shape = list(self.frames.shape[2:])
        shape[self._axis] *= len(ages)
        beside = np.moveaxis(frames, places.ndim, places.ndim + self._axis)
        return np.ascontiguousarray(beside).reshape(*places.shape, *shape)

    def state(self) -> dict[str, Any]:
        """Return the stacks that are kept whole, by their places."""
        places = sorted(self._whole)
        stacks = np.array([self._whole[place] for place in places], self.frames.dtype)
        return {"places": np.array(places, np.int64), "stacks": stacks}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` returned."""
        self._whole = dict(zip(state["places"].tolist(), state["stacks"], strict=True))
        self._is_whole[:] = False
        self._is_whole[state["places"]] = True
