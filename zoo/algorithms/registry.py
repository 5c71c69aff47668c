"""The one list of algorithms: imports, messages and docs read it."""

from __future__ import annotations

import json
import pkgutil
from pathlib import Path
from typing import Any

from zoo.config.sections import is_algorithm
from zoo.config.user_files import own_class
from zoo.errors import ZooError, nearest

_INDEX = json.loads(Path(__file__).with_name("index.json").read_text(encoding="utf-8"))
"""What algorithms and presets declare, made of their classes by `make docs`."""

ALGORITHMS: dict[str, str] = _INDEX["algorithms"]
"""The module and class of each algorithm, by the name that configs and agents use."""

PRESETS: dict[str, str] = _INDEX["presets"]
"""The module and class of each preset that comes with Zoo."""

_PLACES = {name: place.split(":") for name, place in (ALGORITHMS | PRESETS).items()}
CLASS_NAMES = {name: class_name for name, (_, class_name) in _PLACES.items()}
"""The name of the class of each algorithm and preset."""
MODULES = {class_name: module for module, class_name in _PLACES.values()}
"""The module in which each of these classes is."""

PROVIDED: dict[str, str] = {}
"""Functions of packages above this one, by name, each as ``module:name``: `zoo` registers them."""


def provided(name: str) -> Any:
    """Import a function that a package above this one provides."""
    return pkgutil.resolve_name(PROVIDED[name])


def algorithm_class(name: str, preset: str | None = None) -> type[Any]:
    """Import the class of an algorithm, or of a preset of it. Raises `ZooError` with the nearest name."""
    if name not in ALGORITHMS and is_algorithm(name):
        from zoo.algorithms.algorithm import Algorithm  # which needs this module

        return own_class("algo", name, Algorithm)
    if name not in ALGORITHMS:
        raise ZooError(
            f"unknown algorithm '{name}'{nearest(name, ALGORITHMS)} (known: {', '.join(ALGORITHMS)})"
        )
    algorithm: type[Any] = pkgutil.resolve_name(ALGORITHMS[name])
    of_preset = pkgutil.resolve_name(PRESETS[preset]) if preset in PRESETS else None
    # A user's preset of the same name may build on another algorithm.
    return of_preset if of_preset and issubclass(of_preset, algorithm) else algorithm
