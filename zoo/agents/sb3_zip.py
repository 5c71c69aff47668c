"""The files of a Stable-Baselines3 agent as plain data and arrays; nothing in them is unpickled.

Its zip holds ``data`` (JSON, in which what JSON can't hold is a pickle, with its printed form beside it),
``policy.pth`` and ``pytorch_variables.pth`` (tensors, by ``torch.save``). Statistics of its `VecNormalize`
are a pickle of their own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from zoo.errors import ZooError, nearest
from zoo.files.opening import TEXT_LIMIT, DamagedFileError, Folder
from zoo.files.pickled import Array, Made, UnreadablePickleError, array_in, read_pickle
from zoo.files.plain_data import parse_json
from zoo.files.printing import one_line
from zoo.files.tensors import Arrays
from zoo.files.torch_files import read_state_dict
from zoo.files.zips import UnreadableZipError, Zip

DATA, POLICY, VARIABLES, VERSION = "data", "policy.pth", "pytorch_variables.pth", "_stable_baselines3_version"

DATA_LIMIT = 64 * 2**20
"""Bytes of the JSON: it also holds the last observations, which may be images."""
WEIGHTS_LIMIT = 4 * 2**30
STATISTICS_LIMIT = 64 * 2**20

PICKLED, TYPE = ":serialized:", ":type:"

_OLDER = {"parameters", "parameter_list"}


@dataclass(frozen=True)
class Sb3Files:
    """What the zip says: plain values, tensors by SB3's names, and SB3's version."""

    origin: str
    data: dict[str, Any]
    tensors: Arrays
    variables: Arrays
    version: str | None

    def plain(self, key: str) -> Any:
        """Return a value that JSON holds as it is; None if there is none or it is pickled."""
        value = self.data.get(key)
        return None if is_pickled(value) else value

    def printed(self, key: str) -> Mapping[str, Any]:
        """Return what stands beside a pickled value, or a mapping itself: texts and plain values by name."""
        value = self.data.get(key)
        return value if isinstance(value, Mapping) else {}


def is_pickled(value: Any) -> bool:
    """Whether a value of ``data`` is a pickle, which nobody here reads."""
    return isinstance(value, Mapping) and PICKLED in value


def read_sb3(path: str | os.PathLike[str]) -> Sb3Files:
    """Read the zip of an agent. Raises `ZooError` for all that is not one, or that a zip should not hold."""
    given = existing(path)
    origin = one_line(given)
    try:
        archive = Zip(given, main=DATA)
        data, weights = archive.read(DATA, DATA_LIMIT), archive.read(POLICY, WEIGHTS_LIMIT)
        variables = archive.read(VARIABLES, WEIGHTS_LIMIT)
        version = archive.read(VERSION, TEXT_LIMIT)
        if data is None or weights is None:
            raise ZooError(_not_one(archive, origin))
        return Sb3Files(
            origin,
            _parsed(data),
            read_state_dict(weights, POLICY, WEIGHTS_LIMIT),
            {} if variables is None else read_state_dict(variables, VARIABLES, WEIGHTS_LIMIT),
            None if version is None else one_line(version.decode("utf-8", "replace"), 40),
        )
    except UnreadableZipError as error:
        raise ZooError(f"{origin} is not an agent of Stable-Baselines3: {error}") from error
    except DamagedFileError as error:
        raise ZooError(
            f"the agent in {origin} can't be read: {one_line(error.name)}: {error.problem}"
        ) from error
    except OSError as error:
        raise ZooError(f"can't read {origin}: {error.strerror or one_line(error)}") from error


def existing(path: str | os.PathLike[str]) -> Path:
    """Return the path of a file, also if its ending was left out. Raises `ZooError` if there is none."""
    given = Path(path).expanduser()
    if given.is_file():
        return given
    zipped = given.with_name(f"{given.name}.zip")
    if zipped.is_file():
        return zipped
    if given.is_dir():
        raise ZooError(f"{one_line(given)} is a folder; an agent of Stable-Baselines3 is a zip")
    names = [each.name for each in given.parent.iterdir()] if given.parent.is_dir() else []
    raise ZooError(f"there is no file {one_line(given)}{nearest(given.name, names)}")


def _parsed(content: bytes) -> dict[str, Any]:
    try:
        return parse_json(content)
    except ValueError as error:
        raise DamagedFileError(DATA, one_line(error)) from error


def _not_one(archive: Zip, origin: str) -> str:
    if archive.names & _OLDER:
        return (
            f"{origin} is an agent of Stable-Baselines 2, whose files are pickles;"
            " Zoo reads those of Stable-Baselines3"
        )
    if "config.yaml" in archive.names:
        return f"{origin} is an agent of Zoo already: zoo enjoy agent={origin}"
    missing = " and ".join(name for name in (DATA, POLICY) if name not in archive.names)
    return f"{origin} is not an agent of Stable-Baselines3: it has no {missing}"


# VecNormalize


@dataclass(frozen=True)
class Moments:
    """Running mean and variance of what was seen, and of how much."""

    mean: Array
    var: Array
    count: float


@dataclass(frozen=True)
class VecNormalizeStatistics:
    """What a saved `VecNormalize` holds; observations by key, or by None where there are no keys."""

    observations: dict[str | None, Moments]
    returns: Moments
    settings: dict[str, float]
    """``clip_obs``, ``clip_reward``, ``gamma`` and ``epsilon``."""
    rewards: bool


def read_vecnormalize(path: str | os.PathLike[str]) -> VecNormalizeStatistics:
    """Read the statistics that `VecNormalize.save` wrote. Raises `ZooError` if the file is another one."""
    given = Path(path).expanduser()
    origin = one_line(given)
    try:
        content = Folder(given.parent, follow_links=True).read(given.name, STATISTICS_LIMIT)
        if content is None:
            raise ZooError(f"there is no file {origin}; normalize= takes what VecNormalize.save() wrote")
        note = read_pickle(content)
        if not isinstance(note, Made) or not _class_of(note).endswith(".VecNormalize"):
            raise UnreadablePickleError("it is something else")
        return _statistics(note.state)
    except DamagedFileError as error:
        raise ZooError(f"{origin} can't be read: {error.problem}") from error
    except UnreadablePickleError as error:
        raise ZooError(f"{origin} holds no statistics of a VecNormalize: {one_line(error)}") from error
    except OSError as error:
        raise ZooError(f"can't read {origin}: {error.strerror or one_line(error)}") from error


def _class_of(note: Made) -> str:
    """Return the class of an object, however its pickle makes it."""
    if note.path in ("copyreg._reconstructor", "copy_reg._reconstructor") and note.arguments:
        return getattr(note.arguments[0], "path", "")
    return note.path


def _statistics(state: Any) -> VecNormalizeStatistics:
    if not isinstance(state, dict) or "ret_rms" not in state:
        raise UnreadablePickleError("its running means are missing")
    settings = {}
    for name, usual in (("clip_obs", 10.0), ("clip_reward", 10.0), ("gamma", 0.99), ("epsilon", 1e-8)):
        settings[name] = _number(state.get(name, usual), name)
    found = state.get("obs_rms")
    observations: dict[str | None, Moments] = {}
    if state.get("norm_obs", True) and isinstance(found, dict):
        room = STATISTICS_LIMIT  # a pickle may name the same numbers many times
        for key, note in found.items():
            moments = observations[str(key)] = _moments(note)
            room -= moments.mean.nbytes + moments.var.nbytes
            if room < 0:
                raise UnreadablePickleError("its running means are too many")
    elif state.get("norm_obs", True):
        observations = {None: _moments(found)}
    return VecNormalizeStatistics(
        observations, _moments(state["ret_rms"]), settings, state.get("norm_reward", True) is not False
    )


def _moments(note: Any) -> Moments:
    if not isinstance(note, Made) or not isinstance(note.state, dict):
        raise UnreadablePickleError("its running means are of another form")
    mean, var = (array_in(note.state.get(name)) for name in ("mean", "var"))
    if mean is None or var is None or mean.shape != var.shape:
        raise UnreadablePickleError("its running means are no numbers")
    mean, var, count = (
        mean.astype(np.float64),
        var.astype(np.float64),
        _number(note.state.get("count"), "count"),
    )
    if not (np.isfinite(mean).all() and np.isfinite(var).all() and (var >= 0).all() and count > 0):
        raise UnreadablePickleError("its running means are not finite")
    return Moments(mean, var, count)


def _number(note: Any, name: str) -> float:
    value = array_in(note)
    if value is None or value.shape != () or not np.isfinite(value):
        raise UnreadablePickleError(f"its `{name}` is no number")
    return float(value)
