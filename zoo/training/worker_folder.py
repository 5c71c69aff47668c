"""The folder where the workers of one machine meet: its run removes it, or else the next one does."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
import time
from pathlib import Path

from zoo.errors import ZooError
from zoo.files.file_lock import FileLock, is_locked

PREFIX, LOCK = "zoo-workers-", "running"

SECONDS_TO_LOCK = 60.0
"""How long a folder may be there without its lock."""


class WorkerFolder:
    """A new folder that only this user can read, locked as long as its process lives."""

    def __init__(self) -> None:
        _remove_abandoned(Path(tempfile.gettempdir()))
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._lock = FileLock(self.path / LOCK)
        self._lock.acquire()

    def remove(self) -> None:
        """Remove it with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.release()


def _remove_abandoned(parent: Path) -> None:
    """Remove this user's folders whose processes were all killed at once."""
    for folder in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError, ZooError):
            status = folder.lstat()
            is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
            is_young = time.time() - status.st_mtime < SECONDS_TO_LOCK
            if is_own and not is_young and not is_locked(folder / LOCK):
                shutil.rmtree(folder, ignore_errors=True)
