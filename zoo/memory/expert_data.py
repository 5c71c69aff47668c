"""Episodes of an expert, from which others learn what to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from gymnasium import spaces

from zoo.envs.composite_spaces import is_composite, leaf_spaces
from zoo.envs.spaces import Space, describe, interfaces_differ, mask_size
from zoo.errors import ZooError
from zoo.memory.columns import Column, transform

Array = np.ndarray

TOLERANCE = 1e-3
"""By what share of the sum of its rewards' sizes a return may differ from their sum: they are rounded."""


@dataclass(frozen=True)
class ExpertData:
    """Whole episodes, one after another; arrays have a row a step, (n_steps, …), or an episode.

    ``observations`` are raw: never normalised. ``actions`` are those that the environment was given; those of
    a Tuple or Dict space are a dictionary of arrays, by the paths of `zoo.envs.composite_spaces`. None is
    what nobody knows. Raises `ZooError` for what does not fit together.
    """

    observation_space: Space
    action_space: Space
    observations: Column
    actions: Column
    rewards: Array
    lengths: Array
    """Steps of each episode."""
    returns: Array
    """Sum of each episode's rewards, as the environment gave them."""
    terminated: Array | None = None
    """Whether each episode ended by itself, not by a time limit."""
    successes: Array | None = None
    """Whether each episode reached its goal."""
    action_masks: Array | None = None
    """Which actions were valid, (n_steps, mask_size)."""
    card: dict[str, Any] = field(default_factory=dict)
    """``env``, ``source`` and whatever else was written down, as JSON has it."""

    def __post_init__(self) -> None:
        problem = _problem(self)
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
        self,
        *,
        min_return: float | None = None,
        successes_only: bool = False,
        n_episodes: int | None = None,
    ) -> ExpertData:
        """Return the episodes that are good enough, the first ``n_episodes`` of them.

        Raises `ZooError` if there are none, or nobody knows which succeeded.
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


def episode_lengths(episode_starts: Array) -> Array:
    """Return the lengths of episodes that start where it is true. Raises `ValueError` for the first step."""
    if not len(episode_starts):
        return np.zeros(0, np.int64)
    if not episode_starts[0]:
        raise ValueError("its first step is not the start of an episode")
    starts = np.flatnonzero(episode_starts)
    return np.diff(np.append(starts, len(episode_starts))).astype(np.int64)


def _problem(data: ExpertData) -> str | None:
    """Return what does not fit together, in one line, or None."""
    n_steps, n_episodes = data.n_steps, data.n_episodes
    if not n_steps or not n_episodes:
        return "it is empty"
    if data.lengths.min() < 1 or data.lengths.sum() != n_steps:
        return f"its episodes have {data.lengths.sum():,} steps together, but there are {n_steps:,} rewards"
    per_episode = {"returns": data.returns, "terminated": data.terminated, "successes": data.successes}
    for name, values in per_episode.items():
        if values is not None and values.shape != (n_episodes,):
            return f"there are {n_episodes:,} episodes, but {name} of shape {values.shape}"
    problem = _observations_problem(data) or _actions_problem(data.action_space, data.actions, n_steps)
    return problem or _masks_problem(data) or _returns_problem(data)


def _observations_problem(data: ExpertData) -> str | None:
    space = data.observation_space
    if not isinstance(space, spaces.Dict):
        return _column_problem("observations", space, data.observations, data.n_steps)
    found = set(data.observations) if isinstance(data.observations, Mapping) else set()
    if found != set(space.spaces):
        return f"its observations have the keys {sorted(found)} instead of {sorted(space.spaces)}"
    problems = (
        _column_problem(f"observations, {key}", part, data.observations[key], data.n_steps)
        for key, part in space.spaces.items()
    )
    return next((each for each in problems if each is not None), None)


def _actions_problem(space: Space, actions: Column, n_steps: int) -> str | None:
    parts = dict(leaf_spaces(space))
    if not is_composite(space):
        return _one_action_problem("actions", space, actions, n_steps)
    found = set(actions) if isinstance(actions, Mapping) else set()
    if found != set(parts):
        return f"its actions have the parts {sorted(found)} instead of {sorted(parts)}"
    problems = (
        _one_action_problem(f"actions, {path}", part, actions[path], n_steps) for path, part in parts.items()
    )
    return next((each for each in problems if each is not None), None)


def _one_action_problem(name: str, space: Space, actions: Array, n_steps: int) -> str | None:
    problem = _column_problem(name, space, actions, n_steps)
    if problem is not None:
        return problem
    low, high = _range(space)
    outside = ((actions < low) | (actions > high)).reshape(n_steps, -1).any(1)
    if not outside.any():
        return None
    step = int(outside.argmax())
    return f"{name}: {actions[step].tolist()} at step {step:,} is no action of {describe(space)}"


def _range(space: Any) -> tuple[Any, Any]:
    if isinstance(space, spaces.Discrete):
        return int(space.start), int(space.start + space.n - 1)
    if isinstance(space, spaces.MultiDiscrete):
        return space.start, space.start + space.nvec - 1
    if isinstance(space, spaces.MultiBinary):
        return 0, 1
    return space.low, space.high


def _column_problem(name: str, space: Space, column: Any, n_steps: int) -> str | None:
    shape = tuple(space.shape or ())
    if column.shape != (n_steps, *shape):
        return f"{name} of shape {column.shape}, expected {(n_steps, *shape)}: {describe(space)}"
    if column.dtype != space.dtype:
        return f"{name} of type {column.dtype}, expected {space.dtype}"
    if column.dtype.kind == "f" and not np.isfinite(column).all():
        step = int((~np.isfinite(column)).reshape(n_steps, -1).any(1).argmax())
        return f"{name} at step {step:,} are not finite"
    return None


def _masks_problem(data: ExpertData) -> str | None:
    if data.action_masks is None:
        return None
    expected = data.n_steps, mask_size(data.action_space)
    if data.action_masks.shape != expected:
        return f"action masks of shape {data.action_masks.shape}, expected {expected}"
    return None


def _returns_problem(data: ExpertData) -> str | None:
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
