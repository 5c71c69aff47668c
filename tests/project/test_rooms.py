"""The house's rules about its rooms: imports point one way, and a file is called after what is in it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = REPOSITORY / "zoo"

FLOORS = [
    {"errors", "version", "working_folder"},
    {"core"},
    {"config"},
    {"launch"},
    {"agents", "envs", "buffers", "optim", "policies"},
    {"algorithms", "imitation"},
    {"interop"},
    {"experiment"},
    {"plots", "tuning"},
    {"commands"},
    {"cli", "zoo", "__main__"},
]
"""From the ground up; a room imports from its own floor and from those below."""

BUDGETS = {
    "agents": 800,
    "algorithms": 5_400,
    "buffers": 1_650,
    "commands": 1_700,
    "config": 2_850,
    "core": 1_100,
    "envs": 6_350,
    "experiment": 5_150,
    "imitation": 2_150,
    "interop": 1_650,
    "launch": 2_050,
    "optim": 2_500,
    "plots": 2_500,
    "policies": 3_150,
    "tuning": 2_500,
}
"""The most lines that a room may have; a room that needs more gives back what it no longer needs first."""

MOST_FILES = 210

FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
DATACLASSES_BY_NAME = PACKAGE / "config" / "schema.py"
"""The one file that knows upper rooms: it names the dataclasses, which stand beside what they configure."""

EMPTY_NAMES = {"utils", "util", "common", "helpers", "helper", "misc"}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def room_of(path: Path) -> str:
    """Return the room of a file: its folder, or its own name if it stands in ``zoo/`` itself."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return "zoo" if parts == ("__init__",) else parts[0]


def imported_rooms(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and room of every import from Zoo, also of those inside functions and by name."""
    tree = ast.parse(path.read_text(), filename=str(path))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = [node.value] if re.fullmatch(r"zoo(\.\w+)+(:\w+)?", node.value) else []
        else:
            continue
        for name in names:
            first, _, rest = name.partition(".")
            if first == "zoo" and not (path == DATACLASSES_BY_NAME and isinstance(node, ast.Constant)):
                room = re.split(r"[.:]", rest)[0]
                yield node.lineno, room if room in FLOOR_OF else "zoo"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_no_room_imports_from_a_higher_one(path: Path) -> None:
    own_floor = FLOOR_OF[room_of(path)]
    upward = [
        f"line {line}: from {room}" for line, room in imported_rooms(path) if FLOOR_OF[room] > own_floor
    ]
    assert not upward, f"zoo/{path.relative_to(PACKAGE)} imports from above: {upward}"


def test_no_two_rooms_import_each_other() -> None:
    ways: dict[str, set[str]] = {room: set() for room in FLOOR_OF}
    for path in modules():
        room = room_of(path)
        ways[room] |= {imported for _, imported in imported_rooms(path)} - {room}
    # `Algorithm.pretrain` clones behaviour, and both are registered in one place.
    ways["algorithms"].discard("imitation")
    while ways:
        leaves = {room for room, imported in ways.items() if not imported & ways.keys()}
        assert leaves, f"these rooms import each other: { {room: sorted(ways[room]) for room in ways} }"
        ways = {room: imported for room, imported in ways.items() if room not in leaves}


def test_what_is_private_in_pytorch_stands_in_two_files() -> None:
    """The one for AMD's Zen 5 is to be deleted once MKL or PyTorch have caught up."""
    private = re.compile(r"\btorch\._|\bproxy_tensor\b")
    found = {path.relative_to(PACKAGE).as_posix() for path in modules() if private.search(path.read_text())}
    assert found == {"optim/compile.py", "optim/zen5_products.py"}


def test_every_file_stands_in_a_known_room() -> None:
    assert {room_of(path) for path in modules()} <= FLOOR_OF.keys()


def test_every_folder_of_the_package_is_a_package() -> None:
    folders = {path.parent for path in modules()}
    assert [folder for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


def test_no_file_has_an_empty_name() -> None:
    files = [*modules(), *(REPOSITORY / "scripts").rglob("*"), *(REPOSITORY / "tests").rglob("*")]
    assert [str(path) for path in files if EMPTY_NAMES & set(path.with_suffix("").parts)] == []


def test_the_import_check_sees_lazy_and_named_imports(tmp_path: Path) -> None:
    source = tmp_path / "source.py"
    source.write_text("def f():\n    from zoo.experiment import learn\n\nLATER = 'zoo.commands.train:main'\n")
    assert sorted(imported_rooms(source)) == [(2, "experiment"), (4, "commands")]


@pytest.mark.parametrize("room", BUDGETS)
def test_room_keeps_to_its_budget(room: str) -> None:
    assert (
        sum(len(path.read_text().splitlines()) for path in modules() if room_of(path) == room)
        <= BUDGETS[room]
    )


def test_there_are_no_more_files_than_one_can_know() -> None:
    assert len(modules()) <= MOST_FILES


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_file_can_be_read_at_one_sitting(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 700
