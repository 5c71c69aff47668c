"""What was experienced stays when an agent goes on in other environments, if it can."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, TypeVar

from zoo.errors import ZooWarning
from zoo.memory.replay import ReplayMemory

Memory = TypeVar("Memory", bound=ReplayMemory)


def kept_memory(before: Memory | None, n_envs: int, specs: Mapping[str, Any]) -> Memory | None:
    """Return the memory, with all episodes cut, where it fits; otherwise warn of what is lost."""
    if before is None:
        return None
    fits = before.n_envs == n_envs and before.specs == specs
    if fits and before.first_not_finite() is None:
        before.cut()
        return before
    if before:
        why = (
            "some of their numbers are not finite"
            if fits
            else "the environments mask actions otherwise"
            if before.n_envs == n_envs
            else f"it was of {before.n_envs} environments, not {n_envs}"
        )
        lost = f"the {len(before):,} transitions in the replay memory are lost: {why}"
        warnings.warn(lost, ZooWarning, stacklevel=5)
    return None
