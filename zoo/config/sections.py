"""The algorithms and sections of configs, registered by higher packages and imported once they are needed."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping
from typing import Any

SECTIONS: dict[str, str] = {}
"""The dataclass of each section of a training, as ``module:Class``."""

CHECKS: dict[str, str] = {}
"""The function that raises `ZooError` for wrong values of each other section, as ``module:function``."""

ALGORITHMS: dict[str, str] = {}
"""The class of each algorithm, as ``module:Class``."""

_load_algorithm: list[Callable[..., Any]] = []


def register_sections(sections: Mapping[str, str], checks: Mapping[str, str]) -> None:
    """Say where the dataclasses of sections are, and what checks sections without one."""
    SECTIONS.update(sections)
    CHECKS.update(checks)


def register_algorithms(places: Mapping[str, str], load: Any) -> None:
    """Register the algorithms, and the function that imports the class of one, or of its preset, by name."""
    ALGORITHMS.update(places)
    _load_algorithm[:] = [load]


def section_class(name: str) -> type[Any]:
    """Import the dataclass of a section."""
    section: type[Any] = pkgutil.resolve_name(SECTIONS[name])
    return section


def check_section(name: str, values: Mapping[str, Any]) -> None:
    """Raise `ZooError` for wrong values of a section without a dataclass; one without a check takes any."""
    if name in CHECKS:
        pkgutil.resolve_name(CHECKS[name])(values)


def is_algorithm(name: str) -> bool:
    """Tell whether ``algo=`` takes a name for an algorithm: one of Zoo's, or ``module.Class`` of the user."""
    return name in ALGORITHMS or ("." in name and all(map(str.isidentifier, name.split("."))))


def algorithm_class(name: str, preset: str | None = None) -> type[Any]:
    """Import the class of an algorithm, or of a preset of it. Raises `ZooError` with the nearest name."""
    return _load_algorithm[0](name, preset)
