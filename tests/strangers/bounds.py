"""What answering a stranger's file may take: two seconds of computing, and a gigabyte."""

from __future__ import annotations

import contextlib
import resource
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

SECONDS = 2.0
SECONDS_ON_THE_CLOCK = 20
"""After which a test ends whatever waits; other processes may take the processor meanwhile."""
BYTES = 2**30


@contextlib.contextmanager
def within_bounds() -> Iterator[None]:
    """Fail if the block computes for longer, waits for ever, or takes more memory beside what there is."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + BYTES, before[1]))
    handler = signal.signal(signal.SIGALRM, _hangs)
    signal.alarm(SECONDS_ON_THE_CLOCK)
    started = time.process_time()
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)
        resource.setrlimit(resource.RLIMIT_AS, before)
    assert time.process_time() - started < SECONDS


def _hangs(number: int, frame: FrameType | None) -> None:
    raise AssertionError("it hangs")


def contents(folder: Path) -> dict[str, bytes]:
    """Return what stands in a folder, by path."""
    return {str(each): each.read_bytes() for each in sorted(folder.rglob("*")) if each.is_file()}
