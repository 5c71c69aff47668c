"""Expert data as Stable-Baselines' `generate_expert_traj` wrote them: an archive, images in files beside it.

Its arrays are ``obs``, ``actions``, ``rewards``, ``episode_returns`` and ``episode_starts``; discrete actions
have the shape (n_steps, 1). Of images ``obs`` holds the paths.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from gymnasium import spaces as gym_spaces

from zoo.envs.spaces import Space, describe, is_image
from zoo.errors import ZooError
from zoo.files.printing import one_line
from zoo.files.zips import Npz
from zoo.memory.expert_data import ExpertData, episode_lengths
from zoo.memory.expert_problems import in_shape_of, in_type_of

Array = np.ndarray

NAMES = ("actions", "obs", "rewards", "episode_returns", "episode_starts")
UNKNOWN = "of an unknown environment (Stable-Baselines' files do not say)"

BLUE_FIRST = {4: [2, 1, 0, 3]}
"""Where OpenCV, which wrote the files, put the channels of an observation that has four of them."""


def read(npz: Npz, path: Path, spaces: tuple[Space, Space] | None) -> ExpertData:
    """Return what the archive at ``path`` holds. Raises `ZooError` for what does not fit ``spaces``.

    Without spaces these are guessed: as many actions as occur, numbers without bounds.
    """
    missing = [name for name in NAMES if name not in npz.names]
    if missing:
        raise ZooError(
            f"{one_line(path)} is no expert data: it has no {missing[0]} (it has {one_line(npz.names)})"
        )
    arrays = {name: npz.array(name) for name in NAMES}
    for name in ("actions", "obs"):
        if not arrays[name].ndim:
            raise ZooError(f"{one_line(path)} is damaged: its {name} are a single value, expected one a step")
    rewards = arrays["rewards"].reshape(-1)
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
            rewards.astype(np.float32),
            episode_lengths(arrays["episode_starts"].reshape(-1).astype(np.bool_)),
            arrays["episode_returns"].reshape(-1).astype(np.float64),
            card={"env": None, "source": {"format": "Stable-Baselines", "file": path.name}},
        )
    except ZooError as error:
        raise ZooError(f"{one_line(path)} does not fit: {error}") from error


def _observations(array: Array, space: Space) -> Array:
    """Return them in the type of the space; those of one number a step came as (n_steps, 1)."""
    if not isinstance(
        space, gym_spaces.Box | gym_spaces.Discrete | gym_spaces.MultiDiscrete | gym_spaces.MultiBinary
    ):
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


# -- images in files --------------------------------------------------------------------------------------


def _images(paths: Sequence[str] | Array, folder: Path) -> Array:
    """Return these images, (n_steps, height, width, channels); none from outside of ``folder``."""
    if not len(paths):
        return np.zeros((0, 1, 1, 1), np.uint8)
    images = [_image(folder, str(path)) for path in paths]
    shapes = {image.shape for image in images}
    if len(shapes) > 1:
        raise ZooError(f"the images beside {one_line(folder)} have the shapes {sorted(shapes)}, expected one")
    return np.stack(images)


def _image(folder: Path, path: str) -> Array:
    image = _image_module()
    found = next((place for name in _places(path) if (place := folder / name).is_file()), None)
    if found is None:
        raise ZooError(f"the image {one_line(path)} is not in {one_line(folder)}")
    try:
        with image.open(found, formats=["PNG", "JPEG"]) as opened:
            shape = opened.size[1], opened.size[0], len(opened.getbands())
            array = np.asarray(opened, np.uint8).reshape(shape)
    except (OSError, ValueError, SyntaxError) as error:
        raise ZooError(f"the image {one_line(path)} can't be read: {one_line(error)}") from error
    return array[..., BLUE_FIRST[shape[2]]] if shape[2] in BLUE_FIRST else array


def _places(path: str) -> Iterator[str]:
    """Give where an image may be, seen from the archive; its path may begin where that was written from."""
    pure = PurePath(path.replace("\\", "/"))
    if ".." in pure.parts:
        return
    if not pure.is_absolute():
        yield path
    for i in range(1, len(pure.parts)):
        yield "/".join(pure.parts[i:])


def _image_module() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise ZooError("reading images needs: pip install pillow") from error
    return Image
