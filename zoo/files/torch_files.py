"""Tensors out of a file that ``torch.save`` wrote, as arrays: read as data, without torch and its pickles."""

from __future__ import annotations

import functools
import io
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from zoo.errors import ZooError
from zoo.files.opening import TEXT_LIMIT, DamagedFileError
from zoo.files.pickled import Array, Made, Named, Outside, UnreadablePickleError, is_shape, read_pickle
from zoo.files.printing import one_line
from zoo.files.tensors import Arrays
from zoo.files.zips import UnreadableZipError, Zip

_DTYPES = {
    "DoubleStorage": "f8",
    "FloatStorage": "f4",
    "HalfStorage": "f2",
    "LongStorage": "i8",
    "IntStorage": "i4",
    "ShortStorage": "i2",
    "CharStorage": "i1",
    "ByteStorage": "u1",
    "BoolStorage": "?",
}

SHARING_LIMIT = 8
"""How many times the numbers in a file its tensors may have together: some are there under several names."""

KEY_LIMIT = 100
"""Characters that the name of a file of numbers may have; PyTorch counts them."""

_TENSORS = ("torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor")
_PARAMETERS = ("torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state")


def read_state_dict(content: bytes, name: str, limit: int) -> Arrays:
    """Return the tensors of a dictionary that ``torch.save`` wrote, by name; what is none is left out.

    ``limit`` bytes may each of them have. Raises `DamagedFileError` for any other file.
    """
    try:
        archive = Zip(io.BytesIO(content), main="data.pkl", name=name)
        described = archive.read("data.pkl", TEXT_LIMIT)
        if described is None:
            raise DamagedFileError(name, "it holds no tensors")
        order = ">" if archive.read("byteorder", 16) == b"big" else "<"
        notes = _dictionary(read_pickle(described), name)

        # PyTorch does not compress: what unpacks to much more is a bomb, be it in many small parts.
        unpacked = min(limit, TEXT_LIMIT + len(content))

        @functools.cache
        def stored(key: str) -> bytes | None:
            nonlocal unpacked
            numbers = archive.read(f"data/{key}", limit)
            unpacked -= 0 if numbers is None else len(numbers)
            if unpacked < 0:
                raise DamagedFileError(key, f"{len(content):,} bytes that unpack to too many")
            return numbers

        tensors, room = {}, SHARING_LIMIT * min(archive.size, unpacked)
        for key, note in notes.items():
            tensor = _tensor(note, stored, order, room)
            if tensor is not None:
                tensors[str(key)] = tensor
                room -= tensor.nbytes
    except UnreadableZipError as error:
        raise DamagedFileError(name, "it is not in the form that PyTorch has written since 1.6") from error
    except UnreadablePickleError as error:
        raise DamagedFileError(name, one_line(error)) from error
    except DamagedFileError as error:
        raise DamagedFileError(name, f"{one_line(error.name)}: {error.problem}") from error
    except ZooError as error:
        raise DamagedFileError(name, one_line(error)) from error
    return tensors


def _dictionary(note: Any, name: str) -> Mapping[Any, Any]:
    if isinstance(note, dict):
        return note
    if isinstance(note, Made) and note.path == "collections.OrderedDict":
        return note.items
    raise DamagedFileError(name, "it holds no dictionary of tensors")


def _tensor(note: Any, stored: Callable[[str], bytes | None], order: str, room: int) -> Array | None:
    """Return a tensor of at most ``room`` bytes, None for what is none."""
    if isinstance(note, Made) and note.path in _PARAMETERS and note.arguments:
        note = note.arguments[0]
    if not isinstance(note, Made) or note.path not in _TENSORS:
        return None
    try:
        storage, offset, shape, strides = note.arguments[:4]
        numbers = _storage(storage, stored, order)
        if not is_shape(shape):
            raise ValueError("its shape is not one")
        if math.prod(shape) * numbers.itemsize > room:
            raise ValueError("its tensors are larger than the numbers that the file holds")
        return _view(numbers, offset, shape, strides)
    except (TypeError, ValueError, LookupError, OverflowError, MemoryError) as error:
        raise UnreadablePickleError(f"a tensor in it can't be read ({error})") from error


def _storage(note: Any, stored: Callable[[str], bytes | None], order: str) -> Array:
    if not isinstance(note, Outside):
        raise ValueError("it has no numbers")
    _, kind, key, *_ = note.identifier
    code = _DTYPES.get(kind.path.rpartition(".")[2]) if isinstance(kind, Named) else None
    if code is None:
        raise ValueError("its numbers are of a kind that is not read here")
    if not isinstance(key, str) or len(key) > KEY_LIMIT:
        raise ValueError("its numbers have no name")
    content = stored(key)
    if content is None:
        raise ValueError("its numbers are missing")
    return np.frombuffer(content, np.dtype(f"{order}{code}"))


def _view(numbers: Array, offset: Any, shape: Any, strides: Any) -> Array:
    """Return a copy of the part of ``numbers`` that a tensor is."""
    if not (is_shape((offset,)) and is_shape(strides)) or len(shape) != len(strides):
        raise ValueError("its shape is not one")
    size = math.prod(shape)
    last = offset + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True) if n)
    if size > numbers.size or (size and last >= numbers.size):
        raise ValueError(f"{numbers.size:,} numbers for the shape {list(shape)[:8]}")
    steps = [stride * numbers.itemsize for stride in strides]
    view = np.lib.stride_tricks.as_strided(numbers[offset:], shape, steps, writeable=False)
    return np.array(view, dtype=numbers.dtype.newbyteorder("="))
