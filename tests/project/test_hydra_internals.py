"""What Zoo uses of Hydra's inside stands in one file, which says what it was tried with."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from test_rooms import PACKAGE, REPOSITORY, modules

from zoo.config.hydra_internals import TRIED_WITH

INTERNALS = PACKAGE / "config" / "hydra_internals.py"

PROMISED = (
    "hydra.conf",
    "hydra.errors",
    "hydra.plugins.config_source",
    "hydra.plugins.launcher",
    "hydra.types",
    "omegaconf",
    "omegaconf.errors",
)
"""Modules that Hydra and OmegaConf describe in their documentation for users and authors of plug-ins."""


def internals(source: str) -> Iterator[str]:
    """Give what a file takes from inside of Hydra and OmegaConf: modules, and others' private names."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            used = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            used = [str(node.module)]
            if any(alias.name.startswith("_") for alias in node.names):
                used = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute) and is_private(node.attr) and not is_own(node.value):
            yield f".{node.attr}"
            continue
        else:
            continue
        for name in used:
            if name.split(".")[0] in ("hydra", "omegaconf") and name not in PROMISED:
                yield name


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("_")


def is_own(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id in ("self", "cls")


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_no_other_file_reaches_into_hydra(path: Path) -> None:
    uses_hydra = any(library in path.read_text() for library in ("hydra", "omegaconf"))
    if path != INTERNALS and uses_hydra:
        assert list(internals(path.read_text())) == []


def test_the_check_sees_what_is_inside() -> None:
    source = (
        "from hydra._internal.hydra import Hydra\nfrom hydra.core.plugins import Plugins\n"
        "import omegaconf._utils\nfrom omegaconf import OmegaConf\nnode = config._get_node('a')\n"
        "from omegaconf.base import Node\nfrom hydra import _internal\n"
    )
    assert sorted(internals(source)) == [
        "._get_node",
        "hydra._internal",
        "hydra._internal.hydra",
        "hydra.core.plugins",
        "omegaconf._utils",
        "omegaconf.base",
    ]
    assert list(internals(INTERNALS.read_text())) != []


def test_installed_releases_are_those_it_was_tried_with() -> None:
    assert {package: version(package) for package in TRIED_WITH} == TRIED_WITH
