"""Modules that stand in the working folder: found for whoever names them, and for nobody else.

The working folder may hold what a stranger sent. It is on no import path therefore, and Python's own modules,
installed packages and their optional dependencies are never looked for there. Only a module that the user
typed, or that a config of theirs names, is, and whatever such a module imports itself, whenever it does.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, TypeVar

from zoo.config.paths import shown
from zoo.errors import ZooError, nearest
from zoo.files.printing import one_line

Base = TypeVar("Base")

SAFE_PATH = "PYTHONSAFEPATH"
"""With this variable a process of Python does not look into the working folder, from Python 3.11 on."""

_OURS = "zoo"
"""What the variable is set to, so that it can be told from a user's."""


def import_own(name: str) -> ModuleType:
    """Return a module that the user names; it may stand in the working folder.

    Raises `ZooError` with file and line for one whose own code fails. A module that is missing, itself or one
    that it needs, raises `ModuleNotFoundError` as ever.
    """
    if not name:
        raise ModuleNotFoundError("a module without a name")
    name_own(name)
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


def own_class(where: str, target: str, base: type[Base]) -> type[Base]:
    """Return the class ``module.Class``. Raises `ZooError` if there is none, or it is no subclass of base."""
    module_name, _, class_name = target.rpartition(".")
    try:
        module = import_own(module_name)
    except (ImportError, ValueError) as error:
        raise ZooError(f"`{where}._target_={target}`: can't import `{module_name}`: {error}") from error
    found: Any = getattr(module, class_name, None)
    if found is None:
        hint = nearest(class_name, vars(module))
        raise ZooError(f"`{where}._target_={target}`: {module_name} has no `{class_name}`{hint}")
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ZooError(
            f"`{where}._target_={target}` is not a subclass of {base.__module__}.{base.__qualname__}"
        )
    return found


def path_of_class(own: type[Any], where: str) -> str:
    """Return the path by which configs and agents name a class. Raises `ZooError` if it has none."""
    path = f"{own.__module__}.{own.__qualname__}"
    if "<locals>" in path:
        raise ZooError(f"{where}={path} has to stand at the top of a module, by which agents name it")
    return path


def named_class(given: Any, where: str) -> Any:
    """Return how files name a class, given alone or as ``_target_`` beside its arguments; else ``given``."""
    if isinstance(given, type):
        return path_of_class(given, where)
    if isinstance(given, Mapping) and isinstance(given.get("_target_"), type):
        return {**given, "_target_": path_of_class(given["_target_"], where)}
    return given


def name_own(name: str) -> None:
    """Let the module be found in the working folder by whoever imports it: ``module`` or ``module:Class``."""
    finder = _finder()
    finder.folder = os.getcwd()
    finder.names.add(_top(name.partition(":")[0]))


class Named:
    """The modules that were named so far; they are found in the process, too, that unpickles this."""

    def __reduce__(self) -> tuple[object, ...]:
        finder = _finder()
        return find_named, (finder.folder, sorted(finder.names | finder.found))


def find_named(folder: str, names: Iterable[str]) -> Named:
    """Find modules of these names, and what they import, in the folder from now on."""
    finder = _finder(folder)
    finder.folder = folder
    finder.names.update(names)
    return Named()


@contextlib.contextmanager
def safe_path() -> Iterator[None]:
    """Let processes of Python that are started within the block not look into the working folder."""
    if SAFE_PATH in os.environ:
        yield
        return
    os.environ[SAFE_PATH] = _OURS
    try:
        yield
    finally:
        os.environ.pop(SAFE_PATH, None)


def leave_safe_path() -> None:
    """In such a process: let its own children be as they are elsewhere."""
    if os.environ.get(SAFE_PATH) == _OURS:
        del os.environ[SAFE_PATH]


class _WorkingFolderFinder(MetaPathFinder):
    """Finds top-level modules in a folder: those of ``names``, and what modules ``found`` there import."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.names: set[str] = set()
        self.found: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where a module is, None if it is not there or not to be found there."""
        if path is not None:
            return None
        if fullname not in self.names | self.found and _importing_module() not in self.found:
            return None
        spec = PathFinder.find_spec(fullname, [self.folder], target)
        if spec is not None:
            self.found.add(fullname)
        return spec


def _finder(folder: str | None = None) -> _WorkingFolderFinder:
    for each in sys.meta_path:
        if isinstance(each, _WorkingFolderFinder):
            return each
    finder = _WorkingFolderFinder(os.getcwd() if folder is None else folder)
    sys.meta_path.append(finder)
    return finder


def _importing_module() -> str:
    """Return the top-level name of the module whose code asks for an import."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        name = _top(str(frame.f_globals.get("__name__") or ""))
        if name not in ("importlib", "_frozen_importlib", "_frozen_importlib_external"):
            return name
        frame = frame.f_back
    return ""


def _top(name: str) -> str:
    return name.partition(".")[0]


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
