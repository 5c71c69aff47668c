"""Exact replay of environments: their seeds, the actions since, and the state that brings them back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zoo.envs.spaces import Env, layers
from zoo.errors import ZooError

if TYPE_CHECKING:
    from zoo.envs.vec_env import StepArrays

LARGEST_SEED = 2**31 - 1
"""C++ takes seeds of 32 bits with a sign."""


def random_seed(seed: Any = None) -> int:
    """Return ``seed``, or one by chance, small enough for every simulator: C++'s have a sign.

    Raises `ZooError` for what is no seed.
    """
    if seed is not None:
        if not isinstance(seed, int | np.integer) or seed < 0:
            raise ZooError(f"seed={seed!r}: expected a whole number, 0 or more")
        return int(seed)
    return int(np.random.SeedSequence().generate_state(1)[0]) >> 1


def derived_seeds(seed: int, n: int) -> list[int]:
    """Return the seeds of ``n`` streams of random numbers that come from one seed."""
    return [int(word) for word in np.random.SeedSequence(seed, spawn_key=(0,)).generate_state(n)]


def small_seeds(seed: int | Sequence[int], n: int) -> list[int]:
    """Return a seed for each of ``n`` simulators in C++; one number gives i ``seed + i``."""
    seeds = range(seed, seed + n) if isinstance(seed, int | np.integer) else seed
    return [int(single) % LARGEST_SEED for single in seeds]


def worker_seed(seed: int, rank: int) -> int:
    """Return the seed of one of several processes that learn as one."""
    return int(np.random.SeedSequence(seed, spawn_key=(1, rank)).generate_state(1)[0])


def seed_spaces(env: Env, first: int, n: int = 0) -> int:
    """Seed every space of ``env`` and its layers separately; return the seed for its reset.

    They are those with the number ``n`` in the sequence that begins with ``first``, which is itself for 0.
    """
    spaces = [space for layer in layers(env) for space in (layer.action_space, layer.observation_space)]
    distinct = {id(space): space for space in spaces}.values()
    reset_seed, *seeds = np.random.SeedSequence([first, n]).generate_state(1 + len(distinct)).tolist()
    for space, seed in zip(distinct, seeds, strict=True):
        space.seed(seed)
    return first if n == 0 else reset_seed >> 1


class EnvState(NamedTuple):
    """Seed, actions since, and the observation expected after replaying them."""

    seed: int | None
    """The seed that its sequence begins with; None before the first reset."""
    n_reseeded: int
    actions: NDArray[Any]
    observation: Any
    episode_return: float
    length: int


def to_tree(states: Sequence[EnvState]) -> dict[str, Any]:
    """Stack the environments' states into arrays; observation leaves are keyed by index."""
    parts = [list(_parts(state.observation).values()) for state in states]
    return {
        "seeds": [state.seed for state in states],
        "n_reseeded": [state.n_reseeded for state in states],
        "n_actions": [len(state.actions) for state in states],
        "actions": _columns(np.concatenate([state.actions for state in states])),
        "observations": {str(n): np.stack(part) for n, part in enumerate(zip(*parts, strict=True))},
        "returns": np.array([state.episode_return for state in states]),
        "lengths": [state.length for state in states],
    }


def from_tree(tree: Mapping[str, Any], like: StepArrays) -> list[EnvState]:
    """Return the states that `to_tree` was given. Raises `ZooError` if they don't fit such arrays."""
    n = len(tree["seeds"])
    if n != len(like.rewards):
        raise ZooError(f"the state was saved with {n} environments; there are {len(like.rewards)} now")
    actions = _records(tree["actions"], like.actions.dtype)
    _check_form("actions", actions[:0], like.actions[:0])
    parts = {}
    for number, (key, expected) in enumerate(_parts(like.observations).items()):
        parts[key] = np.asarray(tree["observations"][str(number)])
        _check_form("observations", parts[key], expected)
    ends = np.cumsum(tree["n_actions"]).tolist()
    return [
        EnvState(
            None if tree["seeds"][i] is None else int(tree["seeds"][i]),
            int(tree["n_reseeded"][i]),
            actions[start:end],
            parts[""][i] if "" in parts else {key: part[i] for key, part in parts.items()},
            float(tree["returns"][i]),
            int(tree["lengths"][i]),
        )
        for i, (start, end) in enumerate(zip([0, *ends], ends, strict=False))
    ]


def _parts(observation: Any) -> dict[str, Any]:
    return observation if isinstance(observation, dict) else {"": observation}


def _columns(actions: np.ndarray[Any, Any]) -> Any:
    """Return the fields of records by their number; arrays without fields unchanged."""
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


def _check_form(name: str, saved: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> None:
    if saved.shape != expected.shape or saved.dtype != expected.dtype:
        raise ZooError(
            f"the state was saved with other environments: {name} of shape {saved.shape[1:]} and type "
            f"{saved.dtype}; here they have {expected.shape[1:]} and {expected.dtype}"
        )
