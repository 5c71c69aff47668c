"""Refusing a replay memory that this machine could not hold, before the first step."""

from __future__ import annotations

import logging

from zoo.errors import ZooError
from zoo.files.free_memory import GIB, SHARE, free_bytes

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
