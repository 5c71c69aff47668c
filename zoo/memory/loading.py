"""Checks of what a replay memory is to take over from a checkpoint, which may be damaged, or forged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from zoo.memory.columns import Column, find_not_finite
from zoo.memory.sampling import Rings

Array = np.ndarray


def check_rings(rings: Rings, used: int, most: int, n_envs: int) -> None:
    """Raise `ValueError` for rings that can't be those of a memory of which ``used`` rows were written.

    Each holds ``most`` transitions at most, and before that all that were written since its first row.
    """
    heads, sizes, length = rings
    are_counts = heads.dtype.kind == sizes.dtype.kind == "i"
    if not (
        are_counts
        and heads.shape == sizes.shape == (n_envs,)
        and 0 <= used <= length
        and ((heads >= 0) & (heads < length)).all()
        and ((sizes >= 0) & (sizes <= min(used, most))).all()
        and ((heads == sizes) | (sizes == most)).all()  # or rows would count that nobody wrote
    ):
        raise ValueError(
            f"its rings are not those of a memory of {length} steps for each environment:"
            " is `algo.buffer_size` another, or `algo.optimize_memory_usage`?"
        )


def check_sampler(state: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """Raise `ValueError` for the state of a sampler that draws in another way."""
    if state.keys() != own.keys():
        raise ValueError("its memory draws transitions in another way: is `memory.prioritized` another?")


def check_values(columns: Mapping[str, Column], rings: Rings, shown: Mapping[str, spaces.Space[Any]]) -> None:
    """Raise `ValueError` for a number that no environment and no policy could have given.

    ``columns`` (length, n_envs, …) may hold anything finite, those in ``shown`` values of a space.
    """
    found = find_not_finite(columns)
    if found is not None:
        raise ValueError(f"a number among the `{found.name}` of its memory is not finite ({found.value})")
    written = np.arange(rings.length)[:, None] < rings.sizes
    for name, space in shown.items():
        if not _are_inside(columns[name], space, written):
            raise ValueError(f"a number among the `{name}` of its memory is outside of their space")


def _are_inside(column: Column, space: spaces.Space[Any], written: Array) -> bool:
    if isinstance(space, spaces.Dict):
        return all(_are_inside(column[key], part, written) for key, part in space.spaces.items())
    if isinstance(space, spaces.Discrete):
        low, n = np.asarray(space.start), np.asarray(space.n)
    elif isinstance(space, spaces.MultiDiscrete):
        low, n = space.start, space.nvec
    else:
        return True
    values = column[written]
    return bool(((values >= low) & (values - low < n)).all())
