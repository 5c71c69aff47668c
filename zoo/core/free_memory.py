"""The cores and the memory that this process may use; what can't fit is refused before it is allocated."""

from __future__ import annotations

import os
from pathlib import Path

from zoo.errors import ZooError

SHARE = 0.9
"""The share of the free memory that one thing may take."""

GIB = 2**30


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def refuse_what_does_not_fit(what: str, needed: float) -> None:
    """Raise `ZooError` if ``what`` needs more bytes than are free."""
    free = free_bytes()
    if free is not None and needed > SHARE * free:
        raise ZooError(
            f"{what} needs at least {needed / GIB:,.1f} GiB of memory, but {free / GIB:,.1f} GiB are free"
        )


def free_bytes() -> int | None:
    """Return how much memory this process could still get, or None where the system does not say."""
    candidates = [_free_in_machine(), _free_in_control_group()]
    return min((free for free in candidates if free is not None), default=None)


def _free_in_machine() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return None


def _free_in_control_group() -> int | None:
    """Free bytes below the memory limit of a container or cluster job; None without a limit."""
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        try:
            return max(0, int(Path(limit).read_text()) - int(Path(used).read_text()))
        except (OSError, ValueError):
            # No such file, or "max": no limit.
            continue
    return None
