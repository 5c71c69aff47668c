"""The journal of a study: a file of lines, of which a power cut or a full disk leaves none half written."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from optuna.exceptions import StorageInternalError
from optuna.storages.journal import JournalFileBackend
from optuna.storages.journal._base import BaseJournalBackend

from zoo.config.paths import shown
from zoo.files.file_lock import FileLock
from zoo.files.printing import say

BLOCK = 65536

BEGINNING = b'{"op_code":'
"""What every journal of Optuna begins with."""


class Journal(BaseJournalBackend):
    """Optuna's journal, which cuts off what is not a whole line before it writes the next one.

    With a half line in its middle Optuna reads nothing of a journal any more.
    """

    def __init__(self, file: Path, lock: FileLock) -> None:
        self.file, self.lock = file, lock
        with self._as_mistakes_of_storage():
            optunas: Any = lock
            self._reader = JournalFileBackend(str(file), lock_obj=optunas)

    def read_logs(self, log_number_from: int) -> Generator[dict[str, Any], None, None]:
        """Give the entries from that number on; half a line at the end is none yet."""
        with self._as_mistakes_of_storage():
            yield from self._reader.read_logs(log_number_from)

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Write entries, all of them or none."""
        text = "".join(json.dumps(log, separators=(",", ":")) + "\n" for log in logs)
        with self._as_mistakes_of_storage(), self.lock, open(self.file, "r+b", buffering=0) as file:
            end = self._cut(file)
            try:
                _write_whole(file, text.encode())
                os.fsync(file.fileno())
            except OSError:
                file.truncate(end)
                raise

    def mend(self) -> None:
        """Cut off what is not a whole line at the end of the file, and say so."""
        with self._as_mistakes_of_storage(), self.lock, open(self.file, "r+b", buffering=0) as file:
            self._cut(file)

    def _cut(self, file: BinaryIO) -> int:
        """Go to the end of the last whole line, and let the file end there."""
        refuse_other_files(file)
        size = file.seek(0, os.SEEK_END)
        end = _end_of_last_line(file, size)
        if end < size:
            file.truncate(end)
            say(
                f"zoo: {shown(self.file)}: its last entry was not written to its end, and is left out",
                sys.stderr,
            )
        return file.seek(end)

    @contextlib.contextmanager
    def _as_mistakes_of_storage(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StorageInternalError(error.strerror or str(error)) from error


def refuse_other_files(file: BinaryIO) -> None:
    """Raise `StorageInternalError` for a file that is no journal, nor empty, nor the beginning of one."""
    file.seek(0)
    beginning = file.read(len(BEGINNING))
    if not BEGINNING.startswith(beginning):
        raise StorageInternalError("it is another file, which stays as it is; give another name")


def _end_of_last_line(file: BinaryIO, size: int) -> int:
    start = size
    while start > 0:
        start = max(0, start - BLOCK)
        file.seek(start)
        found = file.read(min(BLOCK, size - start)).rfind(b"\n")
        if found >= 0:
            return start + found + 1
    return 0


def _write_whole(file: BinaryIO, data: bytes) -> None:
    while data:
        data = data[file.write(data) :]
