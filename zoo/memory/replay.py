"""Past transitions in a ring for each environment: stored, sampled, and transformed on the way out."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from zoo.errors import ZooError
from zoo.memory.columns import (
    Column,
    ColumnSpec,
    NotFinite,
    allocate,
    assign,
    find_not_finite,
    join,
    n_bytes,
    transform,
)
from zoo.memory.experience import Experience
from zoo.memory.n_step import Windows, summed, windows_of
from zoo.memory.sampling import Sampler, UniformSampler

Array = np.ndarray
Batch = dict[str, Column]

Transform = Callable[[Batch], Batch]
"""What is done to sampled transitions, such as normalising; ``rewards`` are still (*shape, n_step)."""

OUTCOME = ("terminated", "ended")
"""Columns that say how a step ended."""

SHOWN = ("observations", "action_masks")
"""Columns that a policy is shown, so that a transition has them before and after its step."""


class Relabelling(Protocol):
    """Gives drawn transitions other goals."""

    def added(self, positions: Array, envs: Array) -> None:
        """Take note that transitions were written there."""
        ...

    def relabelled(
        self, memory: ReplayMemory, rng: np.random.Generator, windows: Windows, batch: Batch
    ) -> Batch:
        """Return the batch with one goal for all steps of a window, and their ``rewards`` (*shape, n_step).

        Nothing is normalised yet; what the steps between first and last showed stands in ``memory.columns``.
        """
        ...


class ReplayMemory:
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

    Raises `ZooError` if ``n_step`` is longer than a ring.
    """

    def __init__(
        self,
        capacity: int,
        n_envs: int,
        specs: Mapping[str, Any],
        *,
        optimize_memory_usage: bool = False,
        sampler: Sampler | None = None,
        n_step: int = 1,
        gamma: float = 0.99,
        relabelling: Relabelling | None = None,
        transforms: Sequence[Transform] = (),
    ) -> None:
        self.length = ring_length(capacity, n_envs, once=optimize_memory_usage)
        if n_step > self.length - optimize_memory_usage:
            raise ZooError(
                f"`memory.n_step={n_step}` is longer than the memory: `algo.buffer_size={capacity}` keeps"
                f" {self.length - optimize_memory_usage} steps of each environment"
            )
        self.n_step, self.gamma = n_step, gamma
        self.n_envs = n_envs
        self.specs = dict(specs)
        self.optimize_memory_usage = optimize_memory_usage
        self.sampler: Sampler = sampler or UniformSampler()
        self.relabelling = relabelling
        self.transforms = transforms
        self.shown = [name for name in SHOWN if name in specs]
        leading = (self.length, n_envs)
        self.columns: dict[str, Column] = {name: allocate(spec, leading) for name, spec in specs.items()}
        self.columns["rewards"] = allocate(ColumnSpec((), np.float32), leading)
        self.columns["terminated"] = allocate(ColumnSpec((), np.bool_), leading)
        self.columns["ended"] = allocate(ColumnSpec((), np.bool_), leading)
        if not optimize_memory_usage:
            self.columns |= {f"next_{name}": allocate(specs[name], leading) for name in self.shown}
        self._final: dict[int, dict[str, Column]] = {}
        self._envs = np.arange(n_envs)
        self._heads = np.zeros(n_envs, np.int64)
        self._sizes = np.zeros(n_envs, np.int64)
        self._heads_are_equal = True
        self.n_unchecked = 0
        """Steps added since `first_not_finite` found nothing."""
        self._n_added = 0
        self._bad_final: tuple[int, NotFinite] | None = None

    def __len__(self) -> int:
        return int(self._sizes.sum())

    # -- storing ----------------------------------------------------------------------------------------

    def add(self, experience: Experience) -> None:
        """Store one step of all environments, but for those that it merely reset."""
        outcome = experience.outcome
        values = {
            **experience.columns,
            **experience.following(),
            "observations": experience.observations,
            "rewards": outcome.rewards,
            "terminated": outcome.terminated,
            "ended": experience.ended,
        }
        rows: tuple[Any, Any] = self._heads, self._envs
        if self._heads_are_equal and not self.optimize_memory_usage:
            rows = int(self._heads[0]), slice(None)
        valid = outcome.valid
        if valid is not None and not valid.all():
            self._heads_are_equal = False
            rows = self._heads[valid], self._envs[valid]
            values = {name: transform(lambda array: array[valid], value) for name, value in values.items()}
        for name, column in self.columns.items():
            assign(column, rows, values[name])
        behind = (rows[0] + 1) % self.length
        if self.optimize_memory_usage:
            following = {name: values[f"next_{name}"] for name in self.shown}
            self._keep_once(rows, behind, following, values["ended"])
        written = self._heads[rows[1]].copy(), self._envs[rows[1]]
        self._heads[rows[1]] = behind
        self._sizes[rows[1]] = np.minimum(self._sizes[rows[1]] + 1, self._most_rows)
        self.sampler.added(*written)
        if self.relabelling is not None:
            self.relabelling.added(*written)
        self.n_unchecked += 1
        self._n_added += 1

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

    def _keep_once(
        self, rows: tuple[Array, Array], behind: Array, following: dict[str, Column], ended: Array
    ) -> None:
        for name, column in following.items():
            assign(self.columns[name], (behind, rows[1]), column)
        for slot in behind * self.n_envs + rows[1]:
            self._final.pop(int(slot), None)
        self._keep_final(rows, following, ended)

    def _keep_final(self, rows: tuple[Array, Array], final: dict[str, Column], where: Array) -> None:
        kept = np.flatnonzero(where)
        slots = rows[0][kept] * self.n_envs + rows[1][kept]
        for i, slot in zip(kept.tolist(), slots.tolist(), strict=True):
            row = operator.itemgetter(i)
            self._final[slot] = {
                name: transform(np.copy, transform(row, column)) for name, column in final.items()
            }
            self._look_at_final(self._final[slot]["observations"], int(rows[1][i]))

    def _look_at_final(self, observation: Column, env: int) -> None:
        """Note the first final observation that is not finite: it stands in no row of the ring."""
        if self._bad_final is None:
            alone = transform(lambda array: np.asarray(array)[None, None], observation)
            found = find_not_finite({"next_observations": alone})
            if found is not None:
                self._bad_final = self._n_added + 1, found._replace(env=env)

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
        if self._bad_final is not None:
            at, final = self._bad_final
            final = final._replace(steps_ago=self._n_added - at)
            found = final if found is None or final.steps_ago > found.steps_ago else found
        if found is None:
            self.n_unchecked = 0
        return found

    # -- sampling ---------------------------------------------------------------------------------------

    def sample(self, rng: np.random.Generator, shape: tuple[int, ...], progress: float = 1.0) -> Batch:
        """Draw transitions: columns of shape (*shape, …), transformed. ``progress`` is that of training."""
        drawn = self.sampler.draw(rng, shape, self._heads, self._sizes, self.length, progress)
        windows = windows_of(
            *(drawn.positions, drawn.envs, self.n_step),
            *(self._heads, self.length, self.columns["ended"]),
        )
        batch = self._transitions(windows)
        if drawn.weights is not None:
            batch["weights"] = drawn.weights
        if self.relabelling is not None:
            batch = self.relabelling.relabelled(self, rng, windows, batch)
        for change in self.transforms:
            batch = change(batch)
        if self.n_step == 1:
            return {**batch, "rewards": batch["rewards"][..., 0]}
        rewards, discounts = summed(batch["rewards"], windows.lengths, self.gamma)
        return {**batch, "rewards": rewards, "discounts": discounts}

    def learned(self, td_errors: Array) -> None:
        """Take note of the sizes of the errors of what `sample` gave last, in its shape."""
        self.sampler.learned(td_errors)

    def _transitions(self, windows: Windows) -> Batch:
        """Return what was shown and done first, what came of it last, and the rewards of all steps."""
        first, last = (at * self.n_envs + windows.envs for at in (windows.first, windows.last))
        batch = {
            name: self._gathered(column, last if name in OUTCOME or name.startswith("next_") else first)
            for name, column in self.columns.items()
            if name != "rewards"
        }
        steps = windows.steps * self.n_envs + windows.envs[..., None]
        batch["rewards"] = self._gathered(self.columns["rewards"], steps)
        ended = batch.pop("ended")
        if self.optimize_memory_usage:
            behind = (windows.last + 1) % self.length * self.n_envs + windows.envs
            for name in self.shown:
                following = self._gathered(self.columns[name], behind)
                for index in zip(*np.nonzero(ended), strict=True):
                    assign(following, index, self._final[int(last[index])][name])
                batch[f"next_{name}"] = following
        batch["terminated"] = batch["terminated"].astype(np.float32)
        return batch

    def _gathered(self, column: Column, flat: Array) -> Column:
        return transform(lambda array: array.reshape(-1, *array.shape[2:]).take(flat, axis=0), column)

    # -- exact resume -----------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return all that is stored: views of the columns (only rows in use), and plain values."""
        used = self.length if self.optimize_memory_usage else int(self._sizes.max(initial=0))
        columns = {name: transform(lambda array: array[:used], part) for name, part in self.columns.items()}
        slots = sorted(self._final)
        final = {
            name: join([transform(lambda array: array[None], self._final[slot][name]) for slot in slots])
            for name in (self.shown if slots else ())
        }
        rings = {"used": used, "heads": self._heads.copy(), "sizes": self._sizes.copy()}
        kept = {"columns": columns, "final_slots": np.array(slots, np.int64), "final": final}
        return {**rings, **kept, "sampler": self.sampler.state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` returned."""
        for name, column in self.columns.items():
            assign(column, slice(0, int(state["used"])), state["columns"][name])
        self._heads, self._sizes = state["heads"].copy(), state["sizes"].copy()
        self._heads_are_equal = bool((self._heads == self._heads[0]).all())
        self._final = {}
        for row, slot in enumerate(state["final_slots"].tolist()):
            entry = operator.itemgetter(row)
            self._final[slot] = {name: transform(entry, state["final"][name]) for name in self.shown}
        self.sampler.load_state(state["sampler"])


def ring_length(capacity: int, n_envs: int, *, once: bool) -> int:
    """Return how many rows each environment has; where observations are stored ``once``, at least two."""
    return max(capacity // n_envs, 2 if once else 1)


def replay_bytes(capacity: int, specs: Mapping[str, Any], *, optimize_memory_usage: bool = False) -> int:
    """Return what a `ReplayMemory` of these columns takes, in bytes."""
    copies = 1 if optimize_memory_usage else 2
    row = sum(n_bytes(spec) * (copies if name in SHOWN else 1) for name, spec in specs.items())
    return capacity * (row + 6)
