"""What brings environments back where they were: their seeds and their actions since."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zoo.envs.spaces import Space, action_array
from zoo.errors import ZooError

if TYPE_CHECKING:
    from zoo.envs.env_group import StepArrays

INITIAL_CAPACITY = 1024
"""Steps that fit before the ring grows; a power of two, as every later capacity."""


class EnvState(NamedTuple):
    """How one environment comes to be where it is, and what it must show then."""

    seed: int | None
    """The seed that its sequence begins with; None before the first reset."""
    n_reseeded: int
    actions: NDArray[Any]
    observation: Any
    episode_return: float
    length: int


class ActionLog:
    """One ring for all environments, so that keeping a step of all of them is one assignment.

    It holds as many steps as lie behind the environment that was seeded longest ago, and doubles where they
    don't fit.
    """

    def __init__(self, num_envs: int, action_space: Space) -> None:
        self.n_steps = 0
        """Steps that were added so far; the clock of whoever counts lengths of episodes."""
        self._starts = [0] * num_envs
        self._use(action_array(action_space, INITIAL_CAPACITY, num_envs), oldest=0)

    def add(self, actions: NDArray[Any]) -> None:
        """Keep one action of each environment, (num_envs, …)."""
        n_steps = self.n_steps
        if n_steps == self._full_at:
            self._make_room()
        self._ring[n_steps & self._last] = actions
        self.n_steps = n_steps + 1

    def start(self, env: int) -> None:
        """Forget what ``env`` did: it is being seeded."""
        self._starts[env] = self.n_steps

    def steps_since_start(self, env: int) -> int:
        """Return how many actions of ``env`` are kept."""
        return self.n_steps - self._starts[env]

    def since_start(self, env: int) -> NDArray[Any]:
        """Return a copy of the actions of ``env`` since its start, (n, …)."""
        steps = np.arange(self._starts[env], self.n_steps) & self._last
        actions: NDArray[Any] = self._ring[steps, env]
        return actions

    def restore(self, each: Sequence[NDArray[Any]]) -> None:
        """Take over the actions of every environment; they end with the same step."""
        self.n_steps = max(len(actions) for actions in each)
        capacity = INITIAL_CAPACITY
        while capacity < self.n_steps:
            capacity *= 2
        self._use(np.empty((capacity, *self._ring.shape[1:]), self._ring.dtype), oldest=0)
        for env, actions in enumerate(each):
            self._starts[env] = self.n_steps - len(actions)
            self._ring[self._starts[env] : self.n_steps, env] = actions

    def _make_room(self) -> None:
        """Let go of the steps that nobody needs any more; if there are none, double the ring."""
        ring, oldest = self._ring, min(self._starts)
        if self.n_steps - oldest == len(ring):
            steps = np.arange(oldest, self.n_steps)
            ring = np.empty((2 * len(ring), *ring.shape[1:]), ring.dtype)
            ring[steps % len(ring)] = self._ring[steps & self._last]
        self._use(ring, oldest)

    def _use(self, ring: NDArray[Any], oldest: int) -> None:
        self._ring = ring
        self._last = len(ring) - 1
        self._full_at = oldest + len(ring)


def to_tree(states: Sequence[EnvState]) -> dict[str, Any]:
    """Return the states of all environments, their actions one after the other in one array.

    The parts of a Dict observation, and of actions with parts, are called by their number, for a key may hold
    any character.
    """
    first = states[0].observation
    keys = list(first) if isinstance(first, dict) else None
    parts = [
        np.stack([state.observation if key is None else state.observation[key] for state in states])
        for key in keys or [None]
    ]
    return {
        "seeds": [state.seed for state in states],
        "n_reseeded": [state.n_reseeded for state in states],
        "n_actions": [len(state.actions) for state in states],
        "actions": _columns(np.concatenate([state.actions for state in states])),
        "observations": {str(number): part for number, part in enumerate(parts)},
        "returns": np.array([state.episode_return for state in states]),
        "lengths": [state.length for state in states],
    }


def from_tree(tree: Mapping[str, Any], like: StepArrays) -> list[EnvState]:
    """Return the states that `to_tree` was given. Raises `ZooError` if they don't fit such arrays."""
    n = len(tree["seeds"])
    if n != len(like.rewards):
        raise ZooError(f"the state is that of {n} environments; there are {len(like.rewards)} now")
    keys = list(like.observations) if isinstance(like.observations, dict) else None
    own_parts = [like.observations] if keys is None else list(like.observations.values())
    parts = [np.asarray(tree["observations"][str(number)]) for number in range(len(own_parts))]
    actions = _records(tree["actions"], like.actions.dtype)
    _check_form("actions", actions[:0], like.actions[:0])
    for part, own in zip(parts, own_parts, strict=True):
        _check_form("observations", part, own)
    ends = np.cumsum(tree["n_actions"])
    return [
        EnvState(
            None if tree["seeds"][i] is None else int(tree["seeds"][i]),
            int(tree["n_reseeded"][i]),
            actions[ends[i] - int(tree["n_actions"][i]) : ends[i]],
            parts[0][i] if keys is None else {key: part[i] for key, part in zip(keys, parts, strict=True)},
            float(tree["returns"][i]),
            int(tree["lengths"][i]),
        )
        for i in range(n)
    ]


def _columns(actions: np.ndarray[Any, Any]) -> Any:
    """Return the fields of records by their number; what has none as it is."""
    names = actions.dtype.names
    return actions if names is None else {str(n): actions[name].copy() for n, name in enumerate(names)}


def _records(columns: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return the array whose `_columns` these are."""
    if dtype.names is None:
        return np.asarray(columns)
    actions = np.zeros(len(columns["0"]), dtype)
    for number, name in enumerate(dtype.names):
        actions[name][...] = columns[str(number)]
    return actions


def _check_form(what: str, found: np.ndarray[Any, Any], own: np.ndarray[Any, Any]) -> None:
    if found.shape != own.shape or found.dtype != own.dtype:
        raise ZooError(
            f"the state is that of other environments: {what} of shape {found.shape[1:]} and type "
            f"{found.dtype}; here they have {own.shape[1:]} and {own.dtype}"
        )
