"""Checks of what a replay memory is to take over from a checkpoint, which may be damaged, or forged."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from zoo.memory.columns import Column, find_not_finite, transform
from zoo.memory.final_observations import FinalObservations
from zoo.memory.sampling import Rings

Array = np.ndarray
Space = spaces.Space[Any]


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


def check_final(final: FinalObservations, ended: Array, rings: Rings) -> None:
    """Raise `ValueError` if an episode ``ended`` (length, n_envs) and nothing says what it showed last."""
    heads, sizes, length = rings
    envs, ages = np.arange(len(heads)), np.arange(sizes.max(initial=0))[:, None]
    positions = (heads - 1 - ages) % length
    has_ended = ended[positions, envs] & (ages < sizes)
    if not final.has_all((positions * len(heads) + envs)[has_ended]):
        raise ValueError("its final observations are not those of this memory")


def spaces_of_columns(observation_space: Space, action_space: Space) -> dict[str, Space]:
    """Return the space of each column that is shown or done; actions are stored from 0 on."""
    shown = {"observations": observation_space, "next_observations": observation_space}
    if isinstance(action_space, spaces.Discrete):
        shown["actions"] = spaces.Discrete(int(action_space.n))
    return shown


def check_finite(columns: Mapping[str, Column], final: Mapping[str, Column]) -> None:
    """Raise `ValueError` for NaN or infinity in ``columns`` (rows, n_envs, …), or in ``final`` (n, …)."""
    apart = {f"final {name}": transform(lambda array: array[None], column) for name, column in final.items()}
    found = find_not_finite(columns) or find_not_finite(apart)
    if found is not None:
        raise ValueError(f"a number among the `{found.name}` of its memory is not finite ({found.value})")


def check_inside(columns: Mapping[str, Column], shown: Mapping[str, Space]) -> None:
    """Raise `ValueError` for a number in ``columns`` (n, …) that is outside of its space."""
    for name, space in shown.items():
        if name in columns and not _are_inside(columns[name], space):
            raise ValueError(f"a number among the `{name}` of its memory is outside of their space")


def _are_inside(column: Column, space: Space) -> bool:
    if isinstance(space, spaces.Dict):
        return all(_are_inside(column[key], part) for key, part in space.spaces.items())
    if isinstance(space, spaces.Discrete):
        low, n = np.asarray(space.start), np.asarray(space.n)
    elif isinstance(space, spaces.MultiDiscrete):
        low, n = space.start, space.nvec
    else:
        return True
    return bool(((column >= low) & (column - low < n)).all())


def packed_infos(infos: Array) -> Array:
    """Return infos (n, n_envs) as the bytes of a JSON text; what is no plain value or array is left out."""
    return np.frombuffer(json.dumps([_plain(info) for info in infos.reshape(-1)]).encode(), np.uint8)


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
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value if isinstance(value, bool | int | float | str) else None


def _as_it_was(found: dict[str, Any]) -> Any:
    if _ARRAY not in found:
        return found
    return np.array(found["values"], np.dtype(found[_ARRAY])).reshape(found["shape"])[()]
