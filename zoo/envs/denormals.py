"""Taking denormal numbers for zero in processes that have no torch, as torch does where it learns.

Environments in the training process compute that way too, so those in worker processes do the same.
"""

from __future__ import annotations

import ctypes
import platform

_REGISTERS = {
    "x86_64": (28, 0x8040),  # MXCSR, behind the 28 bytes of the old unit: FTZ and DAZ
    "aarch64": (0, 1 << 24),  # FPCR: FZ
}
"""Place and bits of the register in what C's ``fegetenv`` gives, by machine."""

_LONGEST = 64
"""Bytes that this may take at most."""


def flush_denormals() -> None:
    """Let this thread, and those that it starts, take denormal numbers for zero.

    Where no register for it is known, nothing happens.
    """
    if platform.machine() not in _REGISTERS:
        return
    place, bits = _REGISTERS[platform.machine()]
    c = ctypes.CDLL("libm.so.6")
    state = ctypes.create_string_buffer(_LONGEST)
    c.fegetenv(state)
    register = ctypes.c_uint32.from_buffer(state, place)
    register.value |= bits
    c.fesetenv(state)
