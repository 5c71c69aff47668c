"""Past transitions in a ring for each environment: stored, sampled, and transformed on the way out."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from zoo.buffers.arrays import (
    Arrays,
    ArraySpec,
    NotFinite,
    Transition,
    allocate,
    assign,
    find_not_finite,
    joined,
    merge_leading,
    n_bytes,
    take_rows,
    transform,
)
from zoo.buffers.rings import (
    Episodes,
    FinalObservations,
    ReplayChunks,
    Rings,
    UniformSampler,
    Windows,
    summed,
    windows_of,
)
from zoo.core.free_memory import GIB, SHARE, free_bytes
from zoo.errors import ZooError, ZooWarning

if TYPE_CHECKING:
    from zoo.buffers.hindsight import Hindsight

logger = logging.getLogger(__name__)

Array = np.ndarray
Batch = dict[str, Arrays]

Transform = Callable[[Batch], Batch]
"""What is done to sampled transitions, such as normalising; ``rewards`` are still (*shape, n_step)."""

OUTCOME = ("terminated", "ended")
"""Columns that say how a step ended."""

SHOWN = ("observations", "action_masks", "states")
"""Columns that a policy is given, so that a transition has them before and after its step."""

MOST_STEPS_AT_ONCE = 32
"""Steps that are put together before they are stored; more save nothing."""

MOST_BYTES_AT_ONCE = 64 * 2**10
"""What these take at most: they stay in a core's own cache."""


