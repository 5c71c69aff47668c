"""Episodes of an expert, from which others learn what to do."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from zoo.envs.spaces import Space, interfaces_differ
from zoo.errors import ZooError, ZooWarning
from zoo.memory.columns import Column, transform
from zoo.memory.expert_problems import problem_of

Array = np.ndarray


@dataclass(frozen=True)
class ExpertData:
    """Whole episodes, one after another; arrays have a row a step, (n_steps, …), or an episode.

    ``observations`` are raw: never normalised. ``actions`` are those that the environment was given; those of
    a Tuple or Dict space are a dictionary of arrays, by the paths of `zoo.envs.spaces`. None is
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
        self,
        *,
        min_return: float | None = None,
        successes_only: bool = False,
        n_episodes: int | None = None,
    ) -> ExpertData:
        """Return the episodes that are good enough, the first ``n_episodes`` of them.

        Raises `ZooError` if there are none, or nobody knows which succeeded; `ZooWarning` warns of fewer
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
