"""Locks on files: the system takes them away when the process that holds one ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from zoo.core.printing import one_line
from zoo.errors import ZooError


class FileLock:
    """A lock that one process at a time holds; as a record lock, child processes don't inherit it.

    One that is ``inherited`` is held by all processes that have its ``descriptor``, until the last has ended.
    """

    def __init__(self, path: Path, *, inherited: bool = False) -> None:
        self.path = path
        self.descriptor: int | None = None
        self._lock = fcntl.flock if inherited else fcntl.lockf

    def acquire(self, *, wait: bool = True) -> bool:
        """Take the lock, once it is free; without ``wait``, return False if another process holds it.

        Without ``wait``, a file system without locks grants it. Raises `ZooError` if its file can't be made.
        """
        try:
            self.descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise ZooError(f"can't write into {one_line(self.path.parent, 500)}: {error.strerror}") from error
        try:
            self._lock(self.descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
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
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *raised: object) -> None:
        self.release()


def is_locked(path: Path, *, inherited: bool = False) -> bool:
    """Return whether another process holds the lock (asking releases a record lock of this process)."""
    try:
        with open(path, "rb") as file:
            (fcntl.flock if inherited else fcntl.lockf)(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return not isinstance(error, FileNotFoundError)
    return False
