"""Arrays of numbers in a NumPy archive that anybody may have sent: no pickle, and nothing above a limit."""

from __future__ import annotations

import io
import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Collection, Iterable

import numpy as np
from numpy.typing import NDArray

from zoo.files.opening import TEXT_LIMIT
from zoo.files.printing import one_line

Array = NDArray[np.float64]

ARRAY_LIMIT = 256 * 2**20
"""Bytes that an array may have, as it stands in the archive and as numbers of eight bytes each."""

RATIO_LIMIT = 100
"""How much smaller than its content a large array may be."""

_HEADER_LIMIT = 10_000


_DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, OSError, MemoryError, OverflowError),
    *(SyntaxError, tokenize.TokenError, struct.error, NotImplementedError),
)
"""What Python's and NumPy's readers raise for archives and headers that are none; `RecursionError` too."""


def parse_arrays(content: bytes, names: Iterable[str]) -> dict[str, Array]:
    """Return those of the named arrays that there are. Raises `ValueError` in one line for a damaged one."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            there = set(archive.namelist())
            return {name: _member(archive, f"{name}.npy") for name in names if f"{name}.npy" in there}
    except _DAMAGED as error:
        raise ValueError(one_line(error) or type(error).__name__) from error


def parse_only_arrays(content: bytes, names: Collection[str]) -> dict[str, Array]:
    """Return those of the named arrays that there are, in an archive that holds no others, as `parse_arrays`.

    So no array is missing whose name alone is damaged.
    """
    arrays = parse_arrays(content, names)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        others = set(archive.namelist()) - {f"{name}.npy" for name in arrays}
    if others:
        raise ValueError(f"it holds {one_line(min(others), 40)}")
    return arrays


def _member(archive: zipfile.ZipFile, name: str) -> Array:
    entry = archive.getinfo(name)
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{name} is compressed in an unusual way")
    compressed = max(entry.compress_size, 1)
    is_bomb = entry.file_size > TEXT_LIMIT and entry.file_size > RATIO_LIMIT * compressed
    if entry.file_size > ARRAY_LIMIT or is_bomb:
        raise ValueError(f"{name} would have {entry.file_size:,} bytes, unpacked from {compressed:,}")
    with archive.open(entry) as member:
        content = member.read(entry.file_size + 1)
    file = io.BytesIO(content)
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(file, max_header_size=_HEADER_LIMIT)
    else:
        shape, is_fortran, dtype = np.lib.format.read_array_header_2_0(file, max_header_size=_HEADER_LIMIT)
    if dtype.kind not in "biuf":
        raise ValueError(f"{name} holds {one_line(dtype)}, expected numbers")
    size = math.prod(shape)
    if min(shape, default=0) < 0 or size * dtype.itemsize != len(content) - file.tell():
        raise ValueError(f"{name} has other bytes than its shape {one_line(list(shape))} asks for")
    if size * 8 > ARRAY_LIMIT:
        raise ValueError(f"{name} would have {size * 8:,} bytes as numbers")
    flat = np.frombuffer(content, dtype, offset=file.tell())
    return flat.reshape(shape, order="F" if is_fortran else "C").astype(np.float64)
