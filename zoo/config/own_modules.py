"""Importing a module of the user's own, whose code may fail in any way while it is imported."""

from __future__ import annotations

import importlib
import traceback
from pathlib import Path
from types import ModuleType

from zoo.config.paths import shown
from zoo.errors import ZooError
from zoo.files.printing import one_line


def import_own(name: str) -> ModuleType:
    """Return the module. Raises `ZooError` with file and line for one whose own code fails.

    A module that is missing, itself or one that it needs, raises `ModuleNotFoundError` as ever.
    """
    try:
        return importlib.import_module(name)
    except (ModuleNotFoundError, ZooError):
        raise
    except Exception as error:
        where = f"{_place(error)}: " if _place(error) else ""
        said = error.msg if isinstance(error, SyntaxError) else str(error)
        raise ZooError(
            f"module `{one_line(name)}` can't be imported: {where}{type(error).__name__}: {one_line(said)}"
        ) from error


def _place(error: Exception) -> str:
    """Return the file and line in which a module's code failed, or "" if there are none."""
    if isinstance(error, SyntaxError):
        file, line = error.filename, error.lineno
    else:
        frames = [
            each for each in traceback.extract_tb(error.__traceback__) if not each.filename.startswith("<")
        ]
        file, line = (frames[-1].filename, frames[-1].lineno) if len(frames) > 1 else (None, None)
    if file is None or file == importlib.__file__:
        return ""
    return f"{shown(Path(file))}, line {line}"
