"""Files and folders are written whole or not at all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from zoo.core import atomic
from zoo.errors import ZooError


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_written_file_has_its_content_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    atomic.write_text(tmp_path / "new" / "a.txt", "first")
    atomic.write_text(tmp_path / "new" / "a.txt", "second")
    assert (tmp_path / "new" / "a.txt").read_text() == "second"
    assert names(tmp_path / "new") == ["a.txt"]


def test_json_takes_numpy_numbers_and_paths(tmp_path: Path) -> None:
    data = {"mean": np.float32(1.5), "steps": np.int64(3), "path": Path("a/b"), "row": np.arange(2)}
    atomic.write_json(tmp_path / "a.json", data)
    assert json.loads((tmp_path / "a.json").read_text()) == {
        "mean": 1.5,
        "steps": 3,
        "path": "a/b",
        "row": [0, 1],
    }


def test_interrupted_file_leaves_the_earlier_one(tmp_path: Path) -> None:
    atomic.write_text(tmp_path / "a.txt", "earlier")

    def write_half() -> None:
        with atomic.atomic_file(tmp_path / "a.txt") as file:
            file.write(b"half of the la")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert (tmp_path / "a.txt").read_text() == "earlier"
    assert names(tmp_path) == ["a.txt"]


def test_full_disk_leaves_the_earlier_file_and_says_why(tmp_path: Path) -> None:
    """A limit on file sizes stands in for a full disk: the system refuses the write half-way in both."""
    program = """
import resource, signal, sys
from zoo.core import atomic
from zoo.errors import ZooError
atomic.write_text(sys.argv[1], "earlier")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    atomic.write_bytes(sys.argv[1], bytes(2000))
except ZooError as error:
    print(error)
"""
    path = tmp_path / "a.txt"
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"can't write {path}: File too large\n"
    assert path.read_text() == "earlier"
    assert names(tmp_path) == ["a.txt"]


def test_place_that_cannot_be_written_is_named_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ZooError, match=r"can't write .*file/a\.txt: (Not a directory|File exists)"):
        atomic.write_text(tmp_path / "file" / "a.txt", "x")


def test_folder_replaces_the_earlier_one_whole(tmp_path: Path) -> None:
    for version in ("first", "second"):
        with atomic.atomic_folder(tmp_path / "agent") as folder:
            (folder / version).write_text(version)
    assert names(tmp_path / "agent") == ["second"]
    assert names(tmp_path) == ["agent"]


def test_interrupted_folder_leaves_the_earlier_one(tmp_path: Path) -> None:
    with atomic.atomic_folder(tmp_path / "agent") as folder:
        (folder / "first").write_text("")

    def write_half() -> None:
        with atomic.atomic_folder(tmp_path / "agent") as folder:
            (folder / "second").write_text("")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_half()
    assert names(tmp_path / "agent") == ["first"]
    assert names(tmp_path) == ["agent"]


def test_folder_that_a_crash_left_under_its_hidden_name_is_put_back(tmp_path: Path) -> None:
    (tmp_path / ".agent.previous").mkdir()
    atomic.recover_folder(tmp_path / "agent")
    assert names(tmp_path) == ["agent"]


def test_folder_is_never_seen_in_part_by_a_reader_when_its_writer_is_killed(tmp_path: Path) -> None:
    program = """
import itertools, sys
from zoo.core import atomic
for version in itertools.count():
    with atomic.atomic_folder(sys.argv[1]) as folder:
        (folder / "a").write_text(str(version))
        (folder / "b").write_text(str(version))
    print(version, flush=True)
"""
    folder = tmp_path / "agent"
    writer = subprocess.Popen([sys.executable, "-c", program, str(folder)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    for _ in range(20):
        writer.stdout.readline()
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait()
    atomic.recover_folder(folder)
    assert names(folder) == ["a", "b"]
    assert (folder / "a").read_text() == (folder / "b").read_text()
