"""Expert data on the disk: Zoo's own archives, Stable-Baselines' and Minari's datasets.

Zoo's is one compressed NumPy archive, laid out as Stable-Baselines' are, with a card. ``obs``, ``actions``
(of dictionaries and tuples ``obs/<key>``, ``actions/<path>``), ``rewards``, ``episode_starts`` and
``action_masks`` have a row a step; ``episode_returns``, ``episode_terminated`` and ``episode_successes`` an
entry an episode. ``card.json`` has both spaces, and what else was written down.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from gymnasium import spaces as gym_spaces
from numpy.lib.npyio import NpzFile

from zoo.buffers.arrays import Arrays
from zoo.core.free_memory import refuse_what_does_not_fit
from zoo.core.plain_data import parse_json, to_json
from zoo.core.printing import one_line
from zoo.core.zips import opened_npz, write_npz
from zoo.envs.spaces import (
    Space,
    check_supported,
    describe,
    flat_parts,
    flat_space,
    is_composite,
    is_image,
    leaf_spaces,
    leaves,
    space_from_dict,
    space_to_dict,
    unsupported_space,
)
from zoo.errors import ZooError, install_command
from zoo.imitation.expert_data import ExpertData, episode_lengths, in_shape_of, in_type_of

Array = np.ndarray
Spaces = tuple[Space, Space]

FORMAT = 1
"""The version of the format that this Zoo writes."""

CARD = "card.json"
OPTIONAL = {
    "terminated": "episode_terminated",
    "successes": "episode_successes",
    "action_masks": "action_masks",
}
MINARI = "minari:"
PLAIN = gym_spaces.Box | gym_spaces.Discrete | gym_spaces.MultiDiscrete | gym_spaces.MultiBinary


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
    if str(path).startswith(MINARI):
        data = _read_minari(str(path))
    else:
        data = _read_npz(Path(path).expanduser(), spaces)
    if spaces is not None:
        data.check_spaces(*spaces, name=one_line(path))
    return data


def _read_npz(path: Path, spaces: Spaces | None) -> ExpertData:
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
            return _assembled(npz, card)
        except ZooError as error:
            raise ZooError(f"{one_line(path)} is damaged: {error}") from error


def _assembled(npz: NpzFile, card: dict[str, Any]) -> ExpertData:
    observation_space, action_space = (
        space_from_dict(card.pop(name)) for name in ("observation_space", "action_space")
    )
    check_supported(observation_space, action_space)
    keys = list(observation_space.spaces) if hasattr(observation_space, "spaces") else None
    paths = [path for path, _ in leaf_spaces(action_space)] if is_composite(action_space) else None
    optional = {field: _numbers(npz, name) for field, name in OPTIONAL.items() if name in npz.files}
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


def _numbers(npz: NpzFile, name: str) -> Array:
    array = npz[name]
    if array.dtype.kind not in "biuf" or not array.ndim:
        raise ZooError(f"its {name} are {array.dtype} of shape {array.shape}, expected rows of numbers")
    return array


def _named(prefix: str, column: Arrays) -> dict[str, Array]:
    """Return the arrays of a column by their names in the archive."""
    if isinstance(column, Mapping):
        return {f"{prefix}/{key}": array for key, array in column.items()}
    return {prefix: column}


def _column(npz: NpzFile, prefix: str, keys: list[str] | None) -> Arrays:
    return npz[prefix] if keys is None else {key: npz[f"{prefix}/{key}"] for key in keys}


# -- Minari's local datasets, by its own package ----------------------------------------------------------


def _read_minari(name: str) -> ExpertData:
    """Return the dataset of ``minari:ID``, which has to be on this machine."""
    try:
        import minari
    except ImportError as error:
        raise ZooError(f"reading Minari's datasets needs: {install_command('minari')}") from error
    dataset_id = name.removeprefix(MINARI)
    try:
        dataset = minari.load_dataset(dataset_id)
        observation_space, action_space = flat_space(dataset.observation_space), dataset.action_space
        check_supported(observation_space, action_space)
        parts = observation_space.values() if isinstance(observation_space, gym_spaces.Dict) else None
        row = sum(
            int(np.prod(part.shape or (1,))) * np.dtype(part.dtype).itemsize
            for part in ([observation_space] if parts is None else parts)
        )
        # Twice, while episodes are joined.
        refuse_what_does_not_fit(one_line(name), 2 * int(dataset.total_steps) * row)
        episodes = list(dataset.iterate_episodes())
    except (KeyError, ValueError, OSError, ImportError) as error:
        raise ZooError(
            f"Minari has no {one_line(dataset_id)} that it can read here: {one_line(error)};"
            f" minari download {one_line(dataset_id)} gets one"
        ) from error
    if not episodes:
        raise ZooError(f"{one_line(name)} is empty")
    lengths = np.array([len(each.rewards) for each in episodes], np.int64)
    rewards = [np.asarray(each.rewards, np.float64).reshape(-1) for each in episodes]
    env = dataset.env_spec
    return ExpertData(
        observation_space,
        action_space,
        _minari_observations([each.observations for each in episodes], lengths, observation_space),
        _minari_actions([each.actions for each in episodes], action_space),
        np.concatenate(rewards).astype(np.float32),
        lengths,
        np.array([each.sum() for each in rewards]),
        terminated=np.array([bool(np.asarray(each.terminations)[-1]) for each in episodes]),
        successes=_minari_successes(episodes),
        card={"env": None if env is None else env.id, "source": {"format": "Minari", "dataset": dataset_id}},
    )


def _minari_observations(episodes: list[Any], lengths: Array, space: Space) -> Arrays:
    """Return what was seen before each action; the last observation of an episode stands behind them."""
    if isinstance(space, gym_spaces.Dict):
        episodes = [dict(flat_parts(space, each)) for each in episodes]
        return {
            key: _minari_observations([each[key] for each in episodes], lengths, part)
            for key, part in space.spaces.items()
        }
    if not isinstance(space, PLAIN):
        raise ZooError("observations: " + unsupported_space(space))
    parts = [np.asarray(each)[:n] for each, n in zip(episodes, lengths, strict=True)]
    return in_type_of(space, np.concatenate(parts), "observations", "observation")


def _minari_actions(episodes: list[Any], space: Space) -> Arrays:
    if not is_composite(space):
        joined = np.concatenate([np.asarray(each) for each in episodes])
        return in_type_of(space, joined, "actions", "action")
    by_path = [dict(leaves(space, each)) for each in episodes]
    return {
        path: in_type_of(
            part, np.concatenate([np.asarray(each[path]) for each in by_path]), f"actions, {path}", "action"
        )
        for path, part in leaf_spaces(space)
    }


def _minari_successes(episodes: list[Any]) -> Array | None:
    """Return whether each episode was a success at its end, where all say so."""
    successes = []
    for episode in episodes:
        infos = episode.infos if isinstance(episode.infos, Mapping) else {}
        name = next((name for name in ("is_success", "success") if name in infos), None)
        if name is None:
            return None
        successes.append(bool(np.asarray(infos[name]).reshape(-1)[-1]))
    return np.array(successes)


# -- archives of Stable-Baselines' `generate_expert_traj` -------------------------------------------------


def _read_stable_baselines(npz: NpzFile, path: Path, spaces: Spaces | None) -> ExpertData:
    """Return what the archive holds; discrete actions have the shape (n_steps, 1), images are paths of files.

    Without spaces these are guessed: as many actions as occur, numbers without bounds.
    """
    names = ("actions", "obs", "rewards", "episode_returns", "episode_starts")
    missing = [name for name in names if name not in npz.files]
    if missing:
        raise ZooError(
            f"{one_line(path)} is no expert data: it has no {missing[0]} (it has {one_line(npz.files)})"
        )
    arrays = {name: np.atleast_1d(npz[name]) for name in names}
    observations = arrays["obs"]
    if observations.dtype.kind == "U":
        observations = _images(observations.reshape(-1), path.parent)
    observation_space, action_space = spaces or (
        _observation_space(observations),
        _action_space(arrays["actions"]),
    )
    try:
        return ExpertData(
            observation_space,
            action_space,
            _observations(observations, observation_space),
            _actions(arrays["actions"], action_space),
            arrays["rewards"].reshape(-1).astype(np.float32),
            episode_lengths(arrays["episode_starts"].reshape(-1).astype(np.bool_)),
            arrays["episode_returns"].reshape(-1).astype(np.float64),
            card={"env": None, "source": {"format": "Stable-Baselines", "file": path.name}},
        )
    except ZooError as error:
        raise ZooError(f"{one_line(path)} does not fit: {error}") from error


def _observations(array: Array, space: Space) -> Array:
    """Return them in the type of the space; those of one number a step came as (n_steps, 1)."""
    if not isinstance(space, PLAIN):
        raise ZooError(f"Stable-Baselines' files hold no observations of {describe(space)}")
    if is_image(space) and array.dtype != np.uint8:
        raise ZooError(f"observations of type {array.dtype}, expected bytes: {describe(space)}")
    return in_type_of(space, in_shape_of(space, array, "observations"), "observations", "observation")


def _actions(array: Array, space: Space) -> Array:
    """Return them in the type of the space; numbers (Box) within its bounds, as the environment took them."""
    actions = in_shape_of(space, array, "actions")
    if isinstance(space, gym_spaces.Box):
        actions = actions.clip(space.low, space.high)
    return in_type_of(space, actions, "actions", "action")


def _observation_space(observations: Array) -> Space:
    if observations.dtype == np.uint8 and observations.ndim > 2 and observations.max(initial=0) > 1:
        return gym_spaces.Box(0, 255, observations.shape[1:], np.uint8)
    dtype = np.float64 if observations.dtype == np.float64 else np.float32
    return gym_spaces.Box(-np.inf, np.inf, observations.shape[1:], dtype)


def _action_space(actions: Array) -> Space:
    if actions.dtype.kind in "iub" and math.prod(actions.shape[1:]) == 1:
        return gym_spaces.Discrete(int(actions.max(initial=0)) + 1)
    if actions.dtype.kind in "iub":
        return gym_spaces.MultiDiscrete(actions.max(axis=0, initial=0).astype(np.int64) + 1)
    return gym_spaces.Box(-np.inf, np.inf, actions.shape[1:], np.float32)


def _images(paths: Array, folder: Path) -> Array:
    """Return these images, (n_steps, height, width, channels); none from outside of ``folder``."""
    images = [_image(folder, str(path)) for path in paths]
    shapes = {image.shape for image in images}
    if len(shapes) != 1:
        raise ZooError(f"the images beside {one_line(folder)} have the shapes {sorted(shapes)}, expected one")
    return np.stack(images)


def _image(folder: Path, path: str) -> Array:
    """Read an image; its path may begin where the archive was written from."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ZooError("reading images needs: pip install pillow") from error
    parts = PurePath(path.replace("\\", "/")).parts
    places = [folder.joinpath(*parts[i:]) for i in range(len(parts)) if ".." not in parts and parts[i] != "/"]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise ZooError(f"the image {one_line(path)} is not in {one_line(folder)}")
    try:
        with Image.open(found, formats=["PNG", "JPEG"]) as opened:
            shape = opened.size[1], opened.size[0], len(opened.getbands())
            array = np.asarray(opened, np.uint8).reshape(shape)
    except (OSError, ValueError, SyntaxError) as error:
        raise ZooError(f"the image {one_line(path)} can't be read: {one_line(error)}") from error
    # OpenCV, which wrote the files, put blue first where an observation has four channels.
    return array[..., [2, 1, 0, 3]] if shape[2] == 4 else array
