"""The cores and memory that this process may use; refuses allocations that can't fit."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from zoo.errors import ZooError

SHARE = 0.9  # of the free memory, which one thing may take
GIB = 2**30
_OLD = "memory/memory.{}_in_bytes"  # of control groups of version 1


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def refuse_what_does_not_fit(name: str, needed: float) -> None:
    """Raise `ZooError` if ``name`` needs more bytes than are free."""
    free = free_bytes()
    if free is not None and needed > SHARE * free:
        raise ZooError(
            f"{name} needs at least {needed / GIB:,.1f} GiB of memory, but {free / GIB:,.1f} GiB are free"
        )


def free_bytes() -> int | None:
    """Return the memory free for this process, also under a container's limit; None if unknown."""
    free = []
    with contextlib.suppress(OSError, ValueError):
        line = re.search(r"MemAvailable:\s*(\d+)", Path("/proc/meminfo").read_text())
        free += [1024 * int(line[1])] if line else []
    for limit, used in (("memory.max", "memory.current"), (_OLD.format("limit"), _OLD.format("usage"))):
        with contextlib.suppress(OSError, ValueError):  # no such file, or "max": no limit
            in_use, most = (int(Path("/sys/fs/cgroup", name).read_text()) for name in (used, limit))
            free.append(max(0, most - in_use))
    return min(free, default=None)
