"""Expert data as Stable-Baselines' `generate_expert_traj` wrote them: an archive, images in files beside it.

Its arrays are ``obs``, ``actions``, ``rewards``, ``episode_returns`` and ``episode_starts``; discrete actions
have the shape (n_steps, 1). Of images ``obs`` holds the paths.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from gymnasium import spaces as gym_spaces

from zoo.envs.spaces import Space, describe, is_image
from zoo.errors import ZooError
from zoo.files.npz import Npz
from zoo.files.opening import TEXT_LIMIT, Folder
from zoo.files.printing import one_line
from zoo.memory.expert_data import ExpertData, episode_lengths
from zoo.memory.expert_problems import in_shape_of, in_type_of

Array = np.ndarray

NAMES = ("actions", "obs", "rewards", "episode_returns", "episode_starts")
UNKNOWN = "of an unknown environment (Stable-Baselines' files do not say)"

PATH_LIMIT = 4096
"""Characters that the path of an image may have, as Linux takes them."""
FOLDERS_LIMIT = 64
"""Folders that it may have in it: an image is looked for below each of them."""

BLUE_FIRST = {4: [2, 1, 0, 3]}
"""Where OpenCV, which wrote the files, put the channels of an observation that has four of them."""


def read(npz: Npz, path: Path, spaces: tuple[Space, Space] | None, limit: int | None) -> ExpertData:
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
        observations = _images(observations.reshape(-1), path.parent, limit)
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


def _images(paths: Sequence[str] | Array, folder: Path, limit: int | None) -> Array:
    """Return these images, (n_steps, height, width, channels); none from outside of ``folder``."""
    if not len(paths):
        return np.zeros((0, 1, 1, 1), np.uint8)
    files = Folder(folder)
    first = _image(files, paths[0], None)
    needed = len(paths) * first.size
    if limit is not None and needed > limit:
        raise ZooError(
            f"the images beside {one_line(folder)} need {needed / 2**30:.2f} GiB of memory, but"
            f" {limit / 2**30:.2f} GiB are to be had"
        )
    images = np.empty((len(paths), *first.shape), np.uint8)
    for index, path in enumerate(paths):
        images[index] = _image(files, path, first.shape)
    return images


def _image(files: Folder, path: str, shape: tuple[int, ...] | None) -> Array:
    image = _image_module()
    contents = (files.read(name, TEXT_LIMIT) for name in _places(path))
    content = next((each for each in contents if each is not None), None)
    if content is None:
        raise ZooError(f"the image {one_line(path)} is not in {one_line(files.path)}")
    try:
        with image.open(io.BytesIO(content), formats=["PNG", "JPEG"]) as opened:
            size = opened.size[1], opened.size[0], len(opened.getbands())
            if shape is not None and size != shape:
                raise ZooError(f"the image {one_line(path)} is {size}, others are {shape}")
            if math.prod(size) > TEXT_LIMIT:
                raise ZooError(f"the image {one_line(path)} has {math.prod(size):,} bytes")
            array = np.asarray(opened, np.uint8).reshape(size)
    except (OSError, ValueError, SyntaxError, image.DecompressionBombError) as error:
        raise ZooError(f"the image {one_line(path)} can't be read: {one_line(error)}") from error
    return array[..., BLUE_FIRST[size[2]]] if size[2] in BLUE_FIRST else array


def _places(path: str) -> Iterator[str]:
    """Give where an image may be, seen from the archive; its path may begin where that was written from."""
    if len(path) > PATH_LIMIT or path.count("/") + path.count("\\") > FOLDERS_LIMIT:
        return
    pure = PurePath(str(path).replace("\\", "/"))
    if ".." in pure.parts:
        return
    if not pure.is_absolute():
        yield str(path)
    for i in range(1, len(pure.parts)):
        yield "/".join(pure.parts[i:])


def _image_module() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise ZooError("reading images needs: pip install pillow") from error
    return Image
