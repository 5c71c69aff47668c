"""Where ``conf/``, ``hyperparams/`` and ``trained_agents/`` are: in the working folder, and with Zoo."""

from __future__ import annotations

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]


def data_folder(name: str) -> Path | None:
    """Return the folder that comes with Zoo: inside an installed package, at the top of a checkout."""
    for folder in (PACKAGE / name, PACKAGE.parent / name):
        if folder.is_dir():
            return folder
    return None


def search_folders(name: str) -> list[Path]:
    """Return the folders to look in, the user's own in the working folder first."""
    here = Path.cwd() / name
    own = data_folder(name)
    folders = [here] if here.is_dir() else []
    if own is not None and (not folders or not os.path.samefile(own, here)):
        folders.append(own)
    return folders


def shown(path: Path) -> str:
    """Return the path as a person would write it here: relative to the working folder if it is inside."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
