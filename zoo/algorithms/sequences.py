"""How recurrent policies learn: from sequences, and from what they remember before each of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from zoo.errors import ZooError

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
        """Go back to what `state` returned."""
        if self.array is not None:
            self.array = np.array(state["array"])


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
