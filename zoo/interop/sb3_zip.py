"""The files of a Stable-Baselines3 agent as plain data, spaces and arrays; no code that they name is run.

Its zip holds ``data`` (JSON, in which what JSON can't hold is a pickle, with its printed form beside it),
``policy.pth`` and ``pytorch_variables.pth`` (tensors, by ``torch.save``). Statistics of its `VecNormalize`
are a pickle of their own. Tensors are read by `torch.load` with ``weights_only``, pickles by an unpickler
that knows NumPy's arrays and Gymnasium's spaces, and makes an empty object of everything else.
"""

from __future__ import annotations

import base64
import io
import os
import pickle
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from zoo.core.plain_data import parse_json
from zoo.core.printing import one_line
from zoo.core.tensors import Arrays
from zoo.core.zips import UNREADABLE, read_zip
from zoo.envs.config import NormalizeConfig
from zoo.envs.normalize import RETURN, SINGLE, Normalizer
from zoo.envs.spaces import describe
from zoo.errors import ZooError, nearest

DATA, POLICY, VARIABLES, VERSION = "data", "policy.pth", "pytorch_variables.pth", "_stable_baselines3_version"

BEST, STATISTICS = "best_model.zip", ("vec_normalize.pkl", "vecnormalize.pkl")

PICKLED = ":serialized:"

_ARRAY_FUNCTIONS = {
    "numpy": ("ndarray", "dtype"),
    "numpy.core.multiarray": ("_reconstruct", "scalar"),
    "numpy.core.numeric": ("_frombuffer",),
    "_codecs": ("encode",),
    "collections": ("OrderedDict",),
}
"""Functions that pickled arrays call, by module; NumPy 2 has them in ``numpy._core``."""

_UNREADABLE = (pickle.UnpicklingError, ImportError, *UNREADABLE)  # what `pickle` raises for a damaged pickle


@dataclass(frozen=True)
class Sb3Files:
    """Content of the zip: plain values, tensors by SB3's names, and SB3's version."""

    origin: str
    data: dict[str, Any]
    tensors: Arrays
    variables: Arrays
    version: str | None

    @property
    def module(self) -> str:
        """The module of the policy's class."""
        return str(self.printed("policy_class").get("__module__"))

    def plain(self, key: str) -> Any:
        """Return a value that JSON holds as it is; None if there is none or it is pickled."""
        value = self.data.get(key)
        return None if is_pickled(value) else value

    def printed(self, key: str) -> Mapping[str, Any]:
        """Return the printed form of a pickled value, or a plain mapping as it is; else an empty mapping."""
        value = self.data.get(key)
        return value if isinstance(value, Mapping) else {}

    def space(self, key: str) -> spaces.Space[Any] | None:
        """Return a space, None if it can't be read."""
        try:
            space = _unpickled(base64.b64decode(self.printed(key)[PICKLED]))
        except _UNREADABLE:
            return None
        return space if isinstance(space, spaces.Space) else None


def is_pickled(value: Any) -> bool:
    """Whether a value of ``data`` is a pickle."""
    return isinstance(value, Mapping) and PICKLED in value


def read_sb3(path: str | os.PathLike[str]) -> Sb3Files:
    """Read the zip of an agent. Raises `ZooError` if it is another one or damaged."""
    file = existing(path)
    origin = one_line(file)
    try:
        files = read_zip(file, (DATA, POLICY, VARIABLES, VERSION, "parameters"), main=DATA)
        data, weights, variables, version = map(files.get, (DATA, POLICY, VARIABLES, VERSION))
        if data is None or weights is None:
            older = "; files of Stable-Baselines 2 are not read" if "parameters" in files else ""
            raise ZooError(f"{origin} is not an agent of Stable-Baselines3: no {DATA} or {POLICY}{older}")
        return Sb3Files(
            origin,
            parse_json(data),
            _tensors(weights),
            {} if variables is None else _tensors(variables),
            None if version is None else one_line(version.decode("utf-8", "replace"), 40),
        )
    except _UNREADABLE as error:
        raise ZooError(f"{origin} is not an agent of Stable-Baselines3: {one_line(error)}") from error


def existing(path: str | os.PathLike[str]) -> Path:
    """Return the path of a file, also if its ending was left out. Raises `ZooError` if there is none."""
    source = Path(path).expanduser()
    zips = sorted(source.glob("*.zip"))
    likely = [source, source.with_name(f"{source.name}.zip"), source / BEST, *zips[: len(zips) == 1]]
    if files := [file for file in likely if file.is_file()]:
        return files[0]
    if source.is_dir():
        listed = f"; name one of {', '.join(file.name for file in zips)}" if zips else ""
        raise ZooError(f"{one_line(source)} is a folder; an agent of Stable-Baselines3 is a zip{listed}")
    names = [entry.name for entry in source.parent.iterdir()] if source.parent.is_dir() else []
    raise ZooError(f"there is no file {one_line(source)}{nearest(source.name, names)}")


