"""Expert data on the disk: Zoo's own archives, and Stable-Baselines'.

Zoo's is one compressed NumPy archive, laid out as Stable-Baselines' are, with a card. ``obs``, ``actions``
(of dictionaries and tuples ``obs/<key>``, ``actions/<path>``), ``rewards``, ``episode_starts`` and
``action_masks`` have a row a step; ``episode_returns``, ``episode_terminated`` and ``episode_successes`` an
entry an episode. ``card.json`` has both spaces, and what else was written down.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces as gym_spaces
from numpy.lib.npyio import NpzFile

from zoo.buffers.arrays import Arrays
from zoo.core.plain_data import parse_json, to_json
from zoo.core.printing import one_line
from zoo.core.zips import opened_npz, write_npz
from zoo.envs.spaces import (
    PLAIN,
    Space,
    check_supported,
    describe,
    is_composite,
    leaf_spaces,
    space_from_dict,
    space_to_dict,
)
from zoo.errors import ZooError
from zoo.imitation.expert_data import ExpertData, values_of

Array = np.ndarray
Spaces = tuple[Space, Space]

FORMAT = 1  # the version of the format that this Zoo writes

CARD = "card.json"
OPTIONAL = {
    "terminated": "episode_terminated",
    "successes": "episode_successes",
    "action_masks": "action_masks",
}
STABLE_BASELINES = ("actions", "obs", "rewards", "episode_returns", "episode_starts")
"""What the archives of Stable-Baselines' `generate_expert_traj` hold."""


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
    """Read Zoo's or Stable-Baselines' ``.npz``; nothing in it is run.

    ``spaces`` are those of the environment to learn in, of observations and actions: data of others are
    refused. Stable-Baselines' files do not say theirs. Raises `ZooError` for what is missing or damaged.
    """
    path = Path(path).expanduser()
    with opened_npz(path) as npz:
        if CARD not in npz.files:
            return _read_stable_baselines(npz, path, spaces)
        content: Any = npz[CARD]  # bytes, as it is no array
        card = parse_json(content)
        if card.get("format") != FORMAT:
            raise ZooError(
                f"{one_line(path)} has the format {one_line(card.get('format'))}, this Zoo reads {FORMAT}"
            )
        try:
            data = _assembled(npz, card)
        except ZooError as error:
            raise ZooError(f"{one_line(path)} is damaged: {error}") from error
    if spaces is not None:
        data.check_spaces(*spaces, name=one_line(path))
    return data


def _assembled(npz: NpzFile, card: dict[str, Any]) -> ExpertData:
    observation_space, action_space = (
        space_from_dict(card.pop(name)) for name in ("observation_space", "action_space")
    )
    check_supported(observation_space, action_space)
    keys = list(observation_space) if isinstance(observation_space, gym_spaces.Dict) else None
    paths = [path for path, _ in leaf_spaces(action_space)] if is_composite(action_space) else None
    optional = {field: npz[name] for field, name in OPTIONAL.items() if name in npz.files}
    return ExpertData(
        observation_space,
        action_space,
        observations=_column(npz, "obs", keys),
        actions=_column(npz, "actions", paths),
        rewards=npz["rewards"],
        lengths=_episode_lengths(npz["episode_starts"]),
        returns=npz["episode_returns"],
        card=card,
        **{field: array.astype(np.bool_) for field, array in optional.items()},
    )


def _named(prefix: str, column: Arrays) -> dict[str, Array]:
    """Return the arrays of a column by their names in the archive."""
    if isinstance(column, Mapping):
        return {f"{prefix}/{key}": array for key, array in column.items()}
    return {prefix: column}


def _column(npz: NpzFile, prefix: str, keys: Iterable[str] | None) -> Arrays:
    return npz[prefix] if keys is None else {key: npz[f"{prefix}/{key}"] for key in keys}


def _episode_lengths(episode_starts: Array) -> Array:
    starts = np.flatnonzero(episode_starts)
    if not len(starts) or starts[0]:
        raise ZooError("its first step is not the start of an episode")
    return np.diff(np.append(starts, len(episode_starts))).astype(np.int64)


def _read_stable_baselines(npz: NpzFile, path: Path, spaces: Spaces | None) -> ExpertData:
    """Return what an archive of Stable-Baselines holds; discrete actions have the shape (n_steps, 1)."""
    missing = [name for name in STABLE_BASELINES if name not in npz.files]
    if missing:
        raise ZooError(
            f"{one_line(path)} is no expert data: it has no {missing[0]} (it has {one_line(npz.files)})"
        )
    if spaces is None:
        raise ZooError(f"{one_line(path)} is Stable-Baselines', which does not say of which spaces it is")
    arrays = {name: np.atleast_1d(npz[name]) for name in STABLE_BASELINES}
    observation_space, action_space = spaces
    actions = arrays["actions"]
    if isinstance(action_space, gym_spaces.Box) and actions.dtype.kind in "biuf":
        actions = actions.clip(action_space.low, action_space.high)  # as the environment took them
    try:
        for space in spaces:
            if not isinstance(space, PLAIN):
                raise ZooError(f"Stable-Baselines' files hold nothing of {describe(space)}")
        return ExpertData(
            observation_space,
            action_space,
            values_of(observation_space, arrays["obs"], "observations", within_bounds=False),
            values_of(action_space, actions, "actions"),
            arrays["rewards"].reshape(-1).astype(np.float32),
            _episode_lengths(arrays["episode_starts"].reshape(-1)),
            arrays["episode_returns"].reshape(-1).astype(np.float64),
            card={"env": None, "source": {"format": "Stable-Baselines", "file": path.name}},
        )
    except ZooError as error:
        raise ZooError(f"{one_line(path)} does not fit: {error}") from error
