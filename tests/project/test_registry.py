"""The registry is the one list of algorithms: what else names them names the same ones."""

from __future__ import annotations

import ast
from pathlib import Path

import zoo
from zoo.algorithms.registry import ALGORITHMS, CLASSES, algorithm_class
from zoo.config.schema import algorithm_names

INIT = Path(zoo.__file__)


def test_every_algorithm_is_in_the_package_and_every_name_of_it_in_the_stub() -> None:
    tree = ast.parse(INIT.with_suffix(".pyi").read_text())
    stubbed = {
        alias.asname for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    stubbed |= {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    assert set(zoo.__all__) - stubbed == set()
    for name, module in CLASSES.items():
        assert name in zoo.__all__
        assert getattr(zoo, name).__module__ == module


def test_every_algorithm_is_found_by_its_own_name() -> None:
    assert all(algorithm_class(name).name == name for name in ALGORITHMS)
    assert set(algorithm_names()) == set(ALGORITHMS)
