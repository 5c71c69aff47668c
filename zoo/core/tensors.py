"""Arrays in files: safetensors of any size, and state trees, taken apart for two files.

The safetensors package copies every array that it reads, and a replay buffer may take half of the machine's
memory: a checkpoint's arrays come back as views of its files. Agents are read by the package.

A state tree is a dict with keys of text, nested at will; its leaves are NumPy arrays, for safetensors, or
plain values, which JSON gives back as they were. A dict in it may be `ContentFile`.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from zoo.core.atomic import write_bytes

Arrays = dict[str, NDArray[Any]]

_DTYPES = {f"{kind.upper()}{8 * size}": f"<{kind}{size}" for kind in "fiu" for size in (2, 4, 8)}
_DTYPES |= {"I8": "|i1", "U8": "|u1", "BOOL": "|b1"}


def write_tensors(path: str | Path, arrays: Mapping[str, NDArray[Any]]) -> int:
    """Write the arrays whole or not at all, and return the file's checksum. Raises `ZooError`."""
    content = tensor_bytes(arrays)
    write_bytes(path, content)
    return zlib.crc32(content)


def tensor_bytes(arrays: Mapping[str, NDArray[Any]], metadata: dict[str, str] | None = None) -> bytes:
    """Return the content of a safetensors file."""
    contiguous = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    return bytes(safetensors.numpy.save(contiguous, metadata))


def read_tensors(path: str | Path, checksum: int) -> Arrays:
    """Return the arrays as read-only views of the file. Raises `ValueError` for one with another checksum."""
    content = np.memmap(path, np.uint8, "r")
    if zlib.crc32(content.data) != checksum:
        raise ValueError("its checksum does not match")
    start, header = _header(content)
    arrays: Arrays = {}
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        flat: NDArray[Any] = content[start + first : start + last].view(np.ndarray)
        arrays[name] = flat.view(_DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return arrays


def parse_tensors(content: bytes) -> tuple[Arrays, dict[str, str]]:
    """Return the arrays and the metadata of a safetensors file. Raises `ValueError` if it is damaged."""
    try:
        arrays = safetensors.numpy.load(content)
    except (safetensors.SafetensorError, LookupError) as error:
        raise ValueError(f"it is truncated or no safetensors file ({error})") from error
    return arrays, _header(content)[1].get("__metadata__", {})


def _header(content: Any) -> tuple[int, dict[str, Any]]:
    """Return the offset of the first array, and the header's entries."""
    start = 8 + int.from_bytes(content[:8], "little")
    return start, json.loads(bytes(content[8:start]))


Tree = dict[str, Any]

SEPARATOR = "/"


class ContentFile(dict[str, Any]):
    """A part of a tree, of arrays alone, whose name stands for its content: it is written only once."""

    def __init__(self, name: str, tree: Mapping[str, Any]) -> None:
        super().__init__(tree)
        self.name = name


def content_files(tree: Mapping[str, Any], above: str = "") -> dict[str, ContentFile]:
    """Return the `ContentFile` parts of a tree by their paths."""
    files: dict[str, ContentFile] = {}
    for key, value in tree.items():
        path = above + _escaped(key)
        if isinstance(value, ContentFile):
            files[path] = value
        elif isinstance(value, Mapping):
            files |= content_files(value, path + SEPARATOR)
    return files


def split(tree: Mapping[str, Any], above: str = "") -> tuple[Arrays, Tree]:
    """Return the arrays by their paths (``"memory/rewards"``), and the tree with a note for each of them.

    In a path, a ``/`` of a key is written ``~1`` and a ``~`` is written ``~0``, as in a JSON pointer. Arrays
    are not copied. Raises `TypeError` for a leaf that would not come back from JSON as it was.
    """
    arrays: Arrays = {}
    values: Tree = {}
    for key, value in tree.items():
        path = above + _escaped(key)
        if isinstance(value, np.ndarray):
            arrays[path], values[key] = value, f"<array {value.dtype} {list(value.shape)}>"
        elif isinstance(value, Mapping):
            inner, values[key] = split(value, path + SEPARATOR)
            arrays |= inner
        elif value is None or isinstance(value, bool | int | float | str | list):
            values[key] = value
        else:
            raise TypeError(f"{path} is a {type(value).__name__}, which JSON does not give back as it is")
    return arrays, values


def join(
    arrays: Mapping[str, NDArray[Any]],
    values: Mapping[str, Any],
    names: Mapping[str, str] | None = None,
    above: str = "",
) -> Tree:
    """Return the tree that `split` took apart, its `ContentFile` parts by path with these names."""
    tree: Tree = {}
    for key, value in values.items():
        path = above + _escaped(key)
        if path in arrays:
            tree[key] = arrays[path]
        elif isinstance(value, Mapping):
            part = join(arrays, value, names, path + SEPARATOR)
            tree[key] = ContentFile(names[path], part) if names and path in names else part
        else:
            tree[key] = value
    return tree


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace(SEPARATOR, "~1")
