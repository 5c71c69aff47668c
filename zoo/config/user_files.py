"""The user's files in the working folder: configs, tuned files and agents beside Zoo's, and modules.

Python searches the folder for modules once one is named. Until then it is on no import path, so that a file
beside a downloaded agent is never imported by accident. It comes last on the path: no file in it overrides an
installed package.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, TypeVar

from zoo.core.printing import one_line
from zoo.errors import ZooError, nearest

Base = TypeVar("Base")

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
    shipped = data_folder(name)
    folders = [here] if here.is_dir() else []
    if shipped is not None and (not folders or not os.path.samefile(shipped, here)):
        folders.append(shipped)
    return folders


def shown(path: str | os.PathLike[str]) -> str:
    """Return the path as a person would write it here: relative to the working folder if it is inside."""
    absolute = Path(path).expanduser().absolute()
    return str(absolute.relative_to(Path.cwd()) if absolute.is_relative_to(Path.cwd()) else absolute)


def import_own(name: str) -> ModuleType:
    """Return a module that the user names; it may stand in the working folder.

    Raises `ZooError` with file and line for one whose own code fails. A module that is missing, itself or one
    that it needs, raises `ModuleNotFoundError`.
    """
    if not name:
        raise ModuleNotFoundError("a module without a name")
    if os.getcwd() not in sys.path:  # for processes that are started later too
        sys.path.append(os.getcwd())
        importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except (ModuleNotFoundError, ZooError):
        raise
    except Exception as error:
        message = error.msg if isinstance(error, SyntaxError) else str(error)
        raise ZooError(
            f"module `{one_line(name)}` can't be imported: {_place(error)}{type(error).__name__}:"
            f" {one_line(message)}"
        ) from error


def own_object(where: str, target: str) -> Any:
    """Return the class or function ``module.name``. Raises `ZooError` if there is none."""
    module_name, _, class_name = target.rpartition(".")
    try:
        module = import_own(module_name)
    except (ImportError, ValueError) as error:
        raise ZooError(f"`{where}._target_={target}`: can't import `{module_name}`: {error}") from error
    candidate: Any = getattr(module, class_name, None)
    if candidate is None:
        hint = nearest(class_name, vars(module))
        raise ZooError(f"`{where}._target_={target}`: {module_name} has no `{class_name}`{hint}")
    return candidate


def own_class(where: str, target: str, base: type[Base]) -> type[Base]:
    """Return the class ``module.Class``. Raises `ZooError` if there is none, or it has another base."""
    candidate = own_object(where, target)
    if not (isinstance(candidate, type) and issubclass(candidate, base)):
        raise ZooError(
            f"`{where}._target_={target}` is not a subclass of {base.__module__}.{base.__qualname__}"
        )
    return candidate


def check_arguments(
    where: str,
    target: type[Any],
    arguments: Sequence[Any],
    kwargs: Mapping[str, Any],
    options: Mapping[str, Any],
) -> None:
    """Raise `ZooError` if a class does not accept Zoo's arguments and the user's ``kwargs`` together."""
    try:
        inspect.signature(target).bind(*arguments, **options, **kwargs)
    except TypeError as error:
        raise ZooError(f"`{where}` don't fit {target.__module__}.{target.__qualname__}: {error}") from error


def path_of_class(target: type[Any] | FunctionType, where: str) -> str:
    """Return how configs and agents name a class or a function. Raises `ZooError` if it has no path."""
    path = f"{target.__module__}.{target.__qualname__}"
    if "<locals>" in path:
        raise ZooError(f"{where}={path} has to stand at the top of a module, by which agents name it")
    return path


def named_class(given: Any, where: str) -> Any:
    """Return how files name a class, given alone or as ``_target_`` beside its arguments; else ``given``."""
    if isinstance(given, type):
        return path_of_class(given, where)
    if isinstance(given, Mapping) and isinstance(given.get("_target_"), type | FunctionType):
        return {**given, "_target_": path_of_class(given["_target_"], where)}
    return given


def _place(error: Exception) -> str:
    """Return the file and line in which a module's code failed, or "" if there are none."""
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    frames = [(file, line) for file, line in frames if file[:1] != "<"]
    file, line = (error.filename, error.lineno) if isinstance(error, SyntaxError) else frames[-1]
    is_own = file is not None and file not in (__file__, importlib.__file__)
    return f"{shown(str(file))}, line {line}: " if is_own else ""
