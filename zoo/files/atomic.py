"""Writing files and folders whole or not at all.

What is new is written beside what it replaces, forced to the disk, and renamed into place: whoever looks,
even after a crash or with a full disk, finds the old version or the new one and never a part of either.
A log, which grows row by row, gets whole rows by `append`, and reaches the disk by `sync`.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import re
import shutil
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO

from zoo.errors import ZooError
from zoo.files.begun import Begun, remove_long_abandoned
from zoo.files.plain_data import to_json


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write ``data`` to the file ``path``, making its folder if there is none.

    Raises `ZooError` if the disk is full or the place can't be written; the file is then what it was.
    """
    with atomic_file(path) as file:
        file.write(data)


def write_text(path: str | Path, text: str) -> None:
    """Write ``text`` as UTF-8; see `write_bytes`."""
    write_bytes(path, text.encode())


def write_json(path: str | Path, data: Any) -> None:
    """Write ``data`` as indented JSON, numpy's numbers and arrays as plain ones; see `write_bytes`."""
    write_text(path, to_json(data))


@contextlib.contextmanager
def atomic_file(path: str | Path) -> Iterator[BinaryIO]:
    """Give an open file whose content becomes ``path`` when the block ends, and vanishes if it raises."""
    path = Path(path)
    begun = _begun(path)
    try:
        with _explained(path):
            with open(begun.path, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(begun.path, path)
            sync(path.parent)
    finally:
        begun.discard()


@contextlib.contextmanager
def atomic_folder(path: str | Path) -> Iterator[Path]:
    """Give an empty folder that becomes ``path`` when the block ends, and vanishes if it raises.

    A folder that stood at ``path`` is replaced in one step where the file system can exchange two names.
    Where it can't (NFS, for one), a crash within the moment between two renames leaves the old folder under
    a hidden name, from which `recover_folder` brings it back.
    """
    path = Path(path)
    begun = _begun(path, is_folder=True)
    try:
        with _explained(path):
            yield begun.path
            _sync_tree(begun.path)
            _swap_in(begun.path, path)
            sync(path.parent)
    finally:
        begun.discard()


def append(file: FileIO, data: bytes) -> None:
    """Write all of ``data`` to the end of an unbuffered file, or nothing. Raises `OSError`."""
    written = file.write(data) or 0
    if written < len(data):
        file.truncate(os.fstat(file.fileno()).st_size - written)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), file.name)


def sync(path: str | Path) -> None:
    """Force what was written to a file, or the names in a folder, to the disk. Raises `OSError`."""
    if os.name == "nt" and os.path.isdir(path):
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(path: Path) -> None:
    """Make a folder, and those above it that are missing, so that a power cut does not take them away."""
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(exist_ok=True)
    sync(path.parent)


def recover_folder(path: str | Path) -> None:
    """Put back the folder that a crash of `atomic_folder` left under its hidden name, if there is one."""
    path = Path(path)
    previous = _previous(path)
    if previous.is_dir() and not path.exists():
        with contextlib.suppress(FileNotFoundError):
            os.rename(previous, path)


def unfinished(names: str) -> str:
    """Return the pattern of what a killed process began of files and folders with names like these."""
    return rf"\.(?:{names})\.(?:[0-9a-f]{{8}}\.partial|previous)"


def remove_unfinished(path: str | Path) -> None:
    """Remove what a process that was killed began of a file or folder: nobody may be writing it now."""
    path = Path(path)
    of_this = re.compile(unfinished(re.escape(path.name)))
    for each in path.parent.iterdir():
        if not of_this.fullmatch(each.name):
            continue
        if each.is_dir():
            shutil.rmtree(each, ignore_errors=True)
        else:
            each.unlink(missing_ok=True)


def recover_folders(parent: str | Path) -> None:
    """Put folders back that a crash left under hidden names, and remove what a killed process began there.

    Nobody may be writing any of them now.
    """
    parent = Path(parent)
    if parent.is_symlink() or not parent.is_dir():
        return
    left = re.compile(unfinished(r"(?P<name>.+)"))
    for name in {match["name"] for each in parent.iterdir() if (match := left.fullmatch(each.name))}:
        recover_folder(parent / name)
        remove_unfinished(parent / name)


def _swap_in(new: Path, path: Path) -> None:
    try:
        os.rename(new, path)
    except OSError:
        if not path.is_dir():
            raise
    else:
        return
    if _exchange(new, path):
        shutil.rmtree(new, ignore_errors=True)
        return
    previous = _previous(path)
    shutil.rmtree(previous, ignore_errors=True)
    os.rename(path, previous)
    os.rename(new, path)
    shutil.rmtree(previous, ignore_errors=True)


_CURRENT_FOLDER = -100
_RENAME_EXCHANGE = 2


def _exchange(first: Path, second: Path) -> bool:
    """Swap two names in one step (Linux's ``renameat2``); False where system or file system can't."""
    renameat2 = _renameat2()
    if renameat2 is None:
        return False
    names = os.fsencode(first), os.fsencode(second)
    failed = renameat2(_CURRENT_FOLDER, names[0], _CURRENT_FOLDER, names[1], _RENAME_EXCHANGE)
    return failed == 0


@functools.cache
def _renameat2() -> Callable[[int, bytes, int, bytes, int], int] | None:
    try:
        function: Callable[[int, bytes, int, bytes, int], int] = ctypes.CDLL(None).renameat2
    except (OSError, AttributeError, TypeError):
        return None
    return function


def _begun(path: Path, *, is_folder: bool = False) -> Begun:
    with _explained(path):
        make_folder(path.parent)
        remove_long_abandoned(path)
        return Begun(path, is_folder=is_folder)


def _previous(path: Path) -> Path:
    return path.with_name(f".{path.name}.previous")


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ZooError(f"can't write {path}: {error.strerror or error}") from error


def _sync_tree(folder: Path) -> None:
    for parent, _, names in os.walk(folder):
        for name in names:
            sync(os.path.join(parent, name))
        sync(Path(parent))
