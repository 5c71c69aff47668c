"""Zoo uses of Hydra and OmegaConf what they promise to keep, so that their next releases work too."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_rooms import REPOSITORY, modules


def internals(source: str) -> Iterator[str]:
    """Give the private modules and names of Hydra and OmegaConf that a file takes, and calls of such."""
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute) and not isinstance(node.value, ast.Name):
            names = [f"omegaconf.{node.attr}"] if node.attr in ("_get_node", "_metadata", "_internal") else []
        for name in names:
            package, *parts = name.split(".")
            if package in ("hydra", "omegaconf") and any(part.startswith("_") for part in parts):
                yield name


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_no_file_reaches_into_hydra(path: Path) -> None:
    assert list(internals(path.read_text())) == []


def test_the_check_sees_what_is_inside() -> None:
    source = "from hydra._internal.hydra import Hydra\nfrom hydra import _internal\nimport omegaconf._utils\n"
    assert len(list(internals(source))) == 3
