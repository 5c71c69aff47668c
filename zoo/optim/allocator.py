"""Keeping freed memory for the next step."""

from __future__ import annotations

import ctypes
import functools
import os
import sys

KEPT_BYTES = 256 * 2**20
"""Freed memory that stays at the end of the heap."""

LARGEST_KEPT_BYTES = 32 * 2**20
"""Larger blocks, such as the frames of a replay memory, go back to the system when they are freed."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3

_SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


@functools.cache
def keep_freed_memory() -> None:
    """Let glibc keep what is freed, for the rest of the process, unless the environment chooses for itself.

    A step of updates frees as much as the next one takes. By itself glibc hands some megabytes back to the
    system each time and asks for them again, a page fault for every 4 KiB: a quarter of a compiled step of
    TQC. Where another library allocates, this changes nothing.
    """
    if not sys.platform.startswith("linux") or any(name in os.environ for name in _SETTINGS):
        return
    choose = getattr(ctypes.CDLL(None), "mallopt", None)
    if choose is not None:
        choose(_M_MMAP_THRESHOLD, LARGEST_KEPT_BYTES)
        choose(_M_TRIM_THRESHOLD, KEPT_BYTES)
