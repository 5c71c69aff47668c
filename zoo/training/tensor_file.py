"""Named arrays in one safetensors file, of any size: written from where they are, read where they are.

The safetensors package makes a copy of every array before it writes and after it reads. A replay memory may
take half of the machine's memory, so here an array goes straight to the file, and comes back as a view of it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zoo.config.atomic import atomic_file
from zoo.errors import ZooError

Arrays = dict[str, NDArray[Any]]

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


def write_tensors(path: str | Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write the arrays whole or not at all. Raises `ZooError` if the disk is full."""
    # The widest first: then each lies at a multiple of its own width.
    names = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    header: dict[str, Any] = {}
    offset = 0
    for name in names:
        array = arrays[name]
        end = offset + array.nbytes
        header[name] = {
            "dtype": _NAMES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with atomic_file(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            if arrays[name].size:
                file.write(np.ascontiguousarray(arrays[name]).reshape(-1).view(np.uint8).data)


def read_tensors(path: str | Path) -> Arrays:
    """Return the arrays as read-only views of the file. Raises `ZooError` if it is missing or damaged."""
    path = Path(path)
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            start = 8 + int.from_bytes(file.read(8), "little")
            if start > size:
                raise ValueError("it ends within its header")
            header = json.loads(file.read(start - 8))
            header.pop("__metadata__", None)
            end = max((entry["data_offsets"][1] for entry in header.values()), default=0)
            if start + end != size:
                raise ValueError(f"it has {size:,} bytes instead of {start + end:,}")
            data = np.memmap(file, np.uint8, "r", offset=0) if size else np.empty(0, np.uint8)
        return {name: _view(data, start, entry) for name, entry in header.items()}
    except FileNotFoundError as error:
        raise ZooError(f"{path} is missing") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ZooError(f"{path} is damaged: {error}") from error


def _view(data: NDArray[np.uint8], start: int, entry: Mapping[str, Any]) -> NDArray[Any]:
    first, last = entry["data_offsets"]
    flat: NDArray[Any] = data[start + first : start + last].view(np.ndarray)
    return flat.view(_DTYPES[entry["dtype"]]).reshape(entry["shape"])
