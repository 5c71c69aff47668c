"""What can't be right about expert data, and arrays of others in the types that spaces have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from gymnasium import spaces

from zoo.envs.spaces import Space, choice_sizes, describe, is_composite, leaf_spaces, mask_size
from zoo.errors import ZooError
from zoo.memory.columns import Column

Array = np.ndarray

TOLERANCE = 1e-3
"""By what share of the sum of its rewards' sizes a return may differ from their sum: they are rounded."""


class Episodes(Protocol):
    """What is looked at of `zoo.memory.expert_data.ExpertData`."""

    @property
    def observation_space(self) -> Space: ...

    @property
    def action_space(self) -> Space: ...

    @property
    def observations(self) -> Column: ...

    @property
    def actions(self) -> Column: ...

    @property
    def rewards(self) -> Array: ...

    @property
    def lengths(self) -> Array: ...

    @property
    def returns(self) -> Array: ...

    @property
    def terminated(self) -> Array | None: ...

    @property
    def successes(self) -> Array | None: ...

    @property
    def action_masks(self) -> Array | None: ...

    @property
    def n_steps(self) -> int: ...

    @property
    def n_episodes(self) -> int: ...

    @property
    def starts(self) -> Array: ...


def problem_of(data: Episodes) -> str | None:
    """Return what does not fit together, in one line, or None.

    Numbers that were seen may lie outside of their bounds, as those of many environments do.
    """
    n_steps, n_episodes = data.n_steps, data.n_episodes
    if not n_steps or not n_episodes:
        return "it is empty"
    if data.lengths.min() < 1 or data.lengths.sum() != n_steps:
        return f"its episodes have {data.lengths.sum():,} steps together, but there are {n_steps:,} rewards"
    if data.rewards.shape != (n_steps,):
        return f"rewards of shape {data.rewards.shape}, expected {(n_steps,)}"
    per_episode = {"returns": data.returns, "terminated": data.terminated, "successes": data.successes}
    for name, values in per_episode.items():
        if values is not None and values.shape != (n_episodes,):
            return f"there are {n_episodes:,} episodes, but {name} of shape {values.shape}"
    problem = _observations_problem(data) or _actions_problem(data)
    return problem or _masks_problem(data) or _returns_problem(data)


def _observations_problem(data: Episodes) -> str | None:
    space = data.observation_space
    if not isinstance(space, spaces.Dict):
        return _one_observation_problem("observations", space, data.observations, data)
    found = set(data.observations) if isinstance(data.observations, Mapping) else set()
    if found != set(space.spaces):
        return f"its observations have the keys {sorted(found)} instead of {sorted(space.spaces)}"
    problems = (
        _one_observation_problem(f"observations, {key}", part, data.observations[key], data)
        for key, part in space.spaces.items()
    )
    return next((each for each in problems if each is not None), None)


def _one_observation_problem(name: str, space: Space, column: Array, data: Episodes) -> str | None:
    problem = _column_problem(name, space, column, data)
    if problem is not None or isinstance(space, spaces.Box):
        return problem
    return _outside_problem(name, "observation", space, column, data)


def _actions_problem(data: Episodes) -> str | None:
    space, actions = data.action_space, data.actions
    parts = dict(leaf_spaces(space))
    if not is_composite(space):
        return _one_action_problem("actions", space, actions, data)
    found = set(actions) if isinstance(actions, Mapping) else set()
    if found != set(parts):
        return f"its actions have the parts {sorted(found)} instead of {sorted(parts)}"
    problems = (
        _one_action_problem(f"actions, {path}", part, actions[path], data) for path, part in parts.items()
    )
    return next((each for each in problems if each is not None), None)


def _one_action_problem(name: str, space: Space, actions: Array, data: Episodes) -> str | None:
    problem = _column_problem(name, space, actions, data)
    return _outside_problem(name, "action", space, actions, data) if problem is None else problem


def _outside_problem(name: str, what: str, space: Space, column: Array, data: Episodes) -> str | None:
    step = first_outside(space, column)
    if step is None:
        return None
    where = f"{step:,} is no {what} of {describe(space)}{_episode(data, step)}"
    return f"{name}: {column[step].tolist()} at step {where}"


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


def _column_problem(name: str, space: Space, column: Any, data: Episodes) -> str | None:
    shape, n_steps = tuple(space.shape or ()), data.n_steps
    if column.shape != (n_steps, *shape):
        return f"{name} of shape {column.shape}, expected {(n_steps, *shape)}: {describe(space)}"
    if column.dtype != space.dtype:
        return f"{name} of type {column.dtype}, expected {space.dtype}"
    if column.dtype.kind == "f" and not np.isfinite(column).all():
        step = int((~np.isfinite(column)).reshape(n_steps, -1).any(1).argmax())
        return f"{name} at step {step:,} are not finite{_episode(data, step)}"
    return None


def _masks_problem(data: Episodes) -> str | None:
    if data.action_masks is None:
        return None
    expected = data.n_steps, mask_size(data.action_space)
    if data.action_masks.shape != expected:
        return f"action masks of shape {data.action_masks.shape}, expected {expected}"
    if data.action_masks.dtype != np.bool_:
        return f"action masks of type {data.action_masks.dtype}, expected bool"
    forbidden = forbidden_actions(data.action_space, data.actions, data.action_masks)
    if not forbidden.any():
        return None
    step = int(forbidden.argmax())
    return f"the mask at step {step:,} forbids the expert's own action{_episode(data, step)}"


def forbidden_actions(space: Space, actions: Column, masks: Array) -> Array:
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


def _episode(data: Episodes, step: int) -> str:
    """Return which episode a step is of, for the end of a message."""
    return f" (episode {int(np.searchsorted(data.starts, step, side='right')) - 1:,})"


def _returns_problem(data: Episodes) -> str | None:
    if not np.isfinite(data.rewards).all() or not np.isfinite(data.returns).all():
        return "its rewards are not finite"
    rewards = data.rewards.astype(np.float64)
    sums = np.add.reduceat(rewards, data.starts)
    sizes = np.add.reduceat(np.abs(rewards), data.starts)
    differs = np.abs(sums - data.returns) > TOLERANCE * (1.0 + sizes)
    if not differs.any():
        return None
    episode = int(differs.argmax())
    return (
        f"the rewards of episode {episode} add up to {sums[episode]:g}, but its return is"
        f" {data.returns[episode]:g}"
    )


# -- arrays of others -------------------------------------------------------------------------------------


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
