"""What a replay memory takes over from a checkpoint: whether it is of the same settings, and its infos."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

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


def packed_infos(infos: Array) -> Array:
    """Return infos (n, n_envs) as the bytes of a JSON text; what is no plain value or array is left out."""
    text = json.dumps(infos.reshape(-1).tolist(), default=_plain, skipkeys=True)
    return np.frombuffer(text.encode(), np.uint8)


def unpacked_infos(packed: Array | None, shape: tuple[int, int]) -> Array:
    """Return the infos of which `packed_infos` made these bytes. Raises `ValueError` for others."""
    found = [] if packed is None else json.loads(packed.tobytes(), object_hook=_as_it_was)
    if not isinstance(found, list) or len(found) != shape[0] * shape[1]:
        raise ValueError(
            "its infos are not those of this memory: is `memory.hindsight.copy_info_dict` another?"
        )
    infos = np.full(shape, None, object)
    infos.reshape(-1)[:] = found
    return infos


_ARRAY = "array of"
"""The key of an array's type in JSON, beside its values."""


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biuf":
        return {_ARRAY: value.dtype.str, "shape": value.shape, "values": value.reshape(-1).tolist()}
    return dict(value) if isinstance(value, Mapping) else None


def _as_it_was(found: dict[str, Any]) -> Any:
    if _ARRAY not in found:
        return found
    return np.array(found["values"], np.dtype(found[_ARRAY])).reshape(found["shape"])[()]
