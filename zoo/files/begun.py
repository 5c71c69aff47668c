"""Files that are being written under a hidden name, told from those that a killed process left there."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from pathlib import Path

from zoo.files import atomic


class BegunFile:
    """A hidden file beside ``target``, locked until it is finished: nobody else removes it meanwhile."""

    def __init__(self, target: Path) -> None:
        """Make it, empty. Raises `OSError`."""
        self.target = target
        self._descriptor: int | None
        self.path, self._descriptor = _new_and_locked(target)

    def finish(self) -> None:
        """Give the file its name, once it is on the disk. Raises `OSError`."""
        atomic.sync(self.path)
        os.replace(self.path, self.target)
        atomic.sync(self.target.parent)
        self.discard()

    def discard(self) -> None:
        """Leave nothing of it that has no name."""
        self.path.unlink(missing_ok=True)
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def remove_abandoned(folder: Path, endings: tuple[str, ...]) -> None:
    """Remove what was begun there of files with these endings, and is nobody's: its writer was killed.

    Nothing is removed where the file system has no locks. Raises `OSError`.
    """
    begun = re.compile(rf"\..+(?:{'|'.join(map(re.escape, endings))})\.[0-9a-f]{{8}}\.partial")
    for each in folder.iterdir():
        if begun.fullmatch(each.name) and each.is_file() and not each.is_symlink():
            with contextlib.suppress(FileNotFoundError):
                _remove_if_abandoned(each)


def _remove_if_abandoned(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if _locked(descriptor, wait=False):
            path.unlink()
    finally:
        os.close(descriptor)


def _new_and_locked(target: Path) -> tuple[Path, int]:
    while True:
        path = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
        _locked(descriptor, wait=True)
        if path.exists():  # nobody took it for abandoned before it was locked
            return path, descriptor
        os.close(descriptor)


def _locked(descriptor: int, *, wait: bool) -> bool:
    """Lock an open file, and tell whether that worked: not if another has the lock, or there are no locks."""
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except (ImportError, OSError):
        return False
    return True
