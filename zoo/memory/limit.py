"""Refusing a replay memory that this machine could not hold, before the first step."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from zoo.errors import ZooError

SHARE = 0.9
"""What a replay memory may take of what is free."""

GIB = 2**30

logger = logging.getLogger(__name__)


def refuse_too_large_memory(needed: int, buffer_size: int) -> None:
    """Raise `ZooError` with the size that fits if a memory needs more bytes than are free."""
    free = free_bytes()
    if free is None or needed <= SHARE * free:
        logger.log(
            logging.INFO if needed > GIB else logging.DEBUG, "the replay memory takes %.2f GiB", needed / GIB
        )
        return
    fitting = int(buffer_size * SHARE * free / needed)
    fitting -= fitting % 1000 if fitting > 1000 else 0
    raise ZooError(
        f"`algo.buffer_size={buffer_size}` needs {needed / GIB:.1f} GiB of memory, but"
        f" {free / GIB:.1f} GiB are free; algo.buffer_size={fitting} fits"
    )


def free_bytes() -> int | None:
    """Return how much memory this process could still get, or None where the system does not say."""
    candidates = [_free_in_machine(), _free_in_control_group()]
    return min((free for free in candidates if free is not None), default=None)


def _free_in_machine() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        kibibytes = next(line.split()[1] for line in lines if line.startswith("MemAvailable:"))
        return 1024 * int(kibibytes)
    except (OSError, StopIteration):
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None


def _free_in_control_group() -> int | None:
    """Return what a container or a job of a cluster has left of its limit."""
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
