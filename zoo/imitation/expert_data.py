"""Expert data: whole episodes of an expert, to imitate."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from gymnasium import spaces

from zoo.buffers.arrays import Arrays, transform
from zoo.core.printing import decimal, one_line
from zoo.envs.spaces import (
    Space,
    choice_sizes,
    describe,
    interfaces_differ,
    leaf_spaces,
    mask_size,
)
from zoo.errors import ZooError, ZooWarning

Array = np.ndarray


@dataclass(frozen=True)
class ExpertData:
    """Whole episodes, one after another; arrays have a row a step, (n_steps, …), or an episode.

    ``observations`` are raw: never normalised. ``actions`` are those that the environment was given; those of
    a Tuple or Dict space are a dictionary of arrays, by the paths of `zoo.envs.spaces`. None is
    unknown. Raises `ZooError` for what does not fit together.
    """

    observation_space: Space
    action_space: Space
    observations: Arrays
    actions: Arrays
    rewards: Array
    lengths: Array
    """Steps of each episode."""
    returns: Array
    """Sum of each episode's rewards."""
    terminated: Array | None = None
    """Whether each episode ended by itself, not by a time limit."""
    successes: Array | None = None
    """Whether each episode reached its goal."""
    action_masks: Array | None = None
    """Which actions were valid, (n_steps, mask_size)."""
    card: dict[str, Any] = field(default_factory=dict)
    """``env``, ``source`` and whatever else was written down, as JSON has it."""

    def __post_init__(self) -> None:
        problem = problem_of(self)
        if problem is not None:
            raise ZooError(f"expert data that can't be right: {problem}")

    @property
    def n_steps(self) -> int:
        return len(self.rewards)

    @property
    def n_episodes(self) -> int:
        return len(self.lengths)

    @property
    def starts(self) -> Array:
        """The first step of each episode."""
        return np.cumsum(self.lengths) - self.lengths

    @property
    def episode_starts(self) -> Array:
        """Whether each step is the first of its episode."""
        starts = np.zeros(self.n_steps, np.bool_)
        starts[self.starts] = True
        return starts

    def steps_of(self, episodes: Array) -> Array:
        """Return the numbers of all steps of these episodes."""
        starts = self.starts
        return np.concatenate(
            [np.arange(starts[i], starts[i] + self.lengths[i]) for i in episodes] or [np.zeros(0, np.int64)]
        )

    def only(self, episodes: Array) -> ExpertData:
        """Return these episodes (numbers, in the order that is wanted)."""
        episodes = np.asarray(episodes, np.int64)
        steps = self.steps_of(episodes)
        return replace(
            self,
            observations=transform(lambda array: array[steps], self.observations),
            actions=transform(lambda array: array[steps], self.actions),
            rewards=self.rewards[steps],
            lengths=self.lengths[episodes],
            returns=self.returns[episodes],
            terminated=None if self.terminated is None else self.terminated[episodes],
            successes=None if self.successes is None else self.successes[episodes],
            action_masks=None if self.action_masks is None else self.action_masks[steps],
        )

    def filtered(
        self, *, min_return: float | None = None, successes_only: bool = False, n_episodes: int | None = None
    ) -> ExpertData:
        """Return the episodes that are good enough, the first ``n_episodes`` of them.

        Raises `ZooError` if there are none, or it is unknown which succeeded; `ZooWarning` warns of fewer
        than ``n_episodes``.
        """
        keeps = np.ones(self.n_episodes, np.bool_)
        if successes_only:
            if self.successes is None:
                raise ZooError("successes_only: the expert data does not say which episodes succeeded")
            keeps &= self.successes
        if min_return is not None:
            keeps &= self.returns >= min_return
        if not keeps.any():
            raise ZooError(nothing_left(self.returns, self.successes, min_return, successes_only))
        if n_episodes is not None and keeps.sum() < n_episodes:
            warnings.warn(too_few(self.n_episodes, int(keeps.sum()), n_episodes), ZooWarning, stacklevel=2)
        return self if keeps.all() and n_episodes is None else self.only(np.flatnonzero(keeps)[:n_episodes])

    def check_spaces(
        self, observation_space: Space, action_space: Space, name: str = "the expert data"
    ) -> None:
        """Raise `ZooError`, with what differs, for an environment of other spaces."""
        mine = self.observation_space, self.action_space
        difference = interfaces_differ(mine, (observation_space, action_space))
        if difference is not None:
            raise ZooError(f"the {difference[0]} of {name} and the environment's differ: {difference[1]}")


