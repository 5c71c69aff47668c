"""What a job prints, in its log and, where it runs alone, on the terminal too."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_COLOURS_AND_MOVES = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")

SECONDS_FOR_THE_REST = 2.0
"""What a job left behind may keep its output open; nobody waits for it longer."""


@contextlib.contextmanager
def shown_and_logged(log: Path) -> Iterator[tuple[int, int]]:
    """Give files for a job's stdout and stderr: what is written there appears on ours, and in the log.

    Where ours is a terminal the job sees one, too, so that it shows its progress bar; the log gets the lines
    as they stood last.
    """
    with open(log, "ab", buffering=0) as file:
        streams = [_Stream(shown, file) for shown in (1, 2)]
        try:
            yield streams[0].end, streams[1].end
        finally:
            sys.stdout.flush()
            for stream in streams:
                stream.finish()


class _Stream:
    """One of ours, ``shown``, with a thread that copies to it what comes from the job."""

    def __init__(self, shown: int, log: BinaryIO) -> None:
        self.shown, self.log = shown, log
        self._unfinished = b""
        self.is_terminal = _is_terminal(shown)
        if self.is_terminal:
            self._source, self.end = os.openpty()
            _take_over_size(shown, self.end)
        else:
            self._source, self.end = os.pipe()
        self._thread = threading.Thread(target=self._copy, daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Copy what is still to come."""
        os.close(self.end)
        self._thread.join(SECONDS_FOR_THE_REST)

    def _copy(self) -> None:
        # A terminal whose other end is closed is an error, a pipe's is the end of the file.
        with contextlib.suppress(OSError):
            while content := os.read(self._source, 2**16):
                with contextlib.suppress(OSError):  # nobody may be reading
                    _write_all(self.shown, content)
                with contextlib.suppress(OSError, ValueError):
                    self._log(content)
        with contextlib.suppress(OSError, ValueError):
            self.log.write(self._unfinished)
        os.close(self._source)

    def _log(self, content: bytes) -> None:
        if not self.is_terminal:
            self.log.write(content)
            return
        *lines, rest = (self._unfinished + content).split(b"\n")
        for line in lines:
            self.log.write(_as_it_stood_last(line) + b"\n")
        self._unfinished = rest[max(0, rest.rstrip(b"\r").rfind(b"\r")) :]


def _as_it_stood_last(line: bytes) -> bytes:
    """Return a terminal's line without what was written over, and without colours."""
    return _COLOURS_AND_MOVES.sub(b"", line.rstrip(b"\r").rpartition(b"\r")[2])


def _write_all(descriptor: int, content: bytes) -> None:
    while content:
        content = content[os.write(descriptor, content) :]


def _is_terminal(descriptor: int) -> bool:
    with contextlib.suppress(OSError):
        return os.isatty(descriptor)
    return False


def _take_over_size(source: int, target: int) -> None:
    with contextlib.suppress(ImportError, OSError):
        import fcntl
        import termios

        size = fcntl.ioctl(source, termios.TIOCGWINSZ, b"\0" * 8)
        fcntl.ioctl(target, termios.TIOCSWINSZ, size)
