"""Composing a config from Python, with the same result as on the command line."""

from __future__ import annotations

from collections.abc import Sequence

from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from zoo.config.loading import ConfigLoader
from zoo.config.paths import search_folders
from zoo.errors import ZooError, nearest


def compose(command: str = "train", overrides: Sequence[str] = ()) -> DictConfig:
    """Return the checked config of ``zoo <command> <overrides>``, with every interpolation resolved.

    Works anywhere and any number of times, also inside of a running Hydra job. Raises `ZooError`.
    """
    known = {file.stem for folder in search_folders("conf") for file in folder.glob("*.yaml")}
    if command not in known:
        raise ZooError(f"unknown command '{command}'{nearest(command, sorted(known))}")
    config = ConfigLoader(command).load_configuration(command, list(overrides), RunMode.RUN, from_shell=False)
    return OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])


def env_id(name: str) -> str:
    """Return the id that ``env=name`` stands for: what ``conf/env/<name>.yaml`` says, where there is one.

    Raises `ZooError` if that file can't be composed.
    """
    if not any((folder / "env" / f"{name}.yaml").is_file() for folder in search_folders("conf")):
        return name
    return str(compose("check", [f"env='{name}'"]).env.id)
