"""How recurrent policies learn: from sequences, and from what they remember before each of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from zoo.algorithms.registry import ALGORITHMS, algorithm_class
from zoo.errors import ZooError
from zoo.policies.config import PolicyConfig, refuse_options_of_memory
from zoo.policies.exploration import n_rows

Array = np.ndarray

USUAL_CHUNK = 32
"""The longest sequences that a recurrent policy learns from unless it is told."""


class RecurrentState:
    """What a recurrent policy remembers of each environment, (n_envs, state_size); None: it can't remember.

    It lasts from rollout to rollout, and is a part of checkpoints.
    """

    def __init__(self, array: Array | None) -> None:
        self.array = array

    def state(self) -> dict[str, Any]:
        """Return a copy, for `load_state`."""
        return {} if self.array is None else {"array": self.array.copy()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go back to what `state` returned. Raises `ValueError` for what is remembered of something else."""
        if self.array is None:
            return
        array = np.array(state["array"])
        if array.shape != self.array.shape or array.dtype != self.array.dtype or not np.isfinite(array).all():
            raise ValueError("what the policy remembers is not that of this policy in these environments")
        self.array = array


def check_recurrence(name: str, policy: PolicyConfig, *, remembers: bool) -> None:
    """Raise `ZooError` for a memory where the algorithm has none, and for its options where there is none."""
    if policy._target_ is not None:
        return
    if policy.recurrent is not None and not remembers:
        raise ZooError(
            f"{name} has no policies that remember (`policy.recurrent={policy.recurrent}`, {policy.name});"
            f" {', '.join(remembering())} have"
        )
    refuse_options_of_memory(policy)


def check_state(size: int, seen: Mapping[str, Any], state: Any) -> None:
    """Raise `ZooError` for a state, or episode starts, of other rows than what a recurrent policy sees.

    ``size`` is that of a state, 0 where the policy has no memory.
    """
    if not size:
        return
    n = n_rows(seen)
    if state is not None and np.shape(state) != (n, size):
        raise ZooError(
            f"`state` of shape {np.shape(state)} does not fit: expected {(n, size)}, what `predict` returned"
            " with the last actions, or None where all episodes start"
        )
    starts = seen.get("episode_starts")
    if starts is not None and starts.shape != (n,):
        raise ZooError(f"`episode_start` of shape {starts.shape} does not fit: expected {(n,)}")


def remembering() -> list[str]:
    """Return the algorithms that train recurrent policies."""
    return [name for name in ALGORITHMS if algorithm_class(name).has_recurrence]


def chunk_length(n_steps: int, asked: int | None) -> int:
    """Return the length of the sequences that rollouts of ``n_steps`` are cut into: what is asked for.

    None asks for the longest up to `USUAL_CHUNK` that divides them. Raises `ZooError` for what does not.
    """
    divisors = [length for length in range(1, n_steps + 1) if n_steps % length == 0]
    if asked is None:
        longest = max(length for length in divisors if length <= USUAL_CHUNK)
        if longest < USUAL_CHUNK // 4 and longest < n_steps:
            raise ZooError(
                f"for a recurrent policy rollouts of `algo.n_steps={n_steps}` are cut into sequences of at"
                f" most {USUAL_CHUNK} steps, but would give {longest}; take a multiple of {USUAL_CHUNK}, or"
                " set `algo.chunk_length`"
            )
        return longest
    if asked in divisors:
        return asked
    problem = "is longer than" if asked > n_steps else "does not divide"
    raise ZooError(
        f"`algo.chunk_length={asked}` {problem} the rollouts of `algo.n_steps={n_steps}`;"
        f" expected one of {', '.join(map(str, divisors))}"
    )
