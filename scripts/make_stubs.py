"""Write zoo/__init__.pyi: what editors and type checkers read of the package, hyperparameters by name.

    make docs
    .venv/bin/python scripts/make_stubs.py --check

Constructors take hyperparameters as ``**hyperparameters``, which are declared once, in dataclasses. Editors
and type checkers run no code, so nothing made at run time reaches them; a stub does, and is made from that
declaration. With `--check` nothing is written; the exit status is 1 if the stub is not what it should be.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import importlib
import inspect
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import zoo
from zoo.algorithms.arguments import signature_of
from zoo.algorithms.registry import MODULES

HOMES: dict[str, str] = vars(zoo)["_HOMES"]
STUB = Path(zoo.__file__).with_name("__init__.pyi")
NAMES = {
    "gym": "import gymnasium as gym",
    "spaces": "from gymnasium import spaces",
    "Any": "from typing import Any",
    "Dataset": "from zoo.imitation.expert_data import Dataset",
    "Literal": "from typing import Literal",
    "Mapping": "from collections.abc import Mapping",
    "Path": "from pathlib import Path",
    "Policy": "from zoo.algorithms.arguments import Policy",
    "ScheduleValue": "from zoo.config.fields import ScheduleValue",
}
"""What imports the names in annotations that say nothing about where they are."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; say whether the stub is current")
    check = parser.parse_args().check
    text = stub()
    is_current = STUB.exists() and STUB.read_text() == text
    if not is_current:
        print(f"zoo/__init__.pyi: {'not current; run make docs' if check else 'written'}")
    if not is_current and not check:
        STUB.write_text(text)
    raise SystemExit(1 if check and not is_current else 0)


def stub() -> str:
    """Return the text of the stub, formatted as all code is."""
    used = {name: NAMES[name] for name in ("Any", "Path")}
    classes = [class_stub(name, module, used) for name, module in sorted(MODULES.items())]
    exported = [f"from {home} import {name} as {name}" for name, home in HOMES.items() if name not in MODULES]
    lines = [
        '"""Made by scripts/make_stubs.py from the declarations of the hyperparameters."""',
        *(line for name, line in used.items() if name not in HOMES),
        *(f"from {module} import {name} as _{name}" for name, module in MODULES.items()),
        *exported,
        "from zoo.version import __version__ as __version__",
        *classes,
        f"def load{inspect.signature(zoo.load)}:".replace("'", ""),
        textwrap.indent(f'"""{inspect.getdoc(zoo.load)}\n"""', "    "),
    ]
    return formatted("\n".join(lines) + "\n")


def importable(made: type[Any]) -> type[Any]:
    """Return a class that its module has by name: this one, or else the first that it is made of."""
    return next(
        each for each in made.__mro__ if getattr(sys.modules[each.__module__], each.__name__, None) is each
    )


def class_stub(name: str, module: str, used: dict[str, str]) -> str:
    """Return the class with its constructor; ``used`` gets the names that annotations need.

    A preset that takes what its base takes has the base's constructor.
    """
    found: Any = getattr(importlib.import_module(module), name)
    signature = signature_of(found, found.config_class)
    for base in found.__mro__[1:]:
        if base.__name__ in MODULES and signature == signature_of(base, base.config_class):
            summary = inspect.cleandoc(found.__doc__).partition("\n\nHyperparameters:")[0]
            documentation = textwrap.indent(f'"""{summary}"""', "    ")
            return f"class {name}(_{name}, {base.__name__}):\n{documentation}\n"
    config = importable(found.config_class)
    used[config.__name__] = f"from {config.__module__} import {config.__name__}"
    arguments, is_keyword_only = ["self"], False
    for each in signature.parameters.values():
        annotation = f"{config.__name__} | None" if each.name == "config" else str(each.annotation)
        note_names(annotation, found, used)
        if each.kind is each.KEYWORD_ONLY and not is_keyword_only:
            arguments.append("*")
            is_keyword_only = True
        arguments.append(f"{each.name}: {annotation} = {spelled(each.default)}")
    documentation = textwrap.indent(f'"""{inspect.cleandoc(found.__doc__)}\n"""', "    ")
    constructor = f"    def __init__({', '.join(arguments)}) -> None: ..."
    return f"class {name}(_{name}):\n{documentation}\n{constructor}\n"


def spelled(default: Any) -> str:
    """Return a default as code; those that a stub can't hold are left open."""
    return repr(default) if isinstance(default, str | int | float | None) else "..."


def note_names(annotation: str, algorithm: type[Any], used: dict[str, str]) -> None:
    for node in ast.walk(ast.parse(annotation, mode="eval")):
        if isinstance(node, ast.Name) and not hasattr(builtins, node.id) and node.id not in used:
            used[node.id] = NAMES.get(node.id) or f"from {home_of(node.id, algorithm)} import {node.id}"


def home_of(name: str, algorithm: type[Any]) -> str:
    """Return the module that defines a name which a base of the algorithm, or of its config, imports."""
    for each in (*algorithm.__mro__, *algorithm.config_class.__mro__):
        found = vars(sys.modules[each.__module__]).get(name)
        if found is not None:
            return str(found.__module__)
    raise AssertionError(f"{algorithm.__name__}: nothing is called {name}")


def formatted(text: str) -> str:
    command = [sys.executable, "-m", "ruff"]
    for step in (["check", "--select", "I", "--fix", "--quiet"], ["format", "--quiet"]):
        text = subprocess.run(
            [*command, *step, "--stdin-filename", str(STUB), "-"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    return text


if __name__ == "__main__":
    main()
