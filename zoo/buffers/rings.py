"""What stands beside the rings of a replay buffer: draws, windows, episodes, last observations, segments."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from zoo.buffers.arrays import Arrays, assign, join, transform
from zoo.core.tensors import ContentFile

Array = np.ndarray


class Drawn(NamedTuple):
    """Places in the rings of all environments; ``weights`` are None where all count alike."""

    positions: Array
    envs: Array
    weights: Array | None = None


class Rings(NamedTuple):
    """The rings of all environments, of ``length`` rows each.

    Their newest rows stand before ``heads`` (n_envs,), and they hold ``sizes`` (n_envs,) rows.
    """

    heads: Array
    sizes: Array
    length: int


class UniformSampler:
    """Samples transitions uniformly with replacement."""

    def added(self, positions: Array, envs: Array) -> None:
        """Take note that transitions were written there; the arrays change when it returns."""

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...], rings: Rings, progress: float) -> Drawn:
        """Return places of that shape. ``progress`` is that of training.

        Transitions are numbered, the newest of each environment first, and numbers are drawn.
        """
        heads, sizes, length = rings
        each = sizes.tolist()
        numbers = rng.integers(0, sum(each), size=shape)
        if len(each) == 1:
            ages, envs = numbers, np.zeros(shape, np.int64)
        elif min(each) == max(each):
            ages, envs = np.divmod(numbers, len(each))
        else:
            ends = np.cumsum(sizes)
            envs = np.searchsorted(ends, numbers, side="right")
            ages = numbers - (ends - sizes)[envs]
        are_equal = len(set(heads.tolist())) == 1
        newest = (heads[0] if are_equal else heads.take(envs)) - 1
        return Drawn((newest - ages) % length, envs)

    def update_priorities(self, td_errors: Array, rows: Array | slice = slice(None)) -> None:
        """Take note of the sizes of the errors of what was drawn last, of some rows (…, flat) alone."""

    def state(self) -> dict[str, Any]:
        """Return all that the next draws depend on, beside the rings."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` returned."""


class Windows(NamedTuple):
    """Some steps of one episode each, one after the other: positions in the ring of an environment.

    ``steps`` (*shape, n) are all that a window could have; its own are as many as ``lengths`` (*shape) says,
    from ``first`` (*shape) to ``last`` (*shape).
    """

    envs: Array
    steps: Array
    lengths: Array
    last: Array

    @property
    def first(self) -> Array:
        """Where each window begins."""
        return self.steps[..., 0]


def windows_of(
    positions: Array, envs: Array, n_step: int, heads: Array, length: int, ended: Array
) -> Windows:
    """Return the windows of at most ``n_step`` steps that begin at ``positions`` in the rings of ``envs``.

    They end where ``ended`` (length, n_envs) says that the episode did, and at the newest step of the ring,
    which stands before ``heads``: what is known there is taken for all that there was.
    """
    if n_step == 1:
        return Windows(envs, positions[..., None], np.ones(positions.shape, np.int64), positions)
    ages = (heads[envs] - 1 - positions) % length
    steps = (positions[..., None] + np.arange(n_step)) % length
    ends = ended.reshape(-1).take(steps[..., :-1] * ended.shape[1] + envs[..., None])
    goes_on = ~ends & (np.arange(n_step - 1) < ages[..., None])
    lengths = 1 + np.logical_and.accumulate(goes_on, axis=-1).sum(-1)
    return Windows(envs, steps, lengths, (positions + lengths - 1) % length)


def summed(rewards: Array, lengths: Array, gamma: float) -> tuple[Array, Array]:
    """Return Σ γ^i·r_i over each window and γ^length, both float32 (*shape), of rewards (*shape, n)."""
    powers = gamma ** np.arange(rewards.shape[-1] + 1)
    is_part = np.arange(rewards.shape[-1]) < lengths[..., None]
    sums = np.where(is_part, rewards, 0.0) @ powers[:-1]
    return sums.astype(np.float32), powers.astype(np.float32)[lengths]


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


class FinalObservations:
    """What was shown last where a transition ended its episode, by the place of the transition."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self._kept: dict[int, dict[str, Arrays]] = {}

    @property
    def places(self) -> Array:
        """All places (n,) that have one, in order."""
        return np.array(sorted(self._kept), np.int64)

    def keep(self, places: Array, columns: Mapping[str, Arrays]) -> None:
        """Keep what was shown last (n, …) for these places (n,)."""
        for row, place in enumerate(places.tolist()):
            self._kept[place] = transform(lambda array: array[row].copy(), dict(columns))  # noqa: B023

    def load(self, places: Array, columns: Mapping[str, Arrays]) -> None:
        """Keep what `places` and `all` returned, and nothing else."""
        self._kept = {}
        self.keep(places, columns)

    def forget(self, places: Array) -> None:
        """Give up what is kept for these places (n,), where there is any."""
        for place in places.tolist():
            self._kept.pop(place, None)

    def at(self, places: Array, name: str, key: str | None = None) -> Arrays:
        """Return a column, or the part ``key`` of it, for these places (n,), which all have one."""
        rows = [self._kept[place][name] for place in places.tolist()]
        if key is not None:
            rows = [row[key] for row in rows]
        return join([transform(lambda array: array[None], row) for row in rows])

    def all(self) -> dict[str, Arrays]:
        """Return all columns for all `places`."""
        return {name: self.at(self.places, name) for name in self.names} if self._kept else {}


MOST_SEGMENTS = 128
"""Chunks that a ring is cut into at most: where one row changed, its whole chunk is written again."""

SMALLEST_SEGMENT = 2**20
"""Bytes that a segment has at least."""


class ReplayChunks:
    """Pieces of ``columns`` (length, …), equally long but for the last, whose contents have names.

    A name stands for one content for ever, also in other processes. So whoever writes rows has to tell which
    have `changed`, before the next `state`.
    """

    def __init__(self, columns: Mapping[str, Arrays], length: int) -> None:
        sizes: list[int] = []
        transform(lambda array: sizes.append(array.nbytes), dict(columns))
        row_bytes = max(1, sum(sizes) // length)
        self.columns = columns
        self.n_rows = max(-(-length // MOST_SEGMENTS), -(-SMALLEST_SEGMENT // row_bytes))
        self._names: list[str | None] = [None] * -(-length // self.n_rows)

    def changed(self, rows: Array) -> None:
        """Forget the names of the segments in which these rows stand."""
        has_changed = np.zeros(len(self._names), np.bool_)
        has_changed[rows // self.n_rows] = True
        for segment in np.flatnonzero(has_changed).tolist():
            self._names[segment] = None

    def state(self, used: int) -> dict[str, ContentFile]:
        """Return views of the first ``used`` rows, by the first row of each segment."""
        parts = {}
        for segment, first in enumerate(range(0, used, self.n_rows)):
            name = self._names[segment] = self._names[segment] or secrets.token_hex(16)
            rows = slice(first, min(first + self.n_rows, used))
            parts[str(first)] = ContentFile(name, transform(itemgetter(rows), dict(self.columns)))
        return parts

    def load_state(self, state: Mapping[str, Mapping[str, Any]], used: int) -> None:
        """Take over the rows that `state` returned, and their names where they were cut as they are here."""
        firsts = [int(first) for first in state]
        for first, last, part in zip(firsts, [*firsts, used][1:], state.values(), strict=True):
            for name, column in self.columns.items():
                assign(column, slice(first, last), part[name])
        self._names = [None] * len(self._names)
        if firsts == list(range(0, used, self.n_rows)):
            for segment, part in enumerate(state.values()):
                self._names[segment] = part.name if isinstance(part, ContentFile) else None
