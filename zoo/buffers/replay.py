"""Replay buffers: past transitions in a ring for each environment, stored, sampled, and transformed."""

from __future__ import annotations

import json
import logging
import secrets
import warnings
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

import numpy as np

from zoo.buffers.arrays import (
    Array,
    Arrays,
    allocate,
    arrays_in,
    assign,
    join,
    merge_leading,
    n_bytes,
    take_rows,
    transform,
)
from zoo.buffers.frames import FrameStacks, frame_spec
from zoo.buffers.hindsight import EpisodeIndex, Hindsight
from zoo.core.free_memory import GIB, SHARE, free_bytes
from zoo.core.tensors import ContentFile
from zoo.envs.transition import Transition
from zoo.errors import ZooError, ZooWarning

logger = logging.getLogger(__name__)

Batch = dict[str, Arrays]

Transform = Callable[[Batch], Batch]
"""A change of sampled transitions, such as normalising; ``rewards`` are still (*shape, n_step)."""

POLICY_COLUMNS = ("observations", "action_masks", "states")
"""Columns that a policy is given, so that a transition has them before and after its step."""


def stored_once(specs: Mapping[str, Any], n_frames: int) -> dict[str, Any]:
    """Return the specs of columns with `optimize_memory_usage`: one frame instead of a stack."""
    spec = specs["observations"]
    return {**specs, "observations": frame_spec(spec, n_frames) or spec}


def replay_bytes(
    capacity: int, specs: Mapping[str, Any], *, optimize_memory_usage: bool = False, n_frames: int = 1
) -> int:
    """Return the size in bytes of a `ReplayBuffer` of these columns, without final observations."""
    copies = 1 if optimize_memory_usage else 2
    specs = stored_once(specs, n_frames) if optimize_memory_usage else specs
    row = sum(n_bytes(spec) * (copies if name in POLICY_COLUMNS else 1) for name, spec in specs.items()) + 6
    return capacity * row


def refuse_too_large_buffer(needed: int, buffer_size: int, *, once: bool) -> None:
    """Raise `ZooError` with the size that fits if a buffer needs more bytes than are free."""
    free = free_bytes()
    if free is None or needed <= SHARE * free:
        level = logging.INFO if needed > GIB else logging.DEBUG
        logger.log(level, "the replay buffer takes %.2f GiB", needed / GIB)
        return
    fitting = int(buffer_size * SHARE * free / needed)
    fitting -= fitting % 1000 if fitting > 1000 else 0
    raise ZooError(
        f"`algo.buffer_size={buffer_size}` needs {needed / GIB:.1f} GiB of memory, but"
        f" {free / GIB:.1f} GiB are free; algo.buffer_size={fitting} fits"
        f"{'' if once else ', and algo.optimize_memory_usage=true needs less'}"
    )


class UniformSampler:
    """Samples transitions uniformly with replacement."""

    def allocate(self, length: int, n_envs: int) -> None:
        """Allocate the sampler's own arrays, one entry per row of the rings."""

    def add(self, positions: Array, envs: Array) -> None:
        """Note that transitions were written to these places; the arrays change when it returns."""

    def sample(
        self, rng: np.random.Generator, shape: tuple[int, ...], buffer: ReplayBuffer, progress: float
    ) -> tuple[Array, Array, Array | None]:
        """Return positions, environments and importance weights (None: 1) at a ``progress`` of training."""
        sizes = buffer.sizes.tolist()
        numbers = rng.integers(0, sum(sizes), size=shape)
        if min(sizes) == max(sizes):
            ages, envs = np.divmod(numbers, len(sizes))
        else:
            ends = np.cumsum(buffer.sizes)
            envs = np.searchsorted(ends, numbers, side="right")
            ages = numbers - (ends - buffer.sizes)[envs]
        are_equal = len(set(buffer.heads.tolist())) == 1
        newest = (buffer.heads[0] if are_equal else buffer.heads.take(envs)) - 1
        return (newest - ages) % buffer.length, envs, None

    def update_priorities(self, td_errors: Array, rows: Array | slice) -> None:
        """Note the sizes of the errors of some rows (flat) of the last sample."""

    def state(self) -> dict[str, Any]:
        """Return all that the next samples depend on, beside the buffer."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` returned."""