def statistics_beside(agent: Path) -> Path | None:
    """Return the file of `VecNormalize` that the Hub, rl_zoo3 and SB3's checkpoints keep with an agent's zip.

    Raises `ZooError` if several might be meant.
    """
    of_step = re.sub(r"_(\d+_steps)$", r"_vecnormalize_\1.pkl", agent.stem)
    for names in ([of_step], STATISTICS, [f"{agent.stem}/{name}" for name in STATISTICS]):
        if files := [file for name in names if (file := agent.parent / name).is_file()]:
            return files[0]
    files = [file for name in STATISTICS for file in sorted(agent.parent.glob(f"*/{name}"))]
    if len(files) > 1:
        listed = ", ".join(one_line(file) for file in files)
        raise ZooError(f"several VecNormalize files: {listed}; choose normalize=FILE or normalize=none")
    return next(iter(files), None)


def _tensors(content: bytes) -> Arrays:
    """Return the tensors of a dictionary that `torch.save` wrote, by name; other values are left out."""
    import torch

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loaded = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ZooError("it holds other things than tensors where only tensors belong; refused") from error
    tensors = loaded.items() if isinstance(loaded, Mapping) else ()
    return {name: tensor.detach().numpy() for name, tensor in tensors if isinstance(tensor, torch.Tensor)}


# Pickles


class _Placeholder:
    """Placeholder for an object of an unknown class: it keeps its state and does nothing."""

    path = ""
    """Module and name of its class."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.state: Any = {}

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __call__(self, *arguments: Any, **options: Any) -> _Placeholder:
        return _Placeholder()

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def append(self, value: Any) -> None:
        pass


class _Unpickler(pickle.Unpickler):
    """Makes arrays and spaces, and of all other classes and functions `_Placeholder`."""

    def find_class(self, module: str, name: str) -> Any:
        if name in _ARRAY_FUNCTIONS.get(module.replace("numpy._core.", "numpy.core."), ()):
            return super().find_class(module, name)
        if module.startswith(("gym.spaces", "gymnasium.spaces")):
            space_class = getattr(spaces, name, None)
            if isinstance(space_class, type) and issubclass(space_class, spaces.Space):
                return space_class
        return type(name.rpartition(".")[2], (_Placeholder,), {"path": f"{module}.{name}"})


def _unpickled(content: bytes) -> Any:
    return _Unpickler(io.BytesIO(content)).load()


# VecNormalize


def read_vecnormalize(
    path: str | os.PathLike[str], observation_space: spaces.Space[Any]
) -> tuple[Normalizer, NormalizeConfig]:
    """Return the statistics and settings that `VecNormalize.save` wrote.

    Raises `ZooError` if the file is another one, or of other observations.
    """
    file = Path(path).expanduser()
    try:
        pickled = _unpickled(file.read_bytes())
        if not isinstance(pickled, _Placeholder) or not pickled.path.endswith(".VecNormalize"):
            raise ValueError("it is something else")
        state: Mapping[str, Any] = pickled.state
        observed = state["obs_rms"] if state.get("norm_obs", True) else {}
        by_key = observed if isinstance(observed, Mapping) else {SINGLE: observed}
        numbers = ("clip_obs", "clip_reward", "gamma", "epsilon")
        config = NormalizeConfig(
            observations=bool(by_key),
            rewards=state.get("norm_reward", True),
            keys=[*by_key] if isinstance(observed, Mapping) and observed else None,
            **{name: float(state[name]) for name in numbers if name in state},
        )
        moments = {key: moment.state for key, moment in {**by_key, RETURN: state["ret_rms"]}.items()}
    except _UNREADABLE as error:
        raise ZooError(
            f"normalize={one_line(file)} can't be read as what VecNormalize.save() wrote: {one_line(error)}"
        ) from error
    normalizer = Normalizer(observation_space, config)
    own_moments = {**normalizer.moments, RETURN: normalizer.return_moments}
    for key, moment in moments.items():
        mean, var = (np.asarray(moment[name], np.float64) for name in ("mean", "var"))
        if key not in own_moments or own_moments[key].mean.shape != mean.shape:
            raise ZooError(
                f"the statistics in the file of normalize= have shape {list(mean.shape)},"
                f" but its observations are {describe(observation_space)}; normalize=none leaves them out"
            )
        own_moments[key].merge(float(moment["count"]), mean, var * float(moment["count"]))
    return normalizer, config
