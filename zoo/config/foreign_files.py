"""Files for Hydra that somebody else may have made: experiments and tuned values, read as data first."""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from zoo.config.interrupts import interrupts_kept
from zoo.config.paths import shown
from zoo.errors import ZooError
from zoo.files.opening import CONFIG_LIMIT, Folder
from zoo.files.plain_data import parse_hydra_config
from zoo.files.printing import one_line

TUNED_KEYS = ("n_timesteps", "n_envs", "algo", "env", "policy", "memory", "defaults")
TUNED_DEFAULTS = ("_self_", "override /policy", "override /memory")
"""What a tuned file may have: it may come from others, and settles how well is learned, nothing else."""

USUAL_RUNS = "runs"
"""What every config has as ``runs_dir`` that says nothing else."""

_GROUP_CHOICE = re.compile(r"(override )?/?(algo|env|policy|memory|callbacks|logger|pretrain|tuned)")
_OPTION = re.compile(r"\w[\w.+-]*(/\w[\w.+-]*)*")


def read_tuned(file: Path) -> DictConfig:
    """Return a tuned file's values; one that says more than values is refused."""
    config = read_of_others(file)
    values = OmegaConf.to_container(config, resolve=False)
    assert isinstance(values, dict)
    for key in values:
        if key not in TUNED_KEYS:
            raise ZooError(
                f"`{one_line(key)}` in {shown(file)} has no place in a tuned file,"
                f" which may have {', '.join(TUNED_KEYS)}"
            )
    defaults = values.get("defaults", [])
    for default in defaults if isinstance(defaults, list) else [defaults]:
        for choice, chosen in (default if isinstance(default, dict) else {default: None}).items():
            names = chosen if isinstance(chosen, list) else [chosen]
            if not all(each is None or _OPTION.fullmatch(str(each)) for each in names):
                raise ZooError(f"`{one_line(default, 80)}` in {shown(file)} chooses what is no option")
            if " ".join(str(choice).split()) not in TUNED_DEFAULTS:
                raise ZooError(
                    f"`{one_line(choice)}` in {shown(file)} has no place among the defaults of a tuned file,"
                    f" which may have {', '.join(TUNED_DEFAULTS)}"
                )
    interpolation = _interpolation_in(values)
    if interpolation is not None:
        raise ZooError(
            f"`{one_line(interpolation, 80)}` in {shown(file)} is an interpolation,"
            " which a tuned file may not have"
        )
    return config


def _interpolation_in(value: Any) -> str | None:
    if isinstance(value, dict):
        return next(filter(None, map(_interpolation_in, itertools.chain(value, value.values()))), None)
    if isinstance(value, list):
        return next(filter(None, map(_interpolation_in, value)), None)
    return value if isinstance(value, str) and "${" in value else None


def refuse_choices_of_others(defaults: Any, origin: str) -> None:
    """Raise `ZooError` for entries of a defaults list that choose more than options of known groups."""
    for default in defaults if isinstance(defaults, list) else [defaults]:
        choices = default if isinstance(default, dict) else {default: None}
        for key, chosen in choices.items():
            names = chosen if isinstance(chosen, list) else [chosen]
            is_known = key == "_self_" or _GROUP_CHOICE.fullmatch(" ".join(str(key).split()))
            if not is_known or not all(each is None or _OPTION.fullmatch(str(each)) for each in names):
                raise ZooError(
                    f"{origin} asks for `{one_line(default, 80)}` among its defaults, refused because it"
                    " could name code to run; if you know where it comes from, add trust=true"
                )


def refuse_places_of_others(values: dict[Any, Any], origin: str) -> None:
    """Raise `ZooError` where an experiment would go on with a run, or write outside this folder."""
    runs, study, warm_start = (values.get(key) for key in ("runs_dir", "study", "warm_start"))
    reasons = {
        "resume": values.get("resume") is not None and "it leads elsewhere",
        "job": values.get("job") is not None and "it could go on with a run that there is",
        "runs_dir": isinstance(runs, str) and _leads_out(runs) and "it leads elsewhere",
        "storage": values.get("storage") not in (None, "journal") and "it leads elsewhere",
        "warm_start": isinstance(warm_start, str) and "it leads elsewhere",
        "study": isinstance(study, str) and _is_path(study) and "it leads elsewhere",
    }
    for key, reason in reasons.items():
        if reason:
            raise ZooError(
                f"{origin} asks for `{key}: {one_line(values[key], 80)}`, refused because {reason};"
                f" give {key}= on the command line, or trust=true"
            )


def _is_path(name: str) -> bool:
    return "/" in name or "\\" in name or name.startswith((".", "~"))


def _leads_out(runs: str) -> bool:
    """Tell whether runs in that folder could stand outside of this one; the usual one is the user's."""
    if runs == USUAL_RUNS:
        return False
    if os.path.isabs(runs) or ".." in Path(runs).parts or runs.startswith("~"):
        return True
    here = Path.cwd()
    if not Path(os.path.realpath(runs)).is_relative_to(os.path.realpath(here)):
        return True
    try:  # a run stands in runs_dir/<algo>/<env>/
        return any(path.is_symlink() for pattern in ("*", "*/*") for path in Path(runs).glob(pattern))
    except (OSError, ValueError):
        return True


def read_of_others(file: Path) -> DictConfig:
    """Return what a file holds that may be a stranger's. Raises `ZooError`."""
    try:
        with interrupts_kept():
            content = Folder(file.parent, follow_links=True).read(file.name, CONFIG_LIMIT)
            return OmegaConf.create(parse_hydra_config(content or b""))
    except (OSError, ValueError, OmegaConfBaseException) as error:
        raise ZooError(f"can't read {shown(file)}: {one_line(error)}") from error