class ReplayBuffer:
    """A ring of ``capacity // n_envs`` transitions, observed raw, for each of ``n_envs`` environments.

    ``specs`` name the columns, of which ``observations`` is one; the next observations, rewards and the two
    kinds of episode ends are added here. With ``optimize_memory_usage`` observations are stored once: the
    next one is the row behind, and only where an episode ended the final one is kept beside the ring. The
    oldest row of each environment is then given up to hold its newest observation. Of pictures that show
    their last ``n_frames`` only the newest one is stored, and the rows of as many are given up.

    A batch has the columns ``observations``, ``actions``, ``rewards``, ``terminated`` (float32),
    ``next_observations``, the masks where there are any, and ``weights`` where the sampler gives some.

    With ``n_step`` above 1 a transition goes that many steps ahead, or to the end of its episode or of what
    is stored: ``rewards`` are discounted sums, and ``discounts`` are those of the next state's value. A
    sample passes first through ``relabelling``, for which ``keeps_infos`` keeps the infos of the steps, then
    through ``transforms``, and is summed up last.
    """

    def __init__(
        self,
        capacity: int,
        n_envs: int,
        specs: Mapping[str, Any],
        *,
        optimize_memory_usage: bool = False,
        n_frames: int = 1,
        sampler: UniformSampler | None = None,
        n_step: int = 1,
        gamma: float = 0.99,
        relabelling: Hindsight | None = None,
        transforms: Sequence[Transform] = (),
        keeps_infos: bool = False,
    ) -> None:
        self.optimize_memory_usage = optimize_memory_usage
        stored = stored_once(specs, n_frames) if optimize_memory_usage else specs
        shows_stacks = stored["observations"] != specs["observations"]
        self.n_given_up = (n_frames if shows_stacks else 1) if optimize_memory_usage else 0
        """Rows of each ring, at its head, that hold no transition."""
        self.length = max(capacity // n_envs, self.n_given_up + 1)
        self._most_rows = self.length - self.n_given_up
        if n_step > self._most_rows:
            raise ZooError(
                f"`replay.n_step={n_step}` is longer than the buffer: `algo.buffer_size={capacity}` keeps"
                f" {self._most_rows} steps of each environment"
            )
        self.n_step, self.gamma = n_step, gamma
        self.n_envs = n_envs
        self.specs = dict(specs)
        self.sampler = sampler or UniformSampler()
        self.sampler.allocate(self.length, n_envs)
        self.relabelling = relabelling
        self.episodes = EpisodeIndex(self.length, n_envs) if relabelling is not None else None
        self._relabelled_rows = np.array([], np.int64)
        self.infos = np.full((self.length, n_envs), None, object) if keeps_infos else None
        """The info of each step (length, n_envs), dictionaries, where they are kept."""
        self.transforms = transforms
        self.policy_columns = [name for name in POLICY_COLUMNS if name in specs]
        leading = (self.length, n_envs)
        self.columns: dict[str, Arrays] = allocate(stored, leading)
        self.columns["rewards"] = np.zeros(leading, np.float32)
        self.columns |= {name: np.zeros(leading, np.bool_) for name in ("terminated", "dones")}
        if not optimize_memory_usage:
            self.columns |= {f"next_{name}": allocate(specs[name], leading) for name in self.policy_columns}
        # Views: columns are written in place, and never replaced.
        self._rows = {name: merge_leading(column) for name, column in self.columns.items()}
        column = self.columns["observations"]
        self._stacks = FrameStacks(column, specs["observations"]) if shows_stacks else None
        self._of_last_step = {"terminated", "dones", *(f"next_{name}" for name in self.policy_columns)}
        self._chunks = ReplayChunks(self.columns, self.length)
        self._final: dict[int, dict[str, Arrays]] = {}
        """With ``optimize_memory_usage``: the final observations of ended episodes, by row · n_envs + env."""
        self._envs = np.arange(n_envs)
        self.heads = np.zeros(n_envs, np.int64)
        """The row of each ring that is written next; the newest one stands before it."""
        self.sizes = np.zeros(n_envs, np.int64)
        """How many transitions each ring holds."""
        self._are_in_step = True
        """Whether heads and sizes of all rings are equal."""
        self._n_added = self._n_added_before = 0

    def __len__(self) -> int:
        return int(self.sizes.sum())

    def __repr__(self) -> str:
        most, envs = self._most_rows * self.n_envs, f"{self.n_envs} env{'s' * (self.n_envs != 1)}"
        return f"<{type(self).__name__}: {len(self):,} of {most:,} transitions, {envs}>"

    # -- storing ----------------------------------------------------------------------------------------

    def add(self, transition: Transition) -> None:
        """Store one step of all environments, except those that it only reset."""
        values = transition.stored()
        heads, envs = self.heads, transition.envs
        if len(envs) < self.n_envs:
            self._are_in_step = False
            heads = heads[envs]
            values = {name: transform(lambda array: array[envs], value) for name, value in values.items()}
        is_one_row = self._are_in_step and not self.optimize_memory_usage
        rows: Any = int(heads[0]) if is_one_row else (heads, envs)
        for name, column in self.columns.items():
            if self._stacks is None:
                assign(column, rows, values[name])
            else:
                self._write(name, rows, values[name])
        if self.infos is not None:
            infos = transition.step_infos()
            for head, env in zip(heads.tolist(), envs.tolist(), strict=True):
                self.infos[head, env] = infos[env]
        if self.optimize_memory_usage:
            following = {name: values[f"next_{name}"] for name in self.policy_columns}
            behind = (heads + 1) % self.length
            for name, column in following.items():
                self._write(name, (behind, envs), column)
            for place in (behind * self.n_envs + envs).tolist():
                self._final.pop(place, None)
            self._keep_final(heads, envs, following, values["dones"])
        self.sampler.add(heads, envs)
        if self.episodes is not None:
            self.episodes.add(heads, envs, values["dones"])
        if self._are_in_step:
            self.heads.fill((int(heads[0]) + 1) % self.length)
            self.sizes.fill(min(int(self.sizes[0]) + 1, self._most_rows))
        else:
            self.heads[envs] = (heads + 1) % self.length
            self.sizes[envs] = np.minimum(self.sizes[envs] + 1, self._most_rows)
        self._n_added += 1

    def cut(self, envs: Sequence[int] | None = None) -> None:
        """Mark the newest transition of these environments (None: all) as the last before a reset."""
        is_cut = self.sizes > 0
        if envs is not None:
            is_cut &= np.isin(self._envs, envs)
        heads, indices = self.heads[is_cut], self._envs[is_cut]
        rows = (heads - 1) % self.length
        if self.optimize_memory_usage:
            newest = {name: self._take(name, heads * self.n_envs + indices) for name in self.policy_columns}
            self._keep_final(rows, indices, newest, ~self.columns["dones"][rows, indices])
        self.columns["dones"][rows, indices] = True
        self._chunks.mark_changed(rows)
        if self.episodes is not None:
            self.episodes.end(rows, indices)

    def _write(self, name: str, places: Any, values: Arrays) -> None:
        if self._stacks is not None and name == "observations":
            rows, envs = places
            self._stacks.write(rows, envs, values)
        else:
            assign(self.columns[name], places, values)

    def _take(self, name: str, places: Array) -> Arrays:
        if self._stacks is not None and name == "observations":
            return self._stacks.take(places)
        return take_rows(self._rows[name], places)

    def _keep_final(self, rows: Array, envs: Array, final: dict[str, Arrays], dones: Array) -> None:
        for i in np.flatnonzero(dones).tolist():
            row = {name: transform(lambda array: array[i].copy(), final[name]) for name in final}  # noqa: B023
            self._final[int(rows[i]) * self.n_envs + int(envs[i])] = row

    # -- sampling ---------------------------------------------------------------------------------------

    def sample(self, rng: np.random.Generator, shape: tuple[int, ...], progress: float = 1.0) -> Batch:
        """Draw transitions: columns of shape (*shape, …), transformed. ``progress`` is that of training."""
        positions, envs, weights = self.sampler.sample(rng, shape, self, progress)
        windows = self._n_step_windows(positions, envs)
        batch = self._transitions(windows)
        if weights is not None:
            batch["weights"] = weights
        if self.relabelling is not None:
            windows, batch, self._relabelled_rows = self.relabelling.relabel(self, rng, windows, batch)
        for change in self.transforms:
            batch = change(batch)
        rewards = batch["rewards"]
        if self.n_step == 1:
            batch["rewards"] = rewards[..., 0]
        else:  # Σ γ^i·r_i over each window, and γ^length
            powers = self.gamma ** np.arange(rewards.shape[-1] + 1)
            is_part = np.arange(rewards.shape[-1]) < windows.lengths[..., None]
            batch["rewards"] = (np.where(is_part, rewards, 0.0) @ powers[:-1]).astype(np.float32)
            batch["discounts"] = powers.astype(np.float32)[windows.lengths]
        return batch

    def update_priorities(self, td_errors: Array) -> None:
        """Give the last sample the priorities of its errors, but where these are under another goal.

        Priorities are those of what was stored.
        """
        as_stored: Array | slice = slice(None)
        if self.relabelling is not None:
            as_stored = np.setdiff1d(np.arange(td_errors.size), self._relabelled_rows)
        self.sampler.update_priorities(td_errors, as_stored)

    def _n_step_windows(self, positions: Array, envs: Array) -> NStepWindows:
        """Return windows of ``n_step`` steps from ``positions``, or to the end of the episode or ring."""
        n = self.n_step
        if n == 1:
            return NStepWindows(envs, positions[..., None], np.ones(positions.shape, np.int64), positions)
        ages = (self.heads[envs] - 1 - positions) % self.length
        steps = (positions[..., None] + np.arange(n)) % self.length
        ends = self._rows["dones"].take(steps[..., :-1] * self.n_envs + envs[..., None])
        goes_on = ~ends & (np.arange(n - 1) < ages[..., None])
        lengths = 1 + np.logical_and.accumulate(goes_on, axis=-1).sum(-1)
        return NStepWindows(envs, steps, lengths, (positions + lengths - 1) % self.length)

    def _transitions(self, windows: NStepWindows) -> Batch:
        """Return the first observations and actions, the last outcome, and the rewards of all steps."""
        first = last = windows.first * self.n_envs + windows.envs
        steps = first[..., None]
        if self.n_step > 1:
            last = windows.last * self.n_envs + windows.envs
            steps = windows.steps * self.n_envs + windows.envs[..., None]
        batch = {
            name: self._take(name, last if name in self._of_last_step else first)
            for name in self._rows
            if name != "rewards" and (name != "dones" or self.optimize_memory_usage)
        }
        batch["rewards"] = take_rows(self._rows["rewards"], steps)
        if self.optimize_memory_usage:
            dones = batch.pop("dones")
            for name in self.policy_columns:
                batch[f"next_{name}"] = self._following(windows.last, windows.envs, dones, name)
        batch["terminated"] = batch["terminated"].astype(np.float32)
        return batch

    def next_observations(self, positions: Array, envs: Array, key: str) -> Array:
        """Return the part ``key`` of the observations after the steps at these places, (…) each."""
        if not self.optimize_memory_usage:
            return take_rows(self._rows["next_observations"][key], positions * self.n_envs + envs)
        return self._following(positions, envs, self.columns["dones"][positions, envs], "observations", key)

    def _following(
        self, positions: Array, envs: Array, dones: Array, name: str, key: str | None = None
    ) -> Arrays:
        """Return a column after these steps, where it is stored once: from the row behind, or a final one."""
        behind = (positions + 1) % self.length * self.n_envs + envs
        following = self._take(name, behind) if key is None else take_rows(self._rows[name][key], behind)
        if dones.any():
            places = (positions * self.n_envs + envs)[dones]
            assign(following, dones, self._final_rows(places.tolist(), name, key))
        return following

    def _final_rows(self, places: Sequence[int], name: str, key: str | None = None) -> Arrays:
        """Return a column, or the part ``key`` of it, of the final observations at these places."""
        rows = [self._final[place][name] for place in places]
        rows = rows if key is None else [row[key] for row in rows]
        return join([transform(lambda array: np.asarray(array)[None], row) for row in rows])

    # -- exact resume -----------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return all that is stored: views of the rows in use, in named chunks, and plain values."""
        if n_added := min(self._n_added - self._n_added_before, self.length):
            newest = 0 if self.optimize_memory_usage else 1  # the last observation stands in a row of its own
            self._chunks.mark_changed((self.heads - np.arange(newest, n_added + 1)[:, None]) % self.length)
            self._n_added_before = self._n_added
        used = int(self.sizes.max(initial=0))
        used = min(used + self.n_given_up, self.length) if used else 0
        places = sorted(self._final)
        return {
            "used": used,
            "heads": self.heads.copy(),
            "sizes": self.sizes.copy(),
            "chunks": self._chunks.state(used),
            "final_slots": np.array(places, np.int64),
            "final": {name: self._final_rows(places, name) for name in self.policy_columns} if places else {},
            "sampler": self.sampler.state(),
            **({} if self._stacks is None else {"stacks": self._stacks.state()}),
            **({} if self.infos is None else {"infos": pack_infos(self.infos[:used])}),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` returned. Raises `ZooError` for rings of another length."""
        used, heads, sizes = int(state["used"]), state["heads"], state["sizes"]
        if used > self.length or not ((heads == sizes) | (sizes == self._most_rows)).all():
            raise ZooError("the checkpoint's buffer is longer or shorter: is `algo.buffer_size` another?")
        self._chunks.load_state(state["chunks"], used)
        if self.infos is not None:
            infos = json.loads(state["infos"].tobytes(), object_hook=_from_json)
            self.infos[:used].reshape(-1)[:] = infos
        self._n_added_before = self._n_added
        self.heads, self.sizes = heads.astype(np.int64), sizes.astype(np.int64)
        self._are_in_step = all((values == values[0]).all() for values in (self.heads, self.sizes))
        self._final = {}
        places = state["final_slots"]
        for i, place in enumerate(places.tolist()):
            self._final[place] = transform(lambda array: array[i].copy(), dict(state["final"]))  # noqa: B023
        if self._stacks is not None:
            self._stacks.load_state(state["stacks"])
        self.sampler.load_state(state["sampler"])
        if self.episodes is not None:
            self.episodes.rebuild(self.columns["dones"], self.heads, self.sizes)


class NStepWindows(NamedTuple):
    """Some steps of one episode each, one after the other: positions in the ring of an environment.

    ``steps`` (*shape, n) is padded: only the first ``lengths`` (*shape) are valid, from ``first`` (*shape) to
    ``last`` (*shape).
    """

    envs: Array
    steps: Array
    lengths: Array
    last: Array

    @property
    def first(self) -> Array:
        """Where each window begins."""
        return self.steps[..., 0]


Buffer = TypeVar("Buffer", bound=ReplayBuffer)


def keep_or_discard_buffer(before: Buffer | None, n_envs: int, specs: Mapping[str, Any]) -> Buffer | None:
    """Return the buffer, with all episodes truncated, if it still fits; else warn of the loss."""
    if before is not None and before.n_envs == n_envs and before.specs == specs:
        before.cut()
        return before
    if before:
        why = "the action-mask shape changed"
        if before.n_envs != n_envs:
            why = f"it was of {before.n_envs} environments, not {n_envs}"
        lost = f"the {len(before):,} transitions in the replay buffer are lost: {why}"
        warnings.warn(lost, ZooWarning, stacklevel=5)
    return None


MOST_CHUNKS = 128
"""Chunks that a ring is cut into at most: where one row changed, its whole chunk is written again."""

SMALLEST_CHUNK = 2**20
"""Bytes of a chunk at least."""


class ReplayChunks:
    """Chunks of ``columns`` (length, …); checkpoints write only those that have changed.

    A chunk's name stands for one content for ever. So mark the rows that have changed before each `state`.
    """

    def __init__(self, columns: Mapping[str, Arrays], length: int) -> None:
        row_bytes = max(1, sum(array.nbytes for array in arrays_in(columns)) // length)
        self.columns = columns
        self.n_rows = max(-(-length // MOST_CHUNKS), -(-SMALLEST_CHUNK // row_bytes))
        self._names: list[str | None] = [None] * -(-length // self.n_rows)

    def mark_changed(self, rows: Array) -> None:
        """Forget the names of the chunks in which these rows stand."""
        has_changed = np.zeros(len(self._names), np.bool_)
        has_changed[rows // self.n_rows] = True
        for chunk in np.flatnonzero(has_changed).tolist():
            self._names[chunk] = None

    def state(self, used: int) -> dict[str, ContentFile]:
        """Return views of the first ``used`` rows, by the first row of each chunk."""
        parts = {}
        for chunk, first in enumerate(range(0, used, self.n_rows)):
            name = self._names[chunk] = self._names[chunk] or secrets.token_hex(16)
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
            for chunk, part in enumerate(state.values()):
                self._names[chunk] = part.name if isinstance(part, ContentFile) else None


def pack_infos(infos: Array) -> Array:
    """Return infos (n, n_envs) as JSON bytes. Values other than plain ones and arrays are left out."""
    text = json.dumps(infos.reshape(-1).tolist(), default=_to_json, skipkeys=True)
    return np.frombuffer(text.encode(), np.uint8)


_ARRAY = "array of"
"""The key of an array's type in JSON, beside its values."""


def _to_json(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biuf":
        return {_ARRAY: value.dtype.str, "shape": value.shape, "values": value.reshape(-1).tolist()}
    return dict(value) if isinstance(value, Mapping) else None


def _from_json(entry: dict[str, Any]) -> Any:
    if _ARRAY not in entry:
        return entry
    return np.array(entry["values"], np.dtype(entry[_ARRAY])).reshape(entry["shape"])[()]
