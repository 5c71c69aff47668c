"""Files of tuned values: which one is meant, and what it holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from zoo.config import sections
from zoo.config.hydra_internals import header_of
from zoo.config.interrupts import interrupts_kept
from zoo.config.paths import search_folders, shown
from zoo.errors import ZooError, nearest

NO_TUNED = "none"
USUAL_TUNED = "usual/"
"""What the option of ``tuned`` begins with that the user did not choose, and that may be missing."""


def tuned_file(algo: str, env: str) -> Path | None:
    """Return the file of tuned values for ``algo`` on ``env``: its own, else that for Atari games, else None.

    ``./hyperparams`` is looked at before Zoo's own.
    """
    names = [env, sections.env_file_name(env), sections.env_file_name(env.rpartition(":")[2])]
    if sections.is_atari(env):
        names.append("atari")
    folders = search_folders("hyperparams")
    candidates = (folder / algo / f"{name}.yaml" for name in names for folder in folders)
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def chosen_tuned_file(option: str) -> Path | None:
    """Return the file that an option of the group ``tuned`` means, or None if there is none."""
    path = Path(option).expanduser()
    if option.endswith(".yaml"):
        return path.absolute() if path.is_file() else None
    algo, _, env = option.removeprefix(USUAL_TUNED).partition("/")
    return tuned_file(algo, env)


def no_tuned_file(option: str) -> str:
    """Return the message for an option that means no file, with the nearest that there is."""
    files = [file for folder in search_folders("hyperparams") for file in folder.glob("*/*.yaml")]
    if option.endswith(".yaml"):
        names = [*map(str, Path(option).expanduser().parent.glob("*.yaml")), *map(shown, files)]
    else:
        names = [f"{file.parent.name}/{file.stem}" for file in files]
    return f"there is no tuned file {option}{nearest(option, names)} (tuned=none leaves tuned values out)"


def chosen_policy(default: Any) -> str | None:
    """Return what ``override /policy: NAME`` in a defaults list chooses, or None for any other entry."""
    if not isinstance(default, DictConfig):
        return None
    for key, value in default.items():
        if str(key).split() == ["override", "/policy"]:
            return str(value)
    return None


def read_yaml(file: Path) -> tuple[DictConfig, dict[str, str | None]]:
    """Return what a file of the user's own holds, and what Hydra reads at its top. Raises `ZooError`."""
    try:
        with interrupts_kept():
            text = file.read_text(encoding="utf-8")
            config = OmegaConf.create(text)
    except (OSError, ValueError, RecursionError, yaml.YAMLError, OmegaConfBaseException) as error:
        raise ZooError(f"can't read {shown(file)}: {' '.join(str(error).split())}") from error
    if not isinstance(config, DictConfig):
        raise ZooError(f"{shown(file)} holds {type(config).__name__}, expected keys and values")
    return config, header_of(text)
