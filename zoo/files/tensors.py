"""Named arrays in one safetensors file, of any size: written from where they are, read where they are.

The safetensors package makes a copy of every array before it writes and after it reads. A replay memory may
take half of the machine's memory, so here an array goes straight to the file, and comes back as a view of it.
"""

from __future__ import annotations

import io
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from zoo.errors import ZooError
from zoo.files.atomic import atomic_file
from zoo.files.checksums import ChecksummedFile
from zoo.files.opening import open_regular

Arrays = dict[str, NDArray[Any]]

HEADER_LIMIT = 2**20
"""Bytes that a header may have; real ones have some kilobytes."""

METADATA = "__metadata__"

_DTYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "|i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "|u1",
    "BOOL": "|b1",
}
_NAMES = {np.dtype(dtype): name for name, dtype in _DTYPES.items()}


def write_tensors(
    path: str | Path, arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str] | None = None
) -> int:
    """Write the arrays whole or not at all, and return the `checksum_of` the file.

    Raises `ZooError` if the disk is full.
    """
    with atomic_file(path) as file:
        checksummed = ChecksummedFile(file)
        write_tensors_into(checksummed, arrays, metadata)
    return checksummed.checksum


def write_tensors_into(
    file: BinaryIO | ChecksummedFile,
    arrays: Mapping[str, NDArray[Any]],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write the arrays into an open file. Raises `TypeError` for a type that safetensors does not have."""
    # The widest first: then each lies at a multiple of its own width.
    names = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    header: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    offset = 0
    for name in names:
        array = arrays[name]
        if array.dtype not in _NAMES or name == METADATA:
            raise TypeError(f"the array {name!r} of {array.dtype} can't be in a safetensors file")
        end = offset + array.nbytes
        header[name] = {
            "dtype": _NAMES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)
    for name in names:
        if arrays[name].size:
            file.write(np.ascontiguousarray(arrays[name]).reshape(-1).view(np.uint8).data)


def tensor_bytes(arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str] | None = None) -> bytes:
    """Return what `write_tensors` writes, for arrays that are small enough to be in memory twice."""
    file = io.BytesIO()
    write_tensors_into(file, arrays, metadata)
    return file.getvalue()


def read_tensors(path: str | Path) -> Arrays:
    """Return the arrays as read-only views of the file. Raises `ZooError` if it is missing or damaged."""
    path = Path(path)
    try:
        with open_regular(path) as file:
            is_empty = os.fstat(file.fileno()).st_size == 0
            data = np.empty(0, np.uint8) if is_empty else np.memmap(file, np.uint8, "r")
        return parse_tensors(data)[0]
    except FileNotFoundError as error:
        raise ZooError(f"{path} is missing") from error
    except (OSError, ValueError) as error:
        raise ZooError(f"{path} is damaged: {error}") from error


def parse_tensors(data: bytes | NDArray[np.uint8]) -> tuple[Arrays, dict[str, str]]:
    """Return the arrays of a safetensors file as read-only views of its bytes, and its metadata.

    Header and data have to agree to the byte. Raises `ValueError` that says where they don't.
    """
    content = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else data
    start = _end_of_header(content[:8].tobytes(), len(content))
    entries, metadata = _entries(content[8:start].tobytes(), len(content))
    return {name: entry.view(content[start:]) for name, entry in entries.items()}, metadata


def check_size(file: BinaryIO, size: int) -> None:
    """Hold what the header of an open file says against its ``size``; the arrays are not read.

    Raises `ValueError` where they don't agree.
    """
    end = _end_of_header(file.read(8), size)
    _entries(file.read(end - 8), size)


def _end_of_header(first: bytes, size: int) -> int:
    end = 8 + int.from_bytes(first, "little")
    if len(first) < 8 or end > size:
        raise ValueError("it ends within its header")
    if end - 8 > HEADER_LIMIT:
        raise ValueError(f"its header has {end - 8:,} bytes")
    return end


def _entries(text: bytes, size: int) -> tuple[dict[str, _Entry], dict[str, str]]:
    """Return what a header says of the arrays in a file of ``size`` bytes, and the metadata."""
    start, header = 8 + len(text), _parse_header(text)
    metadata = header.pop(METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ValueError("its metadata are not texts by name")
    entries = {name: _Entry(name, entry) for name, entry in header.items()}
    end = 0
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].first, item[1].last)):
        if entry.first != end:
            raise ValueError(f"the array {name} overlaps another one, or leaves a gap")
        end = entry.last
    if start + end != size:
        raise ValueError(f"it has {size:,} bytes instead of {start + end:,}")
    return entries, metadata


def _parse_header(text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text, object_pairs_hook=_named_once)
    except RecursionError as error:
        raise ValueError("its header is nested too deep") from error
    if not isinstance(header, dict):
        raise ValueError("its header holds no mapping")
    return header


def _named_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    named = dict(pairs)
    if len(named) != len(pairs):
        raise ValueError("its header names something twice")
    return named


class _Entry:
    """What the header says about one array: its type, its shape, and where its bytes are."""

    def __init__(self, name: str, entry: Any) -> None:
        if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
            raise ValueError(f"the header's entry of {name} is not one of an array")
        offsets, self.shape = entry["data_offsets"], entry["shape"]
        if not _are_sizes(self.shape) or not _are_sizes(offsets) or len(offsets) != 2 or len(self.shape) > 64:
            raise ValueError(f"the array {name} has no shape or no place")
        if not isinstance(entry["dtype"], str) or entry["dtype"] not in _DTYPES:
            raise ValueError(f"the array {name} is of the type {entry['dtype']}, which NumPy does not have")
        self.dtype = np.dtype(_DTYPES[entry["dtype"]])
        self.first, self.last = offsets
        if self.last - self.first != math.prod(self.shape) * self.dtype.itemsize:
            raise ValueError(f"the array {name} has other bytes than its shape {self.shape} asks for")

    def view(self, data: NDArray[np.uint8]) -> NDArray[Any]:
        flat: NDArray[Any] = data[self.first : self.last].view(np.ndarray)
        return flat.view(self.dtype).reshape(self.shape)


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(
        isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 for value in values
    )
