"""The states of several environments as one tree of arrays and plain values, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from zoo.envs.env_group import EnvState
from zoo.envs.step_arrays import StepArrays
from zoo.errors import ZooError


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
    try:
        return _from_tree(tree, like)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise ZooError(f"damaged state of environments: {error!r}") from error


def _from_tree(tree: Mapping[str, Any], like: StepArrays) -> list[EnvState]:
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
    if len(actions) != ends[-1]:
        raise ZooError(f"damaged state of environments: {len(actions)} actions, not {ends[-1]}")
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
        column, rows = np.asarray(columns[str(number)]), actions[name]
        _check_form(f"actions `{name}`", column[:0], rows[:0])
        rows[...] = column
    return actions


def _check_form(what: str, found: np.ndarray[Any, Any], own: np.ndarray[Any, Any]) -> None:
    if found.shape != own.shape or found.dtype != own.dtype:
        raise ZooError(
            f"the state is that of other environments: {what} of shape {found.shape[1:]} and type "
            f"{found.dtype}; here they have {own.shape[1:]} and {own.dtype}"
        )
