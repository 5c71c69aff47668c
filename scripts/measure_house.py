"""Measure how much of Zoo a reader has to know, and draw its packages from their imports.

    .venv/bin/python scripts/measure_house.py            # print the table
    .venv/bin/python scripts/measure_house.py --draw     # also write docs/images/packages.svg

What runs is traced: one rollout and one update of PPO2, eagerly, and `zoo train` until its first loss.
Imports are read from the source. tests/project/test_rooms.py holds the figures to ceilings, and the picture
to the imports.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import functools
import io
import os
import re
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from rich.console import Console
from rich.table import Table

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGE = REPOSITORY / "zoo"
PICTURE = REPOSITORY / "docs" / "images" / "packages.svg"

SMALL: dict[str, Any] = {"n_steps": 32, "batch_size": 64, "n_epochs": 2}
"""Of the PPO2 that is traced, on two environments: one minibatch an epoch."""

VALUE = 0.1234567
"""The clip range that is followed from the command line: found in no other place."""

OLD_NAMES = frozenset(
    """
    ReplayMemory Interaction Seen Experience Column EnvStepper SameStepVectorEnv InProcessVectorEnv goal_check
    first_steps Whereabouts Codec Head Descent descend Program Taken Ran slope tape recalled remembers judge
    surprise Team Member Crew SideBySide EpisodesApart searched_policy Modes choosing foreseen having Begun
    Lasting Played Play Finals finals try_folders names_elsewhere bare_words own_modules foreign_files told
    hear
    """.split()  # noqa: SIM905
)
"""Identifiers for which the field has another word: those that can mean nothing else."""


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--draw", action="store_true", help="write docs/images/packages.svg")
    parser.add_argument("--files", action="store_true", help="list the files that were counted")
    arguments = parser.parse_args()
    if arguments.draw:
        PICTURE.write_text(drawn_packages())
    table = Table("measure", "now", title="The house")
    for name, figure in measures().items():
        files = figure if isinstance(figure, list) else None
        table.add_row(name, f"{figure:g}" if files is None else str(len(files)))
        if arguments.files and files is not None:
            table.add_row("", "\n".join(files))
    for package, (n_lines, n_files) in sizes().items():
        table.add_row(f"lines, files of {package}", f"{n_lines:,}  {n_files}")
    Console().print(table)


def measures() -> dict[str, float | list[str]]:
    """Return each measure by its name: a number, or the list of what is counted."""
    modules, depth = imports_of("zoo.algorithms.ppo")
    lengths = [end - start + 1 for start, end in functions()]
    return {
        "files of one collected step": files_of("collect"),
        "files of one update": files_of("update"),
        "files of one config value": files_of_a_config_value(),
        "modules that ppo imports": modules,
        "longest chain of these imports": depth,
        "classes from PPO2 to object": classes_above_ppo2(),
        "median lines of a function": statistics.median(lengths),
        "old names": old_names(),
    }


# -- what runs ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def calls_watched(watch: Callable[[FrameType, str, Any], None]) -> Iterator[None]:
    """Give ``watch`` each call and return of a function of Zoo within the block."""

    def profile(frame: FrameType, event: str, result: Any) -> None:
        if event in ("call", "return") and is_ours(frame.f_code):
            watch(frame, event, result)

    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(None)


def is_ours(code: CodeType) -> bool:
    return code.co_filename.startswith(f"{PACKAGE}{os.sep}") and code.co_name != "<module>"


def file_of(frame: FrameType) -> str:
    return Path(frame.f_code.co_filename).relative_to(PACKAGE).as_posix()


def files_of(method: str) -> list[str]:
    """Return the files of which a function runs in one call of PPO2's ``collect`` or ``update``.

    The call is the second one: what is made at the first is not part of each.
    """
    from zoo import PPO2

    files: set[str] = set()
    model = PPO2("MlpPolicy", "CartPole-v1", n_envs=2, seed=0, device="cpu", compile=False, **SMALL)
    model.learn(2 * SMALL["n_steps"])
    with model.runtime.in_force():
        if method == "update":
            model.collect()
        with calls_watched(lambda frame, event, result: files.add(file_of(frame))):
            getattr(model, method)()
    return sorted(files)


def files_of_a_config_value() -> list[str]:
    """Return the files that handle ``algo.clip_range`` of a command until it stands in PPO2's first loss.

    Those are counted whose functions hold it, or the section, list or rates that it stands in; not those that
    pass on the whole config.
    """
    from zoo.cli import status_of

    files: set[str] = set()
    is_lost = False

    def watch(frame: FrameType, event: str, result: Any) -> None:
        nonlocal is_lost
        if is_lost or event == "call":
            return
        if any(holds_value(value) for value in [*frame.f_locals.values(), result]):
            files.add(file_of(frame))
        is_lost = frame.f_code.co_name == "policy_loss"

    command = ["train", "algo=ppo2", "env=CartPole-v1", f"algo.clip_range={VALUE}", "n_envs=2"]
    command += ["verbose=0", "progress_bar=false", "compile=false", "tuned=none", "n_timesteps=64"]
    command += [f"algo.{key}={value}" for key, value in SMALL.items()]
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        os.chdir(folder)
        try:
            with calls_watched(watch):
                status = status_of(command)
        finally:
            os.chdir(before)
    assert status == 0, f"{command} ended with status {status}"
    assert is_lost, "the loss was not computed"
    return sorted(files)


def holds_value(value: Any, depth: int = 1) -> bool:
    """Tell whether a value is the clip range, as a number or within a text, or a container that has it."""
    from omegaconf import DictConfig, ListConfig, OmegaConf
    from torch import Tensor

    if isinstance(value, DictConfig | ListConfig):
        value = OmegaConf.to_container(value)
    if isinstance(value, Tensor):
        return type(value) is Tensor and value.ndim == 0 and abs(value.item() - VALUE) < VALUE * 1e-6
    if isinstance(value, str):
        return str(VALUE) in value
    if isinstance(value, float):
        return value == VALUE
    if isinstance(value, Mapping):
        value = list(value.values())
    elif hasattr(value, "__dataclass_fields__"):
        value = [getattr(value, name, None) for name in value.__dataclass_fields__]
    is_list = isinstance(value, list | tuple)
    return is_list and depth > 0 and any(holds_value(item, depth - 1) for item in value)


# -- what is imported -----------------------------------------------------------------------------------


def imports_of(module: str) -> tuple[list[str], int]:
    """Return the modules and packages of Zoo that importing one loads, and the longest chain of imports."""
    reached, waiting = set[str](), [module]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += [*imported_modules(name), *([name.rpartition(".")[0]] if "." in name else [])]
    return sorted(reached), longest_chain(module)


@functools.cache
def longest_chain(module: str) -> int:
    """Return how many modules stand in the longest chain of imports that begins with this one."""
    return 1 + max(map(longest_chain, imported_modules(module)), default=0)


@functools.cache
def imported_modules(module: str) -> list[str]:
    """Return the modules of Zoo that a module imports as it is loaded: not in functions, not for types."""
    stem = REPOSITORY / module.replace(".", "/")
    path = stem / "__init__.py" if stem.is_dir() else stem.with_suffix(".py")
    waiting: list[ast.AST] = list(ast.parse(path.read_text()).body)
    imported = set[str]()
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "zoo":
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            imported |= {name if is_module(name) else node.module for name in names}
        elif isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names if alias.name.split(".")[0] == "zoo"}
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting += node.orelse
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)
    return sorted(imported - {module})


def is_module(name: str) -> bool:
    stem = REPOSITORY / name.replace(".", "/")
    return stem.with_suffix(".py").exists() or (stem / "__init__.py").exists()


@functools.cache
def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def package_of(path: Path) -> str:
    """Return the package of a file: its folder in ``zoo/``, or its own name if it stands in none."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return "zoo" if parts == ("__init__",) else parts[0]