def nothing_left(
    returns: Array, successes: Array | None, min_return: float | None, successes_only: bool
) -> str:
    """Return the message for episodes of which none is good enough."""
    found = f"{len(returns):,} episodes, the best with a return of {returns.max():g}"
    if successes_only and successes is not None and not successes.any():
        return f"successes_only: the expert never succeeds ({found})"
    asked = [] if min_return is None else [f"min_return={min_return:g}"]
    asked += ["successes_only"] if successes_only else []
    return f"{' and '.join(asked)} leaves nothing of {found}"


def too_few(n_episodes: int, n_good: int, n_wanted: int) -> str:
    """Return the message for fewer good episodes than are wanted."""
    if n_good == n_episodes:
        return f"the expert data have {n_episodes:,} episodes; {n_wanted:,} were wanted"
    return f"of {n_episodes:,} episodes only {n_good:,} were good enough; {n_wanted:,} were wanted"


def episode_lengths(episode_starts: Array) -> Array:
    """Return the lengths of episodes that start where it is true. Raises `ValueError` for the first step."""
    if not len(episode_starts):
        return np.zeros(0, np.int64)
    if not episode_starts[0]:
        raise ValueError("its first step is not the start of an episode")
    starts = np.flatnonzero(episode_starts)
    return np.diff(np.append(starts, len(episode_starts))).astype(np.int64)


# -- what can't be right ----------------------------------------------------------------------------------


def problem_of(data: ExpertData) -> str | None:
    """Return what does not fit together, in one line, or None.

    Numbers (Box) that were seen may lie outside of their bounds, as those of many environments do.
    """
    n_steps, n_episodes = data.n_steps, data.n_episodes
    if not n_steps or not n_episodes:
        return "it is empty"
    if data.lengths.min() < 1 or data.lengths.sum() != n_steps:
        return f"its episodes have {data.lengths.sum():,} steps together, but there are {n_steps:,} rewards"
    shapes: dict[str, tuple[int | None, ...]] = {
        "rewards": (n_steps,),
        **dict.fromkeys(("returns", "terminated", "successes"), (n_episodes,)),
        "action_masks": (n_steps, mask_size(data.action_space)),
    }
    for name, shape in shapes.items():
        values = getattr(data, name)
        if values is not None and values.shape != shape:
            return f"{name} of shape {values.shape}, expected {shape}"
    if not np.isfinite(data.rewards).all() or not np.isfinite(data.returns).all():
        return "its rewards are not finite"
    seen = data.observation_space
    observed = dict(seen.spaces) if isinstance(seen, spaces.Dict) else {"": seen}
    for what, parts, column in (
        ("observation", observed, data.observations),
        ("action", dict(leaf_spaces(data.action_space)), data.actions),
    ):
        arrays = column if isinstance(column, Mapping) else {"": column}
        if arrays.keys() != parts.keys():
            return f"its {what}s have the parts {sorted(arrays)} instead of {sorted(parts)}"
        for key, part in parts.items():
            problem = _array_problem(
                f"{what}s, {key}" if key else f"{what}s", what, part, arrays[key], n_steps
            )
            if problem is not None:
                return problem
    if data.action_masks is not None:
        forbidden = forbidden_actions(data.action_space, data.actions, data.action_masks)
        if forbidden.any():
            return f"the mask at step {int(forbidden.argmax()):,} forbids the expert's own action"
    return None


def _array_problem(name: str, what: str, space: Space, array: Array, n_steps: int) -> str | None:
    expected = (n_steps, *(space.shape or ()))
    if array.shape != expected:
        return f"{name} of shape {array.shape}, expected {expected}: {describe(space)}"
    if array.dtype != space.dtype:
        return f"{name} of type {array.dtype}, expected {space.dtype}"
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        step = int((~np.isfinite(array)).reshape(len(array), -1).any(1).argmax())
        return f"{name} at step {step:,} are not finite"
    if what == "observation" and isinstance(space, spaces.Box):
        return None
    outside = first_outside(space, array)
    if outside is None:
        return None
    return f"{name}: {array[outside].tolist()} at step {outside:,} is no {what} of {describe(space)}"


def first_outside(space: Space, column: Array) -> int | None:
    """Return the first row that is not in the range of the space (NaN never is), None if there is none."""
    low, high = _range(space)
    outside = ~((column >= low) & (column <= high))
    return int(np.argwhere(outside)[0, 0]) if outside.any() else None


def _range(space: Any) -> tuple[Any, Any]:
    if isinstance(space, spaces.Discrete):
        return int(space.start), int(space.start + space.n - 1)
    if isinstance(space, spaces.MultiDiscrete):
        return space.start, space.start + space.nvec - 1
    if isinstance(space, spaces.MultiBinary):
        return 0, 1
    return space.low, space.high


