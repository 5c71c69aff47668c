"""Composing a config from Python, with the same result as on the command line."""

from __future__ import annotations

from collections.abc import Sequence

from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from zoo.config.loading import ConfigLoader


def compose(command: str = "train", overrides: Sequence[str] = ()) -> DictConfig:
    """Return the checked config of ``zoo <command> <overrides>``, with every interpolation resolved.

    Works anywhere and any number of times, also inside of a running Hydra job. Raises `ZooError`.
    """
    config = ConfigLoader(command).load_configuration(command, list(overrides), RunMode.RUN, from_shell=False)
    return OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
