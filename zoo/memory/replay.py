"""Past transitions in a ring for each environment, sampled uniformly by off-policy algorithms."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import numpy as np

from zoo.memory.columns import Column, ColumnSpec, allocate, assign, n_bytes, named_arrays, transform

Array = np.ndarray


class ReplayMemory:
    """A ring of ``capacity // n_envs`` transitions for each of ``n_envs`` environments.

    ``specs`` name the columns, of which ``observations`` is one; next observations, rewards and the two
    kinds of episode ends are added here. With ``optimize_memory_usage`` an observation is stored once: the
    next one is the row behind it, and only where an episode ended the final observation is kept beside the
    ring, so that truncated episodes are bootstrapped exactly. The oldest row of each environment is then
    given up to hold its newest observation.
    """

    def __init__(
        self,
        capacity: int,
        n_envs: int,
        specs: Mapping[str, Any],
        *,
        optimize_memory_usage: bool = False,
    ) -> None:
        self.length = max(capacity // n_envs, 2 if optimize_memory_usage else 1)
        self.n_envs = n_envs
        self.optimize_memory_usage = optimize_memory_usage
        leading = (self.length, n_envs)
        self.columns: dict[str, Column] = {name: allocate(spec, leading) for name, spec in specs.items()}
        self.columns["rewards"] = allocate(ColumnSpec((), np.float32), leading)
        self.columns["terminated"] = allocate(ColumnSpec((), np.bool_), leading)
        self.columns["ended"] = allocate(ColumnSpec((), np.bool_), leading)
        if not optimize_memory_usage:
            self.columns["next_observations"] = allocate(specs["observations"], leading)
        self._final_observations: dict[int, Column] = {}
        self._envs = np.arange(n_envs)
        self._heads = np.zeros(n_envs, np.int64)
        self._sizes = np.zeros(n_envs, np.int64)
        self._heads_are_equal = True

    def __len__(self) -> int:
        return int(self._sizes.sum())

    def add(
        self,
        values: Mapping[str, Column],
        next_observations: Column,
        rewards: Array,
        terminated: Array,
        ended: Array,
        valid: Array | None = None,
    ) -> None:
        """Store one step of all environments.

        ``next_observations`` are what the actions led to: the final observation where the episode ended.
        Environments where ``valid`` is False merely reset and are left out.
        """
        rows: tuple[Any, Any] = self._heads, self._envs
        if self._heads_are_equal and not self.optimize_memory_usage:
            rows = int(self._heads[0]), slice(None)
        if valid is not None and not valid.all():
            self._heads_are_equal = False
            rows = self._heads[valid], self._envs[valid]
            values = {name: transform(lambda array: array[valid], value) for name, value in values.items()}
            next_observations = transform(lambda array: array[valid], next_observations)
            rewards, terminated, ended = rewards[valid], terminated[valid], ended[valid]
        for name, value in values.items():
            assign(self.columns[name], rows, value)
        columns = self.columns
        columns["rewards"][rows] = rewards
        columns["terminated"][rows] = terminated
        columns["ended"][rows] = ended
        following = (rows[0] + 1) % self.length
        if self.optimize_memory_usage:
            self._keep_once(rows, following, next_observations, ended)
        else:
            assign(columns["next_observations"], rows, next_observations)
        self._heads[rows[1]] = following
        self._sizes[rows[1]] = np.minimum(self._sizes[rows[1]] + 1, self._most_rows)

    def cut(self) -> None:
        """Mark the newest transition of each environment as the last before a reset from outside."""
        written = self._sizes > 0
        rows = (self._heads[written] - 1) % self.length, self._envs[written]
        if self.optimize_memory_usage:
            heads = self._heads[written], self._envs[written]
            newest = transform(lambda array: array[heads].copy(), self.columns["observations"])
            open_episodes = ~self.columns["ended"][rows]
            self._keep_final(rows, newest, open_episodes)
        self.columns["ended"][rows] = True

    def sample(self, rng: np.random.Generator, shape: tuple[int, ...]) -> dict[str, Column]:
        """Draw transitions uniformly, with replacement: columns of shape (*shape, …)."""
        positions, envs = self._draw(rng, shape)
        flat = positions * self.n_envs + envs

        def gather(array: Array) -> Array:
            return array.reshape(-1, *array.shape[2:]).take(flat, axis=0)

        batch = {name: transform(gather, column) for name, column in self.columns.items()}
        if self.optimize_memory_usage:
            flat_next = (positions + 1) % self.length * self.n_envs + envs

            def gather_next(array: Array) -> Array:
                return array.reshape(-1, *array.shape[2:]).take(flat_next, axis=0)

            batch["next_observations"] = transform(gather_next, self.columns["observations"])
            for index in zip(*np.nonzero(batch["ended"]), strict=True):
                assign(batch["next_observations"], index, self._final_observations[int(flat[index])])
        return batch

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Return all that is stored, as arrays (only rows in use) and plain values."""
        used = self.length if self.optimize_memory_usage else int(self._sizes.max(initial=0))
        arrays = {name: array[:used] for name, array in named_arrays(self.columns).items()}
        arrays["heads"], arrays["sizes"] = self._heads, self._sizes
        slots = sorted(self._final_observations)
        if slots:
            arrays["final_slots"] = np.array(slots)
            kept = [self._final_observations[slot] for slot in slots]
            final = (
                {key: np.stack([part[key] for part in kept]) for key in kept[0]}
                if isinstance(kept[0], dict)
                else np.stack(kept)
            )
            arrays.update(named_arrays({"final_observations": final}))
        return arrays, {"used": used}

    def load_state(self, arrays: Mapping[str, Array], values: Mapping[str, Any]) -> None:
        """Take over what `state` returned."""
        used = int(values["used"])
        for name, array in named_arrays(self.columns).items():
            array[:used] = arrays[name]
        self._heads, self._sizes = arrays["heads"].copy(), arrays["sizes"].copy()
        self._heads_are_equal = bool((self._heads == self._heads[0]).all())
        self._final_observations = {}
        for row, slot in enumerate(arrays.get("final_slots", ())):
            observations = self.columns["observations"]
            self._final_observations[int(slot)] = (
                {key: arrays[f"final_observations/{key}"][row] for key in observations}
                if isinstance(observations, dict)
                else arrays["final_observations"][row]
            )

    @property
    def _most_rows(self) -> int:
        return self.length - 1 if self.optimize_memory_usage else self.length

    def _draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[Array, Array]:
        """Return positions in the ring and environment indices; ages count back from the newest row."""
        numbers = rng.integers(0, len(self), size=shape)
        if (self._sizes == self._sizes[0]).all():
            ages, envs = np.divmod(numbers, self.n_envs)
        else:
            ends = np.cumsum(self._sizes)
            envs = np.searchsorted(ends, numbers, side="right")
            ages = numbers - (ends - self._sizes)[envs]
        return (self._heads[envs] - 1 - ages) % self.length, envs

    def _keep_once(
        self, rows: tuple[Array, Array], following: Array, next_observations: Column, ended: Array
    ) -> None:
        assign(self.columns["observations"], (following, rows[1]), next_observations)
        for slot in following * self.n_envs + rows[1]:
            self._final_observations.pop(int(slot), None)
        self._keep_final(rows, next_observations, ended)

    def _keep_final(self, rows: tuple[Array, Array], observations: Column, where: Array) -> None:
        kept = np.flatnonzero(where)
        slots = rows[0][kept] * self.n_envs + rows[1][kept]
        for i, slot in zip(kept.tolist(), slots.tolist(), strict=True):
            row = transform(operator.itemgetter(i), observations)
            self._final_observations[slot] = transform(np.copy, row)


def replay_bytes(capacity: int, specs: Mapping[str, Any], *, optimize_memory_usage: bool = False) -> int:
    """Return what a `ReplayMemory` of these columns takes, in bytes."""
    copies = 1 if optimize_memory_usage else 2
    others = sum(n_bytes(spec) for name, spec in specs.items() if name != "observations")
    return capacity * (copies * n_bytes(specs["observations"]) + others + 6)
