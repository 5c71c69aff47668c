"""The folders of small tries: each has the name of its process, and goes with it, however that ends."""

from __future__ import annotations

import platform
import shutil
from pathlib import Path

from zoo.files.file_lock import is_locked

PREFIX = ".try-"


def try_folder(study: Path, worker: str) -> Path:
    """Return the folder of the small try of a process, in that of its study."""
    return study / f"{PREFIX}{worker}"


def remove_try(study: Path, worker: str) -> None:
    """Remove what a process that has ended left of its small try."""
    shutil.rmtree(try_folder(study, worker), ignore_errors=True)


def remove_left_tries(study: Path, locks: Path) -> None:
    """Remove what processes of this machine left that were killed together with those that started them.

    Each holds its lock, in the folder ``locks``, before it begins; so does the one that asks, whose own
    folder must not be there yet.
    """
    for folder in study.glob(f"{PREFIX}{platform.node()}-*"):
        worker = folder.name.removeprefix(PREFIX)
        if not is_locked(locks / f"{worker}.lock"):
            remove_try(study, worker)
