"""Files and folders that are being written under a hidden name, told from those that a killed process left.

Who writes one holds a lock on it, which the system takes away when the process ends.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import secrets
import shutil
import time
from pathlib import Path

A_WHILE = 60.0
"""Seconds."""

_HIDDEN = re.compile(r"\.(.+)\.[0-9a-f]{8}\.partial")


class Begun:
    """A hidden file or folder beside ``target``, which nobody else removes until it is discarded."""

    def __init__(self, target: Path, *, is_folder: bool = False) -> None:
        """Make it, empty. Raises `OSError`."""
        self.target = target
        while True:
            self.path = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
            self._descriptor = _new_folder(self.path) if is_folder else _new_file(self.path)
            if not _locked(self._descriptor, wait=True):
                self._unlock()
            if self.path.exists():  # nobody took it for abandoned before it was locked
                return
            self._unlock()

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
    for name, path in _begun_in(str(folder)):
        if re.fullmatch(names, name):
            _remove_if_abandoned(path)


def remove_long_abandoned(target: Path) -> None:
    """Remove what was begun of ``target``, is nobody's, and was not changed for a while."""
    for name, path in _lately_begun_in(os.path.abspath(target.parent), int(time.monotonic() // A_WHILE)):
        if name == target.name:
            with contextlib.suppress(OSError):
                if time.time() - path.lstat().st_mtime >= A_WHILE:
                    _remove_if_abandoned(path)


def _begun_in(folder: str) -> list[tuple[str, Path]]:
    """Return what is begun in a folder, with the names that it is to have."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        hidden = [_HIDDEN.fullmatch(entry.name) for entry in entries if entry.name.endswith(".partial")]
        return [(each[1], Path(folder, each[0])) for each in hidden if each is not None]
    return []


@functools.lru_cache(maxsize=256)
def _lately_begun_in(folder: str, now: int) -> list[tuple[str, Path]]:
    """Return what was begun in a folder when it was first asked for at that time: folders can be large."""
    return _begun_in(folder)


def _remove_if_abandoned(path: Path) -> None:
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
        path.unlink()


def _new_file(path: Path) -> int | None:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)


def _new_folder(path: Path) -> int | None:
    path.mkdir()
    return os.open(path, os.O_RDONLY) if os.name != "nt" else None


def _locked(descriptor: int | None, *, wait: bool) -> bool:
    """Lock what is open, and tell whether that worked: not if another has the lock, or there are no locks."""
    try:
        import fcntl

        if descriptor is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except (ImportError, OSError):
        return False
    return descriptor is not None