def imported_packages(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and package of every import from Zoo, also of those inside functions and by name."""
    known = {package_of(each) for each in modules()}
    node: Any
    for node in ast.walk(ast.parse(path.read_text(), filename=str(path))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = [node.value] if re.fullmatch(r"zoo(\.\w+)+(:\w+)?", node.value) else []
        for name in names:
            first, _, rest = name.partition(".")
            if first == "zoo":
                package = re.split(r"[.:]", rest)[0]
                yield node.lineno, package if package in known else "zoo"


# -- how much there is ----------------------------------------------------------------------------------


def sizes() -> dict[str, tuple[int, int]]:
    """Return the lines and files of each package, of all of them, and of the tests."""
    found: dict[str, tuple[int, int]] = {}
    for path in modules():
        name = package_of(path) if path.parent != PACKAGE else "zoo itself"
        n_lines, n_files = found.get(name, (0, 0))
        found[name] = (n_lines + len(path.read_text().splitlines()), n_files + 1)
    tests = sorted((REPOSITORY / "tests").rglob("*.py"))
    everything = (sum(lines for lines, _ in found.values()), len(modules()))
    return {
        **dict(sorted(found.items())),
        "zoo": everything,
        "tests": (sum(len(path.read_text().splitlines()) for path in tests), len(tests)),
    }


def functions() -> Iterator[tuple[int, int]]:
    """Yield the first and the last line of every function."""
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node.lineno, node.end_lineno or node.lineno


def classes_above_ppo2() -> list[str]:
    from zoo import PPO2

    return [each.__name__ for each in PPO2.__mro__[:-1] if each.__module__ != "typing"]


def old_names() -> list[str]:
    """Return each use of an old name as ``file:line name``."""
    found = []
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            name = next(
                (getattr(node, key) for key in ("id", "attr", "arg", "name") if hasattr(node, key)), ""
            )
            if name in OLD_NAMES:
                line = getattr(node, "lineno", 0)
                found.append(f"{path.relative_to(PACKAGE).as_posix()}:{line} {name}")
    return sorted(found)


# -- the picture ----------------------------------------------------------------------------------------

WIDTH, HEIGHT = 132, 40
GAP, FLOOR = 24, 64


def drawn_packages() -> str:
    """Return an SVG of the packages: each above those that it imports, with a line to each of them.

    The line to a package that is also imported by way of another one is pale.
    """
    folders = sorted({package_of(path) for path in modules() if path.parent != PACKAGE})
    ways: dict[str, set[str]] = {name: set() for name in folders}
    for path in modules():
        if path.parent != PACKAGE:
            ways[package_of(path)] |= {name for _, name in imported_packages(path)} & ways.keys()
    ways = {name: below - {name} for name, below in ways.items()}
    floors = floors_of(ways)
    columns = max(sum(floor == each for floor in floors.values()) for each in floors.values())
    width, n_floors = columns * (WIDTH + GAP), max(floors.values()) + 1
    places: dict[str, tuple[float, float]] = {}
    for floor in range(n_floors):
        row = [name for name in folders if floors[name] == floor]
        for index, name in enumerate(row):
            center = width / 2 + (index - (len(row) - 1) / 2) * (WIDTH + GAP)
            places[name] = (center, (n_floors - 1 - floor) * FLOOR + HEIGHT)
    lines = [
        f'<line x1="{places[name][0]:.0f}" y1="{places[name][1] + HEIGHT / 2:.0f}"'
        f' x2="{places[below][0]:.0f}" y2="{places[below][1] - HEIGHT / 2:.0f}"'
        f' stroke="{"#666" if below in direct(ways, name) else "#ddd"}"/>'
        for name in folders
        for below in sorted(ways[name], key=lambda below: (below in direct(ways, name), below))
    ]
    boxes = [
        f'<rect x="{x - WIDTH / 2:.0f}" y="{y - HEIGHT / 2:.0f}" width="{WIDTH}" height="{HEIGHT}" rx="6"'
        f' fill="#eef3fa" stroke="#4472a8"/>\n'
        f'<text x="{x:.0f}" y="{y + 5:.0f}" text-anchor="middle">{name}</text>'
        for name, (x, y) in places.items()
    ]
    size = f'width="{width}" height="{n_floors * FLOOR}" viewBox="0 0 {width} {n_floors * FLOOR}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="15">'
    background = '<rect width="100%" height="100%" fill="white"/>'
    return "\n".join([head, background, *lines, *boxes, "</svg>", ""])


def floors_of(ways: Mapping[str, set[str]]) -> dict[str, int]:
    """Return how high each package stands: one above the highest that it imports."""
    floors: dict[str, int] = {}
    while len(floors) < len(ways):
        ready = [name for name, below in ways.items() if name not in floors and below <= floors.keys()]
        assert ready, f"these packages import each other: {sorted(ways.keys() - floors.keys())}"
        floors |= {name: max((floors[each] + 1 for each in ways[name]), default=0) for name in ready}
    return floors


def direct(ways: Mapping[str, set[str]], name: str) -> set[str]:
    """Return the packages that one imports, without those that come with another of them."""

    def reached(package: str) -> set[str]:
        return {each for below in ways[package] for each in {below, *reached(below)}}

    return ways[name] - {each for below in ways[name] for each in reached(below)}


if __name__ == "__main__":
    main()
