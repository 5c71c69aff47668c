"""Arrays and texts in one compressed NumPy archive: written whole or not at all, read without running code.

What an archive would take of the memory is known, and held against a limit, before any of it is unpacked.
"""

from __future__ import annotations

import math
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from zoo.errors import ZooError
from zoo.files.atomic import atomic_file
from zoo.files.opening import CONFIG_LIMIT, Folder
from zoo.files.printing import one_line

Array = NDArray[Any]

ENTRIES_LIMIT = 10_000
NUMBERS, TEXTS = "biuf", "U"
"""Kinds of arrays, as NumPy calls them, that are read; objects, which would be unpickled, are not."""

RATIO_LIMIT = 300
"""How much smaller than its content an archive may be that unpacks to more than `LARGE` bytes: of Pong, four
pictures a step, 183 times was measured; zeros are 1,027 times smaller."""
LARGE = 256 * 2**20

_SUFFIX = ".npy"
_HEADER_LIMIT = 10_000
_PIECE = 4 * 2**20


class DamagedNpzError(ValueError):
    """An archive is not what it should be; says how in one line."""


def write_npz(path: str | Path, arrays: Mapping[str, Array], texts: Mapping[str, str]) -> None:
    """Write the arrays as ``np.load`` reads them, and the texts beside them. Raises `ZooError`."""
    with atomic_file(path) as file, zipfile.ZipFile(file, "w") as archive:
        for name, text in texts.items():
            archive.writestr(_entry(name), text)
        for name, array in arrays.items():
            with archive.open(_entry(name + _SUFFIX), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.ascontiguousarray(array), allow_pickle=False)


def _entry(name: str) -> zipfile.ZipInfo:
    """Return an entry without a time: the same content is the same file."""
    entry = zipfile.ZipInfo(name)
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry


class Npz:
    """An archive that is being read; see `opened_npz`."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        entries = archive.infolist()
        if len(entries) > ENTRIES_LIMIT:
            raise DamagedNpzError(f"it has {len(entries):,} entries")
        self._entries = {entry.filename: entry for entry in entries}
        if len(self._entries) != len(entries):
            raise DamagedNpzError("a name stands in it twice")

    @property
    def names(self) -> list[str]:
        """The names of all arrays."""
        return [name.removesuffix(_SUFFIX) for name in self._entries if name.endswith(_SUFFIX)]

    @property
    def size(self) -> int:
        """Bytes that all of it takes when it is unpacked."""
        return sum(entry.file_size for entry in self._entries.values())

    def text(self, name: str) -> str | None:
        """Return a text, None if there is none of that name."""
        entry = self._entries.get(name)
        if entry is None:
            return None
        if entry.file_size > CONFIG_LIMIT:
            raise DamagedNpzError(f"{one_line(name)} would have {entry.file_size:,} bytes")
        with self._member(entry) as member:
            return member.read().decode()

    def array(self, name: str) -> Array:
        """Return an array of numbers or texts."""
        entry = self._entries[name + _SUFFIX]
        with self._member(entry) as member:
            shape, is_fortran, dtype = _header(member, name)
            n_bytes = math.prod(shape) * dtype.itemsize
            if n_bytes != entry.file_size - member.tell():
                raise DamagedNpzError(
                    f"{one_line(name)} has other bytes than its shape {one_line(list(shape))} asks for"
                )
            array = np.empty(math.prod(shape), dtype)
            _fill(array.view(np.uint8) if n_bytes else array, member)
        return array.reshape(shape, order="F" if is_fortran else "C")

    @contextmanager
    def _member(self, entry: zipfile.ZipInfo) -> Iterator[IO[bytes]]:
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise DamagedNpzError(f"{one_line(entry.filename)} is compressed in an unusual way")
        with self._archive.open(entry) as member:
            yield member


def _header(member: IO[bytes], name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(member)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, is_fortran, dtype = read(member, max_header_size=_HEADER_LIMIT)
    if dtype.hasobject:
        raise DamagedNpzError(
            f"{one_line(name)} holds Python objects, which are not read: unpickling them could run anything"
        )
    if dtype.kind not in NUMBERS + TEXTS:
        raise DamagedNpzError(f"{one_line(name)} holds {one_line(dtype)}, expected numbers")
    if min(shape, default=0) < 0:
        raise DamagedNpzError(f"{one_line(name)} has the shape {one_line(list(shape))}")
    return shape, is_fortran, dtype


def _fill(array: Array, member: IO[bytes]) -> None:
    view = memoryview(array.data)
    while len(view):
        piece = member.read(min(len(view), _PIECE))
        if not piece:
            raise DamagedNpzError("it ends within an array")
        view[: len(piece)] = piece
        view = view[len(piece) :]
    member.read(1)  # at its end the checksum is compared


@contextmanager
def opened_npz(path: Path, limit: int | None) -> Iterator[Npz]:
    """Give the archive at ``path``, which may take ``limit`` bytes of memory.

    Raises `ZooError` for one that is missing, damaged or larger, or much larger than its file, within the
    block too.
    """
    file = Folder(path.parent, follow_links=True).opened(path.name)
    if file is None:
        raise ZooError(f"there is no {one_line(path)}")
    try:
        with file, zipfile.ZipFile(file) as archive:
            npz, n_bytes = Npz(archive), os.fstat(file.fileno()).st_size
            if npz.size > max(LARGE, RATIO_LIMIT * n_bytes):
                raise ZooError(
                    f"{one_line(path)} is refused: its {n_bytes:,} bytes would unpack to {npz.size:,}"
                )
            if limit is not None and npz.size > limit:
                raise ZooError(
                    f"{one_line(path)} needs {npz.size / 2**30:.2f} GiB of memory,"
                    f" but {limit / 2**30:.2f} GiB are to be had"
                )
            yield npz
    except (
        *(zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError),
        *(OverflowError, MemoryError, SyntaxError, RecursionError),
    ) as error:
        raise ZooError(f"{one_line(path)} is damaged: {one_line(error) or type(error).__name__}") from error
    except OSError as error:
        raise ZooError(f"can't read {one_line(path)}: {os.strerror(error.errno or 0)}") from error
