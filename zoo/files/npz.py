"""Arrays and texts in one compressed NumPy archive: written whole or not at all, read without pickle."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zoo.errors import ZooError
from zoo.files.atomic import atomic_file
from zoo.files.printing import one_line

Array = NDArray[Any]

NUMBERS = "biuf"
"""Kinds of numbers, as NumPy calls them."""

_SUFFIX = ".npy"

_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    LookupError,
    MemoryError,
)
"""What is raised for archives that are none; objects, which would be unpickled, are a `ValueError`."""


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

    @property
    def names(self) -> list[str]:
        """The names of all arrays."""
        return [name.removesuffix(_SUFFIX) for name in self._archive.namelist() if name.endswith(_SUFFIX)]

    def text(self, name: str) -> str | None:
        """Return a text, None if there is none of that name."""
        return self._archive.read(name).decode() if name in self._archive.namelist() else None

    def array(self, name: str) -> Array:
        """Return an array of numbers or texts."""
        with self._archive.open(name + _SUFFIX) as member:
            array: Array = np.lib.format.read_array(member, allow_pickle=False)
            member.read(1)  # at its end the checksum is compared
        return array


@contextmanager
def opened_npz(path: Path) -> Iterator[Npz]:
    """Give the archive at ``path``. Raises `ZooError` if it is missing or damaged, in the block too."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield Npz(archive)
    except FileNotFoundError as error:
        raise ZooError(f"there is no {one_line(path)}") from error
    except _DAMAGED as error:
        raise ZooError(f"{one_line(path)} is damaged: {one_line(error) or type(error).__name__}") from error
    except OSError as error:
        raise ZooError(f"can't read {one_line(path)}: {error.strerror or one_line(error)}") from error


def parse_arrays(content: bytes, names: Iterable[str]) -> dict[str, NDArray[np.float64]]:
    """Return those of the named arrays that there are. Raises `ValueError` for a damaged archive."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            npz = Npz(archive)
            return {name: npz.array(name).astype(np.float64) for name in names if name in npz.names}
    except _DAMAGED as error:
        raise ValueError(one_line(error) or type(error).__name__) from error
