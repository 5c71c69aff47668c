"""The one place where trust is asked for: an agent is data, and names code only with ``trust=true``.

An agent may come from anybody: a folder, a zip, the Hub. Texts name algorithm, environment, wrappers, policy.
Classes of Zoo, `gymnasium.wrappers` and `minigrid.wrappers`, and ids of registered envs, are followed.
A text that would import another module (``module:Id``, a ``_target_``), or read the user's environment
variables (``${…}``), is refused. Runs, experiments, tuned files, studies and ``./conf`` are the user's own
code, and so are the agents below the user's ``runs`` folder.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from zoo.core.printing import one_line
from zoo.envs.registry import ENVPOOL
from zoo.errors import ZooError, ZooWarning

TRUSTED_PACKAGES = ("zoo.", "gymnasium.wrappers.", "minigrid.wrappers.")
"""Packages whose classes an agent may name."""

HYDRA_KEYS = ("_args_", "_partial_", "_recursive_", "_convert_")
ONLY_TO_LEARN = ("symmetry", "reward_model")
"""Keys of ``algo`` whose code an agent does not need to act."""

MASK_FUNCTION = "action_mask_fn"


def refuse_foreign_code(config: Mapping[str, Any], origin: str) -> None:
    """Raise `ZooError`, with the agent's ``origin``, for the first text in a config that names code."""
    for path, key, value in _walk(config, ""):
        problem = _problem(path, key, value)
        if problem is not None:
            raise ZooError(
                f"the agent in {origin} asks for `{one_line(path)}: {one_line(value, 80)}`, refused because"
                f" {problem}; if you know where it comes from, load it with trust=true"
            )


def without_foreign_training(algo: Any, origin: str) -> Any:
    """Return an agent's section ``algo`` without foreign code that only learning needs; warn of it."""
    if not isinstance(algo, Mapping):
        return algo
    parts = {key: algo[key] for key in ONLY_TO_LEARN if isinstance(algo.get(key), Mapping)}
    foreign = [key for key, part in parts.items() if not _is_known(str(part.get("_target_")))]
    for key in foreign:
        message = f"the agent in {origin} is loaded without `algo.{key}`, which only learning needs"
        warnings.warn(f"{message}; trust=true keeps it", ZooWarning, stacklevel=5)
    return {**algo, **dict.fromkeys(foreign)}


def stands_in_own_runs(agent: Path, runs: str | os.PathLike[str] = "runs") -> bool:
    """Tell whether an agent stands below the folder of the user's own runs."""
    return Path(os.path.realpath(agent)).is_relative_to(os.path.realpath(runs))


def _problem(path: str, key: Any, value: Any) -> str | None:
    """Return why a value is refused, None for data."""
    if key in HYDRA_KEYS:
        return "it could name code to run"
    if any(isinstance(text, str) and "${" in text for text in (key, value)):
        return "it is an interpolation"
    if path == "env.id":
        value = str(value).removeprefix(ENVPOOL)
    if path == "algo.name" and isinstance(value, str) and "." in value:
        return "it is an algorithm outside Zoo"
    if path.startswith("env") and isinstance(value, str) and ":" in value:
        return "it would import a module"
    if key == MASK_FUNCTION and isinstance(value, str) and "." in value:
        return "it is a function outside the environment"
    names_code = key == "_target_" or re.fullmatch(r"env\.wrappers\[\d+\]", path)
    if names_code and isinstance(value, str) and not _is_known(value):
        return f"it does not stand in {' or '.join(package.rstrip('.') for package in TRUSTED_PACKAGES)}"
    return None


def _is_known(name: str) -> bool:
    """Tell whether code is named alone, which is looked for in known places, or with one of these.

    Gymnasium's `RecordVideo` is left out: it writes to any path in its arguments.
    """
    is_known = "." not in name or name.startswith(TRUSTED_PACKAGES)
    return is_known and not name.endswith("RecordVideo")


def _walk(value: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Give path, key (None in a list) and value of everything inside ``value``."""
    if isinstance(value, Mapping):
        children = [(f"{path}.{key}" if path else str(key), key, item) for key, item in value.items()]
    elif isinstance(value, list | tuple):
        children = [(f"{path}[{index}]", None, item) for index, item in enumerate(value)]
    else:
        return
    for child_path, key, item in children:
        yield child_path, key, item
        yield from _walk(item, child_path)
