"""Writing files and folders whole or not at all.

What is new is written beside what it replaces, forced to the disk, and renamed into place: whoever looks,
even after a crash or with a full disk, finds the old version or the new one and never a part of either.
A log, which grows row by row, gets whole rows by `append`, and reaches the disk by `sync`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO

from zoo.errors import ZooError
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

    A folder that stood at ``path`` gets a hidden name before that: a crash within the moment between two
    renames leaves it there, from which `recover_folder` brings it back.
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
        if of_this.fullmatch(each.name):
            _remove(each)


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
    previous = _previous(path)
    shutil.rmtree(previous, ignore_errors=True)
    if path.is_dir():
        os.rename(path, previous)
    os.rename(new, path)
    shutil.rmtree(previous, ignore_errors=True)


def _begun(path: Path, *, is_folder: bool = False) -> Begun:
    with _explained(path):
        make_folder(path.parent)
        remove_abandoned(path.parent, re.escape(path.name))
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


class Begun:
    """A hidden file or folder beside ``target``, which nobody else removes until it is discarded."""

    def __init__(self, target: Path, *, is_folder: bool = False) -> None:
        """Make it, empty. Raises `OSError`."""
        self.target = target
        while True:
            self.path = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
            self._descriptor: int | None = self._made(is_folder)
            if not _locked(self._descriptor, wait=True):
                self._unlock()
            if self.path.exists():  # nobody took it for abandoned before it was locked
                return
            self._unlock()

    def _made(self, is_folder: bool) -> int:
        if is_folder:
            self.path.mkdir()
            return os.open(self.path, os.O_RDONLY)
        return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)

    def discard(self) -> None:
        """Leave nothing of it under its hidden name."""
        with contextlib.suppress(OSError):
            _remove(self.path)
        self._unlock()

    def _unlock(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def remove_abandoned(folder: Path, names: str) -> None:
    """Remove what was begun there of files with names like these, a pattern, and is nobody's.

    What can't be removed stays, and so does everything where the file system has no locks.
    """
    hidden = re.compile(rf"\.(?:{names})\.[0-9a-f]{{8}}\.partial")
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for path in [Path(entry.path) for entry in entries if hidden.fullmatch(entry.name)]:
            with contextlib.suppress(OSError):
                descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                try:
                    if _locked(descriptor, wait=False):
                        _remove(path)
                finally:
                    os.close(descriptor)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _locked(descriptor: int, *, wait: bool) -> bool:
    """Lock what is open, and tell whether that worked: not if another has the lock, or there are no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True
