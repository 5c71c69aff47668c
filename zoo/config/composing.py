"""Composing a config from Python, with the same result as on the command line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from pathlib import PurePath
from typing import Any

from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from zoo.config.interrupts import interrupts_kept
from zoo.config.loading import ConfigLoader
from zoo.config.overrides import quoted
from zoo.config.paths import data_folder, search_folders
from zoo.errors import ZooError, nearest
from zoo.files.printing import one_line

SECTIONS = ("algo", "env", "policy", "memory", "pretrain", "callbacks", "logger")
"""Keys that may be given a dictionary of what is within."""


@interrupts_kept()
def compose(command: str = "train", overrides: Sequence[str] = ()) -> DictConfig:
    """Return the checked config of ``zoo <command> <overrides>``, with every interpolation resolved.

    Works anywhere and any number of times, also inside of a running Hydra job. Raises `ZooError`.
    """
    ours = data_folder("conf")
    known = set() if ours is None else {file.stem for file in ours.glob("*.yaml")}
    if command not in known:
        raise ZooError(f"unknown command '{command}'{nearest(command, sorted(known))}")
    config = ConfigLoader(command).load_configuration(command, list(overrides), RunMode.RUN, from_shell=False)
    return OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])


def as_overrides(settings: Mapping[str, Any]) -> list[str]:
    """Return settings with values of Python's as overrides; what is within a section may be a dictionary.

    ``{"n_envs": 4, "algo": {"gamma": 0.9}}`` is ``n_envs=4 algo.gamma=0.9``.
    """
    overrides = []
    for key, value in settings.items():
        if key in SECTIONS and isinstance(value, Mapping):
            overrides += [f"{key}.{name}={as_hydra_reads(each)}" for name, each in value.items()]
        else:
            overrides.append(f"{key}={as_hydra_reads(value)}")
    return overrides


def as_hydra_reads(value: Any) -> str:
    """Return a value of Python's in Hydra's grammar. Raises `ZooError` for one that no config can hold."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str | PurePath):
        return quoted(str(value))
    if isinstance(value, Real):
        return repr(int(value) if isinstance(value, Integral) else float(value))
    if isinstance(value, Mapping) and all(re.fullmatch(r"[\w.-]+", str(key)) for key in value):
        return f"{{{','.join(f'{key}:{as_hydra_reads(each)}' for key, each in value.items())}}}"
    if isinstance(value, Sequence):
        return f"[{','.join(map(as_hydra_reads, value))}]"
    raise ZooError(
        f"{one_line(repr(value))} can't stand in a config; expected numbers, texts, lists or dicts of names"
    )


def env_id(name: str) -> str:
    """Return the id that ``env=name`` stands for: what ``conf/env/<name>.yaml`` says, where there is one.

    Raises `ZooError` if that file can't be composed.
    """
    if not any((folder / "env" / f"{name}.yaml").is_file() for folder in search_folders("conf")):
        return name
    return str(compose("check", [f"env='{name}'"]).env.id)
