"""Named arrays in one safetensors file, of any size: written from where they are, read where they are.

The safetensors package makes a copy of every array before it writes and after it reads. A replay memory may
take half of the machine's memory, so here an array goes straight to the file, and a checkpoint's come back as
views of it. Agents are read by the package, which checks every byte.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from zoo.errors import ZooError
from zoo.files.atomic import atomic_file
from zoo.files.checksums import ChecksummedFile

Arrays = dict[str, NDArray[Any]]

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
    try:
        content = np.memmap(path, np.uint8, "r")
        start, header = _header(content)
        arrays: Arrays = {}
        for name, entry in header.items():
            if name != METADATA:
                first, last = entry["data_offsets"]
                flat: NDArray[Any] = content[start + first : start + last].view(np.ndarray)
                arrays[name] = flat.view(_DTYPES[entry["dtype"]]).reshape(entry["shape"])
        return arrays
    except FileNotFoundError as error:
        raise ZooError(f"{path} is missing") from error
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ZooError(f"{path} is damaged: {error}") from error


def parse_tensors(content: bytes) -> tuple[Arrays, dict[str, str]]:
    """Return the arrays and the metadata of a safetensors file. Raises `ValueError` if it is damaged."""
    try:
        arrays = safetensors.numpy.load(content)
    except (safetensors.SafetensorError, LookupError) as error:
        raise ValueError(str(error)) from error
    return arrays, _header(np.frombuffer(content, np.uint8))[1].get(METADATA, {})


def _header(content: NDArray[np.uint8]) -> tuple[int, dict[str, Any]]:
    """Return where the arrays begin, and what the file says of each."""
    start = 8 + int.from_bytes(content[:8].tobytes(), "little")
    return start, json.loads(content[8:start].tobytes())
