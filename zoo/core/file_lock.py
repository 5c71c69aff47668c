"""Locks on files: the system takes them away when the process that holds one ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from zoo.core.printing import one_line
from zoo.errors import ZooError


class FileLock:
    """A record lock, which one process at a time holds and child processes don't inherit."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def acquire(self, *, wait: bool = True) -> bool:
        """Take the lock, once it is free; without ``wait``, return False if another process holds it.

        Without ``wait``, a file system without locks grants it. Raises `ZooError` if its file can't be made.
        """
        try:
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise ZooError(f"can't write into {one_line(self.path.parent, 500)}: {error.strerror}") from error
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            self.release()
            return False
        except OSError:
            if wait:
                self.release()
                raise
        return True

    def release(self) -> None:
        """Release the lock, if it is held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *raised: object) -> None:
        self.release()


def is_locked(path: Path) -> bool:
    """Return whether another process holds the lock; asking for one of this process would release it."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError:
        return False
    with contextlib.closing(os.fdopen(descriptor, "rb")):
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False
