"""Files that are not what they were: moved aside under a name that says so, never written over."""

from __future__ import annotations

import csv
import os
import struct
import zipfile
import zlib
from pathlib import Path

UNREADABLE = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    csv.Error,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)
"""What the libraries raise that read a file of another form than they expect."""


def move_aside(path: Path) -> Path:
    """Rename a file to ``<name>.damaged``, or ``<name>.damaged-2`` and so on, and return its new path."""
    number = 1
    while True:
        aside = path.with_name(f"{path.name}.damaged{'' if number == 1 else f'-{number}'}")
        if not os.path.lexists(aside):
            return path.rename(aside)
        number += 1
