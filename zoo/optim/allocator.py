"""Keeping freed memory for the next step."""

from __future__ import annotations

import ctypes
import functools
import os
import sys

KEPT_BYTES = 256 * 2**20
"""Freed memory that stays with the process."""

LARGEST_KEPT_BYTES = 32 * 2**20
"""Larger blocks, such as replay memories, go back to the system when they are freed."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3

_SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


@functools.cache
def keep_freed_memory() -> bool:
    """Let the C library keep what is freed, for the rest of the process; return whether it does now.

    A step of updates frees as much as the next one takes. glibc hands some megabytes back to the system each
    time and asks for them again, a page fault for every 4 KiB: a quarter of a compiled step of TQC. Other
    libraries are left alone, and so is what the environment says.
    """
    if not sys.platform.startswith("linux") or any(name in os.environ for name in _SETTINGS):
        return False
    choose = getattr(ctypes.CDLL(None), "mallopt", None)
    if choose is None:
        return False
    choices = {_M_MMAP_THRESHOLD: LARGEST_KEPT_BYTES, _M_TRIM_THRESHOLD: KEPT_BYTES}
    taken = [choose(parameter, value) == 1 for parameter, value in choices.items()]
    return all(taken)