def ring_length(capacity: int, n_envs: int, *, once: bool) -> int:
    """Return how many rows each environment has; where observations are stored ``once``, at least two."""
    return max(capacity // n_envs, 2 if once else 1)


def replay_bytes(capacity: int, specs: Mapping[str, Any], *, optimize_memory_usage: bool = False) -> int:
    """Return what a `ReplayBuffer` of these columns takes, in bytes."""
    copies = 1 if optimize_memory_usage else 2
    row = sum(n_bytes(spec) * (copies if name in SHOWN else 1) for name, spec in specs.items()) + 6
    return capacity * row


def steps_at_once(specs: Mapping[str, Any], n_envs: int) -> int:
    """Return how many steps of these columns are put together before they are stored; 1 if large."""
    return max(1, min(MOST_STEPS_AT_ONCE, MOST_BYTES_AT_ONCE // replay_bytes(n_envs, specs)))


def refuse_too_large_buffer(needed: int, buffer_size: int) -> None:
    """Raise `ZooError` with the size that fits if a buffer needs more bytes than are free."""
    free = free_bytes()
    if free is None or needed <= SHARE * free:
        logger.log(
            logging.INFO if needed > GIB else logging.DEBUG, "the replay buffer takes %.2f GiB", needed / GIB
        )
        return
    fitting = int(buffer_size * SHARE * free / needed)
    fitting -= fitting % 1000 if fitting > 1000 else 0
    raise ZooError(
        f"`algo.buffer_size={buffer_size}` needs {needed / GIB:.1f} GiB of memory, but"
        f" {free / GIB:.1f} GiB are free; algo.buffer_size={fitting} fits"
    )


class ReplayBuffer:
    """A ring of ``capacity // n_envs`` transitions for each of ``n_envs`` environments.

    ``specs`` name the columns, of which ``observations`` is one; what was shown next, rewards and the two
    kinds of episode ends are added here. With ``optimize_memory_usage`` what was shown is stored once: the
    next observation is the row behind it, and only where an episode ended the final one is kept beside the
    ring, so that truncated episodes are bootstrapped exactly. The oldest row of each environment is then
    given up to hold its newest observation.

    Observations are kept raw. A batch has the columns ``observations``, ``actions``, ``rewards``,
    ``terminated`` (float32), ``next_observations``, the masks where there are any, and ``weights`` where the
    sampler gives some. Steps that merely reset an environment are never stored.

    With ``n_step`` above 1 a transition goes that many steps ahead, or to the end of its episode or of what
    is stored: ``rewards`` are discounted sums, and ``discounts`` are those of the next state's value. What is
    drawn passes first through ``relabelling``, then through ``transforms``, and is summed up last, so that
    single steps' rewards are normalised within their bounds.

    With ``keeps_infos`` there are the infos of the steps too, for the ``relabelling``.

    Raises `ZooError` if ``n_step`` is longer than a ring.
    """

    def __init__(
        self,
        capacity: int,
        n_envs: int,
        specs: Mapping[str, Any],
        *,
        optimize_memory_usage: bool = False,
        sampler: UniformSampler | None = None,
        n_step: int = 1,
        gamma: float = 0.99,
        relabelling: Hindsight | None = None,
        transforms: Sequence[Transform] = (),
        keeps_infos: bool = False,
    ) -> None:
        self.length = ring_length(capacity, n_envs, once=optimize_memory_usage)
        if n_step > self.length - optimize_memory_usage:
            raise ZooError(
                f"`replay.n_step={n_step}` is longer than the buffer: `algo.buffer_size={capacity}` keeps"
                f" {self.length - optimize_memory_usage} steps of each environment"
            )
        self.n_step, self.gamma = n_step, gamma
        self.n_envs = n_envs
        self.specs = dict(specs)
        self.optimize_memory_usage = optimize_memory_usage
        self.sampler = sampler or UniformSampler()
        self.relabelling = relabelling
        self.episodes = Episodes(self.length, n_envs) if relabelling is not None else None
        self._relabelled = np.array([], np.int64)
        self.infos = np.full((self.length, n_envs), None, object) if keeps_infos else None
        """The info of each step (length, n_envs), dictionaries, where they are kept."""
        self.transforms = transforms
        self.shown = [name for name in SHOWN if name in specs]
        self._come_last = {*OUTCOME, *(f"next_{name}" for name in self.shown)}
        leading = (self.length, n_envs)
        self.columns: dict[str, Arrays] = {name: allocate(spec, leading) for name, spec in specs.items()}
        self.columns["rewards"] = allocate(ArraySpec((), np.float32), leading)
        self.columns["terminated"] = allocate(ArraySpec((), np.bool_), leading)
        self.columns["ended"] = allocate(ArraySpec((), np.bool_), leading)
        if not optimize_memory_usage:
            self.columns |= {f"next_{name}": allocate(specs[name], leading) for name in self.shown}
        # Views: columns are written in place, and never replaced.
        self._rows = {name: merge_leading(column) for name, column in self.columns.items()}
        self._segments = ReplayChunks(self.columns, self.length)
        self._final: FinalObservations | None = None
        if optimize_memory_usage:
            self._final = FinalObservations(self.shown)
        is_plain = type(self.sampler) is UniformSampler and self._final is None and self.episodes is None
        self.steps_at_once = min(self.length, steps_at_once(specs, n_envs)) if is_plain else 1
        """How many steps `extend` had better be given: no more are stored at once."""
        self._envs = np.arange(n_envs)
        self._heads = np.zeros(n_envs, np.int64)
        self._sizes = np.zeros(n_envs, np.int64)
        self._are_in_step = True  # heads and sizes of all rings
        self.n_unchecked = 0
        """Steps added since `first_not_finite` found nothing."""
        self._n_added = self._n_added_before = 0
        self._bad_final: NotFinite | None = None

    def __len__(self) -> int:
        return int(self._sizes.sum())

    @property
    def heads(self) -> Array:
        """The row of each ring (n_envs,) that is written next; the newest one stands before it."""
        return self._heads

    @property
    def sizes(self) -> Array:
        """How many transitions each ring (n_envs,) holds."""
        return self._sizes

    # -- storing ----------------------------------------------------------------------------------------

    def extend(self, transitions: Sequence[Transition]) -> None:
        """Store steps of all environments in their order: at once where that is all there is to do."""
        n = len(transitions)
        at_once = self._are_in_step and 1 < n <= self.steps_at_once
        if not at_once or any(each.outcome.valid is not None for each in transitions):
            for transition in transitions:
                self.add(transition)
            return
        values = joined(transitions, self.columns)
        rows = (int(self._heads[0]) + np.arange(n)) % self.length
        try:
            self._write(rows, values)
        except KeyboardInterrupt:  # or rows of a full ring would be half those of a lap ago
            self._write(rows, values)
            self._move_on(n)
            raise
        self._move_on(n)

    def _write(self, rows: Any, values: Mapping[str, Arrays]) -> None:
        for name, column in self.columns.items():
            assign(column, rows, values[name])

    def add(self, transition: Transition) -> None:
        """Store one step of all environments, but for those that it merely reset."""
        outcome = transition.outcome
        values = transition.stored()
        heads, envs, valid = self._heads, self._envs, outcome.valid
        if valid is not None and not valid.all():
            self._are_in_step = False
            heads, envs = heads[valid], envs[valid]
            values = {name: transform(lambda array: array[valid], value) for name, value in values.items()}
        as_one = self._are_in_step and not self.optimize_memory_usage
        rows: Any = int(heads[0]) if as_one else (heads, envs)
        self._write(rows, values)
        if self.infos is not None:
            infos = outcome.own_infos()
            for head, env in zip(heads.tolist(), envs.tolist(), strict=True):
                self.infos[head, env] = infos[env]
        if self.optimize_memory_usage:
            following = {name: values[f"next_{name}"] for name in self.shown}
            self._keep_once(heads, envs, following, values["ended"])
        self.sampler.added(heads, envs)
        if self.episodes is not None:
            self.episodes.added(heads, envs, values["ended"])
        self._move_on(1, envs)

    def _move_on(self, n_steps: int, envs: Array | slice = slice(None)) -> None:
        """Note that so many rows of these rings were written."""
        if self._are_in_step:
            self._heads.fill((int(self._heads[0]) + n_steps) % self.length)
            self._sizes.fill(min(int(self._sizes[0]) + n_steps, self._most_rows))
        else:
            self._heads[envs] = (self._heads[envs] + n_steps) % self.length
            self._sizes[envs] = np.minimum(self._sizes[envs] + n_steps, self._most_rows)
        self.n_unchecked += n_steps
        self._n_added += n_steps

    def cut(self, envs: Sequence[int] | None = None) -> None:
        """Mark the newest transition of these environments (None: all) as the last before a reset."""
        written = self._sizes > 0
        if envs is not None:
            written &= np.isin(self._envs, envs)
        rows = (self._heads[written] - 1) % self.length, self._envs[written]
        if self.optimize_memory_usage:
            heads = self._heads[written], self._envs[written]
            newest = {
                name: transform(lambda array: array[heads].copy(), self.columns[name]) for name in self.shown
            }
            self._keep_final(rows, newest, ~self.columns["ended"][rows])
        self.columns["ended"][rows] = True
        self._segments.changed(rows[0])
        if self.episodes is not None:
            self.episodes.ended(*rows)

    def _keep_once(self, heads: Array, envs: Array, following: dict[str, Arrays], ended: Array) -> None:
        behind = (heads + 1) % self.length
        for name, column in following.items():
            assign(self.columns[name], (behind, envs), column)
        assert self._final is not None
        self._final.forget(behind * self.n_envs + envs)
        self._keep_final((heads, envs), following, ended)

    def _keep_final(self, rows: tuple[Array, Array], final: dict[str, Arrays], where: Array) -> None:
        if not where.any():
            return
        assert self._final is not None
        kept = {name: transform(lambda array: array[where], column) for name, column in final.items()}
        envs = rows[1][where]
        self._final.keep(rows[0][where] * self.n_envs + envs, kept)
        one_step = transform(lambda array: array[None], kept["observations"])
        found = find_not_finite({"next_observations": one_step})
        if found is not None:
            self._bad_final = found._replace(env=int(envs[found.env]))

    @property
    def _most_rows(self) -> int:
        return self.length - 1 if self.optimize_memory_usage else self.length

    def first_not_finite(self) -> NotFinite | None:
        """Return the first number that is NaN or infinite among what was added since the last call."""
        n = min(self.n_unchecked, self.length)
        rows = (self._heads - np.arange(n, 0, -1)[:, None]) % self.length, self._envs

        def added(array: Array) -> Array:
            return array[rows] if array.dtype.kind == "f" else array[:0]

        found = find_not_finite({name: transform(added, column) for name, column in self.columns.items()})
        found = found or self._bad_final
        if found is None:
            self.n_unchecked = 0
        return found

    # -- sampling ---------------------------------------------------------------------------------------

    def sample(self, rng: np.random.Generator, shape: tuple[int, ...], progress: float = 1.0) -> Batch:
        """Draw transitions: columns of shape (*shape, …), transformed. ``progress`` is that of training."""
        drawn = self.sampler.draw(rng, shape, Rings(self._heads, self._sizes, self.length), progress)
        windows = windows_of(
            *(drawn.positions, drawn.envs, self.n_step), *(self._heads, self.length, self.columns["ended"])
        )
        batch = self._transitions(windows)
        if drawn.weights is not None:
            batch["weights"] = drawn.weights
        if self.relabelling is not None:
            windows, batch, self._relabelled = self.relabelling.relabelled(self, rng, windows, batch)
        for change in self.transforms:
            batch = change(batch)
        if self.n_step == 1:
            batch["rewards"] = batch["rewards"][..., 0]
        else:
            batch["rewards"], batch["discounts"] = summed(batch["rewards"], windows.lengths, self.gamma)
        return batch

    def update_priorities(self, td_errors: Array) -> None:
        """Take note of the sizes of the errors of what `sample` gave last, in its shape.

        Those under another goal are errors of something else: priorities are those of what was stored.
        """
        if self.relabelling is None:
            self.sampler.update_priorities(td_errors)
        else:
            self.sampler.update_priorities(
                td_errors, np.setdiff1d(np.arange(td_errors.size), self._relabelled)
            )

    def _transitions(self, windows: Windows) -> Batch:
        """Return what was shown and done first, what came of it last, and the rewards of all steps."""
        first = last = windows.first * self.n_envs + windows.envs
        steps = first[..., None]
        if self.n_step > 1:
            last = windows.last * self.n_envs + windows.envs
            steps = windows.steps * self.n_envs + windows.envs[..., None]
        batch = {
            name: take_rows(column, last if name in self._come_last else first)
            for name, column in self._rows.items()
            if name != "rewards" and (name != "ended" or self.optimize_memory_usage)
        }
        batch["rewards"] = take_rows(self._rows["rewards"], steps)
        if self.optimize_memory_usage:
            ended = batch.pop("ended")
            for name in self.shown:
                batch[f"next_{name}"] = self._followed(windows.last, windows.envs, ended, name)
        batch["terminated"] = batch["terminated"].astype(np.float32)
        return batch

    def following(self, positions: Array, envs: Array, key: str) -> Array:
        """Return the part ``key`` of what was observed after the steps at these places, (…) each."""
        if not self.optimize_memory_usage:
            return take_rows(self._rows["next_observations"][key], positions * self.n_envs + envs)
        return self._followed(positions, envs, self.columns["ended"][positions, envs], "observations", key)

    def _followed(
        self, positions: Array, envs: Array, ended: Array, name: str, key: str | None = None
    ) -> Arrays:
        """Return what was shown next where it is stored once: in the row behind, or apart at an end."""
        column = self._rows[name] if key is None else self._rows[name][key]
        following = take_rows(column, (positions + 1) % self.length * self.n_envs + envs)
        if ended.any():
            assert self._final is not None
            places = (positions * self.n_envs + envs)[ended]
            assign(following, ended, self._final.at(places, name, key))
        return following

    # -- exact resume -----------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return all that is stored: views of the rows in use, and plain values.

        Rows that did not change since the last call stand in segments that have their names still.
        """
        if n_added := min(self._n_added - self._n_added_before, self.length):
            newest = 0 if self.optimize_memory_usage else 1  # what was shown last stands in a row of its own
            self._segments.changed((self._heads - np.arange(newest, n_added + 1)[:, None]) % self.length)
            self._n_added_before = self._n_added
        used = int(self._sizes.max(initial=0))
        if self.optimize_memory_usage and used:
            used += 1
        final = self._final
        rings = {"used": used, "heads": self._heads.copy(), "sizes": self._sizes.copy()}
        return {
            **rings,
            "chunks": self._segments.state(used),
            "final_slots": np.empty(0, np.int64) if final is None else final.places,
            "final": {} if final is None else final.all(),
            "sampler": self.sampler.state(),
            **({} if self.infos is None else {"infos": packed_infos(self.infos[:used])}),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` returned. Raises `ZooError` for rings of another length."""
        used, heads, sizes = int(state["used"]), state["heads"], state["sizes"]
        if used > self.length or not ((heads == sizes) | (sizes == self._most_rows)).all():
            raise ZooError("the checkpoint's buffer is longer or shorter: is `algo.buffer_size` another?")
        self._bad_final, self.n_unchecked = None, 0
        self._segments.load_state(state["chunks"], used)
        if self.infos is not None:
            self.infos[:used] = unpacked_infos(state["infos"], (used, self.n_envs))
        self._n_added_before = self._n_added
        self._heads, self._sizes = heads.astype(np.int64), sizes.astype(np.int64)
        self._are_in_step = all((each == each[0]).all() for each in (self._heads, self._sizes))
        if self._final is not None:
            self._final.load(state["final_slots"], state["final"])
        self.sampler.load_state(state["sampler"])
        if self.episodes is not None:
            self.episodes.rebuild(self.columns["ended"], self._heads, self._sizes)


class Storing:
    """Gives ``replay`` what is added in a block of ``with``: ``at_once`` steps at a time, and all by the end.

    With more than one, what is added has to stay as it is until the block's end. Nothing waits any longer
    when an episode ends.
    """

    def __init__(self, buffer: ReplayBuffer, at_once: int) -> None:
        self.buffer = buffer
        self.at_once = at_once
        self._waiting: list[Transition] = []

    def __enter__(self) -> Storing:
        return self

    def __exit__(self, *_: object) -> None:
        self._store()

    def add(self, transition: Transition) -> None:
        """Take one step of all environments."""
        self._waiting.append(transition)
        if len(self._waiting) >= self.at_once or transition.outcome.episodes:
            self._store()

    def _store(self) -> None:
        ready, self._waiting = self._waiting, []  # first: if interrupted, nothing is stored twice
        self.buffer.extend(ready)


Memory = TypeVar("Memory", bound=ReplayBuffer)


def reusable_buffer(before: Memory | None, n_envs: int, specs: Mapping[str, Any]) -> Memory | None:
    """Return the buffer, with all episodes cut, where it fits; otherwise warn of what is lost."""
    if before is None:
        return None
    fits = before.n_envs == n_envs and before.specs == specs
    if fits and before.first_not_finite() is None:
        before.cut()
        return before
    if before:
        why = (
            "some of their numbers are not finite"
            if fits
            else "the environments mask actions otherwise"
            if before.n_envs == n_envs
            else f"it was of {before.n_envs} environments, not {n_envs}"
        )
        lost = f"the {len(before):,} transitions in the replay buffer are lost: {why}"
        warnings.warn(lost, ZooWarning, stacklevel=5)
    return None


def packed_infos(infos: Array) -> Array:
    """Return infos (n, n_envs) as the bytes of a JSON text; what is no plain value or array is left out."""
    text = json.dumps(infos.reshape(-1).tolist(), default=_plain, skipkeys=True)
    return np.frombuffer(text.encode(), np.uint8)


def unpacked_infos(packed: Array, shape: tuple[int, int]) -> Array:
    """Return the infos of which `packed_infos` made these bytes."""
    infos = np.full(shape, None, object)
    infos.reshape(-1)[:] = json.loads(packed.tobytes(), object_hook=_as_it_was)
    return infos


_ARRAY = "array of"
"""The key of an array's type in JSON, beside its values."""


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biuf":
        return {_ARRAY: value.dtype.str, "shape": value.shape, "values": value.reshape(-1).tolist()}
    return dict(value) if isinstance(value, Mapping) else None


def _as_it_was(found: dict[str, Any]) -> Any:
    if _ARRAY not in found:
        return found
    return np.array(found["values"], np.dtype(found[_ARRAY])).reshape(found["shape"])[()]
