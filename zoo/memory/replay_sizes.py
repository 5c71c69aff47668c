"""What a replay memory holds, how much that is, and what it takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.memory.columns import n_bytes
from zoo.memory.final_observations import FinalObservations

SHOWN = ("observations", "action_masks", "states")
"""Columns that a policy is given, so that a transition has them before and after its step."""

MOST_STEPS_AT_ONCE = 32
"""Steps that are put together before they are stored; more save nothing."""

MOST_BYTES_AT_ONCE = 64 * 2**10
"""What these take at most: they stay in a core's own cache."""


def ring_length(capacity: int, n_envs: int, *, once: bool) -> int:
    """Return how many rows each environment has; where observations are stored ``once``, at least two."""
    return max(capacity // n_envs, 2 if once else 1)


def replay_bytes(capacity: int, specs: Mapping[str, Any], *, optimize_memory_usage: bool = False) -> int:
    """Return what a `ReplayMemory` of these columns takes, in bytes."""
    copies = 1 if optimize_memory_usage else 2
    row = sum(n_bytes(spec) * (copies if name in SHOWN else 1) for name, spec in specs.items()) + 6
    return capacity * (row + (FinalObservations.BYTES_EACH if optimize_memory_usage else 0))


def steps_at_once(specs: Mapping[str, Any], n_envs: int) -> int:
    """Return how many steps of these columns are put together before they are stored; 1 if large."""
    return max(1, min(MOST_STEPS_AT_ONCE, MOST_BYTES_AT_ONCE // replay_bytes(n_envs, specs)))
