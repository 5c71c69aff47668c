"""Expert data on the disk: one compressed NumPy archive, laid out as Stable-Baselines' are, with a card.

``obs``, ``actions`` (of dictionaries and tuples ``obs/<key>``, ``actions/<path>``), ``rewards``,
``episode_starts`` and ``action_masks`` have a row a step; ``episode_returns``, ``episode_terminated`` and
``episode_successes`` an entry an episode. ``card.json`` has both spaces, and what else was written down.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from zoo.envs.spaces import Space, check_supported, is_composite, leaf_spaces, space_from_dict, space_to_dict
from zoo.errors import ZooError
from zoo.files.free_memory import SHARE, free_bytes
from zoo.files.plain_data import parse_json, to_json
from zoo.files.printing import one_line
from zoo.files.zips import NUMBERS, Npz, opened_npz, write_npz
from zoo.memory import minari_data, stable_baselines_data
from zoo.memory.columns import Column
from zoo.memory.expert_data import ExpertData, episode_lengths

FORMAT = 1
"""The version of the format that this Zoo writes."""

CARD = "card.json"
OPTIONAL = {
    "terminated": "episode_terminated",
    "successes": "episode_successes",
    "action_masks": "action_masks",
}

Spaces = tuple[Space, Space]


def write_expert(path: str | Path, data: ExpertData) -> Path:
    """Write expert data whole or not at all, and return where. Raises `ZooError`."""
    path = Path(path)
    if path.suffix != ".npz":
        raise ZooError(f"expert data are written to a file that ends in .npz, not to {one_line(path)}")
    arrays = {**_named("obs", data.observations), **_named("actions", data.actions)}
    arrays |= {"rewards": data.rewards, "episode_starts": data.episode_starts}
    arrays["episode_returns"] = data.returns
    for field, name in OPTIONAL.items():
        if getattr(data, field) is not None:
            arrays[name] = getattr(data, field)
    card = {
        **data.card,
        "format": FORMAT,
        "n_episodes": data.n_episodes,
        "n_steps": data.n_steps,
        "mean_return": float(data.returns.mean()),
        "observation_space": space_to_dict(data.observation_space),
        "action_space": space_to_dict(data.action_space),
    }
    write_npz(path, arrays, {CARD: to_json(card)})
    return path


def read_expert(path: str | Path, spaces: Spaces | None = None) -> ExpertData:
    """Read Zoo's or Stable-Baselines' ``.npz``, or a dataset of Minari (``minari:ID``).

    ``spaces`` are those of the environment to learn in, of observations and actions: data of others are
    refused. Stable-Baselines' files do not say theirs, which are guessed without. Nothing in a file is run.
    Raises `ZooError` for what is missing or damaged.
    """
    if str(path).startswith(minari_data.PREFIX):
        data = minari_data.read(str(path), _limit())
    else:
        data = _read_npz(Path(path).expanduser(), spaces)
    if spaces is not None:
        data.check_spaces(*spaces, name=one_line(path))
    return data


def _limit() -> int | None:
    free = free_bytes()
    return None if free is None else int(SHARE * free)


def _read_npz(path: Path, spaces: Spaces | None) -> ExpertData:
    with opened_npz(path) as npz:
        text = npz.text(CARD)
        if text is None:
            return stable_baselines_data.read(npz, path, spaces)
        card = parse_json(text)
        if card.get("format") != FORMAT:
            raise ZooError(
                f"{one_line(path)} has the format {one_line(card.get('format'))}, this Zoo reads {FORMAT}"
            )
        try:
            return _assembled(npz, card)
        except ZooError as error:
            raise ZooError(f"{one_line(path)} is damaged: {error}") from error


def _assembled(npz: Npz, card: dict[str, Any]) -> ExpertData:
    missing = sorted({"rewards", "episode_starts", "episode_returns"} - set(npz.names))
    if missing:
        raise ZooError(f"it has no {missing[0]}")
    for name in ("observation_space", "action_space"):
        if not isinstance(card.get(name), Mapping):
            raise ZooError(f"its card has no {name}")
    observation_space, action_space = (
        space_from_dict(card.pop(name)) for name in ("observation_space", "action_space")
    )
    check_supported(observation_space, action_space)
    keys = list(observation_space.spaces) if hasattr(observation_space, "spaces") else None
    paths = [path for path, _ in leaf_spaces(action_space)] if is_composite(action_space) else None
    optional = {field: _numbers(npz, name) for field, name in OPTIONAL.items() if name in npz.names}
    return ExpertData(
        observation_space,
        action_space,
        observations=_column(npz, "obs", keys),
        actions=_column(npz, "actions", paths),
        rewards=_numbers(npz, "rewards"),
        lengths=episode_lengths(_numbers(npz, "episode_starts").astype(np.bool_)),
        returns=_numbers(npz, "episode_returns"),
        card=card,
        **{field: array.astype(np.bool_) for field, array in optional.items()},
    )


def _numbers(npz: Npz, name: str) -> np.ndarray:
    """Return an array of numbers, one a step or an episode; of masks a row of them."""
    array, n_dimensions = npz.array(name), 2 if name == "action_masks" else 1
    if array.dtype.kind not in NUMBERS or array.ndim != n_dimensions:
        raise ZooError(f"its {name} are {array.dtype} of shape {array.shape}, expected rows of numbers")
    return array


def _named(prefix: str, column: Column) -> dict[str, np.ndarray]:
    """Return the arrays of a column by their names in the archive."""
    if isinstance(column, Mapping):
        return {f"{prefix}/{key}": array for key, array in column.items()}
    return {prefix: column}


def _column(npz: Npz, prefix: str, keys: list[str] | None) -> Column:
    names = {key: f"{prefix}/{key}" for key in keys} if keys is not None else {"": prefix}
    missing = [name for name in names.values() if name not in npz.names]
    if missing:
        raise ZooError(f"it has no {one_line(missing[0])}")
    arrays = {key: npz.array(name) for key, name in names.items()}
    return arrays if keys is not None else arrays[""]
