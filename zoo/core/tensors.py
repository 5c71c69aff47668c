"""Arrays in files: safetensors of any size, and state trees, taken apart for two files.

The safetensors package makes a copy of every array before it writes and after it reads. A replay buffer may
take half of the machine's memory, so here an array goes straight to the file, and a checkpoint's come back as
views of it. Agents are read by the package, which checks every byte.

A state tree is a dict with keys of text, nested at will; its leaves are NumPy arrays, for safetensors, or
what JSON gives back as it took it: numbers, texts, booleans, None, and lists and dicts of these. A dict in it
may be `ContentFile`.
"""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from zoo.core.atomic import atomic_file
from zoo.core.printing import one_line
from zoo.errors import ZooError

PIECE = 4 * 2**20
"""Bytes that are read at a time."""


class ChecksummedFile:
    """A file that is written to, with the checksum of all that was."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.checksum = 0

    def write(self, data: bytes | memoryview) -> None:
        """Write all of ``data``."""
        self.checksum = zlib.crc32(data, self.checksum)
        self.file.write(data)


def checksum_of(path: Path) -> int:
    """Return the checksum of a file's content. Raises `OSError`."""
    checksum, piece = 0, memoryview(bytearray(PIECE))
    with open(path, "rb") as file:
        while n_bytes := file.readinto(piece):
            checksum = zlib.crc32(piece[:n_bytes], checksum)
    return checksum


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


Tree = dict[str, Any]

SEPARATOR = "/"


class ContentFile(dict[str, Any]):
    """A part of a tree, of arrays alone, whose content has a name: under that name it is never another one.

    So whoever has written it once need not do so again, in however many trees it stands.
    """

    def __init__(self, name: str, tree: Mapping[str, Any]) -> None:
        super().__init__(tree)
        self.name = name


def content_files(tree: Mapping[str, Any]) -> dict[str, ContentFile]:
    """Return the `ContentFile` parts of a tree by their paths."""
    return dict(_content_files(tree, ()))


def split(tree: Mapping[str, Any]) -> tuple[Arrays, Tree]:
    """Return the arrays by their paths (``"memory/rewards"``), and the tree with a note for each of them.

    In a path, a ``/`` of a key is written ``~1`` and a ``~`` is written ``~0``, as in a JSON pointer: every
    key is possible, and no two paths are equal. The arrays are the tree's own, not copies. Raises `TypeError`
    for a leaf that would not come back from JSON as it was.
    """
    arrays: Arrays = {}
    return arrays, _without_arrays(tree, (), arrays)


def join(
    arrays: Mapping[str, NDArray[Any]], values: Mapping[str, Any], names: Mapping[str, str] | None = None
) -> Tree:
    """Return the tree that `split` took apart, its `ContentFile` parts by path with these names.

    Raises `ZooError` if arrays and values don't belong together.
    """
    tree = _copied(values, (), names or {})
    places = {_path(keys): (parent, keys[-1]) for parent, keys in _leaves(tree, ())}
    for path, array in arrays.items():
        if path not in places:
            raise ZooError(f"the array {one_line(path)} has no place among the values beside it")
        parent, key = places[path]
        if parent[key] != _note(array):
            note = one_line(repr(parent[key]), 60)
            raise ZooError(f"{one_line(path)} is {_note(array)} among the arrays, {note} among the values")
        parent[key] = array
    return tree


def _without_arrays(tree: Mapping[str, Any], keys: tuple[str, ...], arrays: Arrays) -> Tree:
    values: Tree = {}
    for key, value in tree.items():
        here = (*keys, _checked_key(key, keys))
        if isinstance(value, np.ndarray):
            arrays[_path(here)] = value
            values[key] = _note(value)
        elif isinstance(value, Mapping):
            values[key] = _without_arrays(value, here, arrays)
        else:
            values[key] = _checked(value, here)
    return values


def _checked(value: Any, keys: tuple[str, ...]) -> Any:
    """Return a leaf as it is, lists copied."""
    if isinstance(value, list):
        return [_checked(item, (*keys, str(index))) for index, item in enumerate(value)]
    if isinstance(value, dict):
        return {_checked_key(key, keys): _checked(item, (*keys, str(key))) for key, item in value.items()}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    hint = "; give each array of a list a key of its own" if isinstance(value, np.ndarray) else ""
    raise TypeError(
        f"{_path(keys)} is a {type(value).__name__}, which JSON does not give back as it is{hint}"
    )


def _checked_key(key: Any, keys: tuple[str, ...]) -> str:
    if not isinstance(key, str):
        raise TypeError(
            f"the key {key!r} in {_path(keys) or 'the tree'} is a {type(key).__name__}, not a text"
        )
    return key


def _note(array: NDArray[Any]) -> str:
    """Return the text that stands in an array's place among the values."""
    return f"<array {array.dtype} {list(array.shape)}>"


def _path(keys: Iterable[str]) -> str:
    return SEPARATOR.join(key.replace("~", "~0").replace(SEPARATOR, "~1") for key in keys)


def _copied(values: Mapping[str, Any], keys: tuple[str, ...], names: Mapping[str, str]) -> Tree:
    tree = {
        key: _copied(value, (*keys, key), names) if isinstance(value, Mapping) else value
        for key, value in values.items()
    }
    name = names.get(_path(keys)) if keys else None
    return tree if name is None else ContentFile(name, tree)


def _content_files(tree: Mapping[str, Any], keys: tuple[str, ...]) -> Iterator[tuple[str, ContentFile]]:
    for key, value in tree.items():
        if isinstance(value, ContentFile):
            yield _path((*keys, key)), value
        elif isinstance(value, Mapping):
            yield from _content_files(value, (*keys, key))


def _leaves(tree: Tree, keys: tuple[str, ...]) -> Iterator[tuple[Tree, tuple[str, ...]]]:
    """Yield the dict and the keys of every leaf."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*keys, key))
        else:
            yield tree, (*keys, key)
