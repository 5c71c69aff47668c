"""The registry is the one list of algorithms: what else names them names the same ones."""

from __future__ import annotations

import ast
from pathlib import Path

import zoo
from zoo.algorithms.registry import ALGORITHMS, CLASSES, algorithm_class
from zoo.config.sections import algorithm_names

INIT = Path(zoo.__file__)


def test_every_algorithm_is_in_the_package_also_for_type_checkers() -> None:
    imported = {
        alias.name: node.module
        for node in ast.walk(ast.parse(INIT.read_text()))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    for name, module in CLASSES.items():
        assert imported[name] == module
        assert name in zoo.__all__
        assert getattr(zoo, name).__module__ == module


def test_every_algorithm_is_found_by_its_own_name() -> None:
    assert all(algorithm_class(name).name == name for name in ALGORITHMS)
    assert set(algorithm_names()) == set(ALGORITHMS)