def forbidden_actions(space: Space, actions: Arrays, masks: Array) -> Array:
    """Return which actions (n, …) their masks (n, mask_size) forbid; those of parts are by their paths."""
    chosen = []
    for path, part in leaf_spaces(space):
        if choice_sizes(part):
            column = actions[path] if isinstance(actions, Mapping) else actions
            counted = column.astype(np.int64) - getattr(part, "start", 0)
            chosen.append(counted.reshape(len(masks), -1))
    sizes = choice_sizes(space)
    starts = np.cumsum(sizes) - sizes
    allowed = np.take_along_axis(masks, starts + np.concatenate(chosen, axis=1), axis=1)
    return np.logical_not(allowed.all(axis=1))


# -- arrays of others in the types that spaces have -------------------------------------------------------


def in_shape_of(space: Space, array: Array, name: str) -> Array:
    """Return an array (n, …) of values in the space's shape, if at most dimensions of one entry differ.

    Raises `ZooError` for any other shape: that of a transposed image, or of rows laid end to end.
    """
    shape = tuple(space.shape or ())
    if [size for size in array.shape[1:] if size != 1] != [size for size in shape if size != 1]:
        raise ZooError(f"{name} of shape {array.shape[1:]}, expected {shape}: {describe(space)}")
    return array.reshape(len(array), *shape)


def in_type_of(space: Space, array: Array, name: str, what: str) -> Array:
    """Return numbers (n, …) in the space's type. Raises `ZooError` for one that is another number there.

    ``what`` is one of them, for the message: "action".
    """
    converted, step = converted_to(space, array)
    if step is not None:
        raise ZooError(f"{name}: {array[step].tolist()} at step {step:,} is no {what} of {describe(space)}")
    return converted


def converted_to(space: Space, array: Array) -> tuple[Array, int | None]:
    """Return an array (n, …) in the space's type, and the first row that is not the same there, or None.

    Types with fractions may round.
    """
    dtype = np.dtype(space.dtype)
    if array.dtype.kind not in "biuf":
        return array, 0
    with np.errstate(invalid="ignore"):
        converted = array.astype(dtype)
    differs = converted != array
    if dtype.kind == "f" or not differs.any():
        return converted, None
    return converted, int(np.argwhere(differs)[0, 0])


# -- for people -------------------------------------------------------------------------------------------

N_BINS, BAR_WIDTH = 10, 40


def summary(data: ExpertData) -> str:
    """Return a table about the data, and under it the histogram of its returns."""
    rows = [
        ("environment", one_line(data.card.get("env") or "?")),
        ("source", _origin(data.card.get("source"))),
        ("observations", describe(data.observation_space)),
        ("actions", describe(data.action_space) + ("" if data.action_masks is None else ", with masks")),
        ("episodes", f"{data.n_episodes:,}, {data.n_steps:,} steps"),
        ("length", f"{data.lengths.min():,} to {data.lengths.max():,}, mean {data.lengths.mean():,.1f}"),
        ("return", f"{decimal(float(data.returns.mean()))} ± {decimal(float(data.returns.std()))}"),
    ]
    if data.successes is not None:
        rows.append(("successes", f"{data.successes.mean():.0%}"))
    if data.terminated is not None:
        rows.append(("cut short", f"{1 - data.terminated.mean():.0%}"))
    width = max(len(name) for name, _ in rows)
    table = [f"{name:<{width}}  {value}" for name, value in rows]
    return "\n".join([*table, "", "returns", *histogram(data.returns)])


def _origin(source: Any) -> str:
    if not isinstance(source, Mapping):
        return one_line(source or "?")
    return one_line(", ".join(f"{key} {one_line(value, 80)}" for key, value in source.items()), 1000) or "?"


def histogram(values: np.ndarray) -> list[str]:
    """Return a line a bin: its bounds, a bar, and how many of the values are in it; one if all are equal."""
    if values.min() == values.max():
        return [f"  {decimal(float(values[0]))}  {'█' * BAR_WIDTH}  {len(values):,}"]
    counts, edges = np.histogram(values, N_BINS)
    bounds = [decimal(float(edge)) for edge in edges]
    width = max(map(len, bounds))
    return [
        f"  {bounds[i]:>{width}} … {bounds[i + 1]:>{width}}"
        f"  {'█' * round(BAR_WIDTH * count / counts.max()):<{BAR_WIDTH}}  {count:,}"
        for i, count in enumerate(counts.tolist())
    ]
