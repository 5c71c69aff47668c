"""Finding runs: folders with a ``run.json`` below what is given, and folders of Stable-Baselines3's files."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from zoo.errors import ZooError, nearest
from zoo.files.printing import one_line

RECORD = "run.json"
EVALUATIONS = "evaluations.npz"
MONITOR = "monitor.csv"

TRIALS, TRIALS_TABLE = "trials", "trials.csv"
"""The folder with the trials of a study of `zoo tune`, and what stands beside it.

The best of many trials were lucky too: only those that were trained again count as runs, unless a study's
trials are named themselves.
"""

FOLDERS_LIMIT = 200_000
"""Folders that are looked into for one path."""


def find_runs(given: Sequence[str]) -> list[Path]:
    """Return the folders of all runs at or below these paths, each once; a path may hold ``*``.

    A file of a run stands for the run, and so does an agent in it. Raises `ZooError` if a path leads nowhere,
    or if there is no run at all.
    """
    found: dict[str, Path] = {}
    for text in given:
        for path in _paths(text):
            for run in _runs_below(_run_of(path)):
                found.setdefault(os.path.realpath(run), run)
    if not found:
        where = ", ".join(one_line(text, 80) for text in given[:5])
        raise ZooError(
            f"there is no run in {where or 'what was given'}: no {RECORD}, {MONITOR} or {EVALUATIONS} there"
            " or below; zoo train algo=ppo2 env=CartPole-v1 makes one"
        )
    return list(found.values())


def _paths(text: str) -> list[Path]:
    path = Path(text).expanduser()
    if os.path.lexists(path):
        return [path]
    if glob.has_magic(text):
        matches = _matches(path)
        if matches:
            return matches
        raise ZooError(f"no path is like {one_line(text)}")
    siblings = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    raise ZooError(f"there is nothing at {one_line(text)}{nearest(path.name, siblings)}")


def _matches(pattern: Path) -> list[Path]:
    """Return the paths that are like the pattern; ``**`` goes through no links, as they may make a circle."""
    if "**" not in pattern.parts:
        return sorted(map(Path, glob.glob(str(pattern))))
    found = Path(pattern.anchor).glob(str(pattern.relative_to(pattern.anchor)))
    return sorted(path for path in found if _hidden(path) <= _hidden(pattern))


def _hidden(path: Path) -> set[str]:
    return {part for part in path.parts if part.startswith(".")}


def _run_of(path: Path) -> Path:
    """Return the run to which a file or an agent's folder belongs, or the path itself."""
    folder = path if path.is_dir() else path.parent
    for candidate in (folder, folder.parent):
        if (candidate / RECORD).is_file():
            return candidate
    if path.is_file() and not _is_of_a_peer([path.name]):
        raise ZooError(
            f"{one_line(path)} is no run: expected a folder with {RECORD}, {MONITOR} or {EVALUATIONS}"
        )
    return folder


def _runs_below(top: Path) -> Iterator[Path]:
    for number, (folder, folders, files) in enumerate(os.walk(top)):
        if number >= FOLDERS_LIMIT:
            raise ZooError(f"{one_line(top)} holds more than {FOLDERS_LIMIT:,} folders: name a smaller one")
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if TRIALS_TABLE in files and TRIALS in folders:
            folders.remove(TRIALS)
        if RECORD in files:
            folders.clear()
            yield Path(folder)
        elif _is_of_a_peer(files):
            yield Path(folder)


def _is_of_a_peer(names: Sequence[str]) -> bool:
    return any(name == EVALUATIONS or is_monitor(name) for name in names)


def is_monitor(name: str) -> bool:
    """Tell whether a file of this name holds episodes: ``monitor.csv``, ``0.monitor.csv``."""
    return name == MONITOR or name.endswith(f".{MONITOR}")
