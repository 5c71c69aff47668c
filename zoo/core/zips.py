"""Zips read in memory and written whole, NumPy's archives of arrays, and files that are damaged."""

from __future__ import annotations

import csv
import io
import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from zoo.core.atomic import atomic_file
from zoo.core.printing import one_line
from zoo.errors import ZooError


class DamagedFileError(ZooError):
    """A file is not what it should be: ``problem`` says how, in one line."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name}: {problem}")
        self.name, self.problem = name, problem


class Folder:
    """The files of a folder, read by their names as those of a `zoo.core.zips.Zip` are."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, name: str) -> bytes | None:
        """Return a file's content, or None if there is none of that name. Raises `OSError`."""
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            return None


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


class UnreadableZipError(ZooError):
    """There is no readable zip here."""


def write_zip(path: Path, contents: Mapping[str, bytes]) -> None:
    """Write files into a new zip, which replaces what stands there. Raises `ZooError` if it can't."""
    with atomic_file(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            archive.writestr(name, content)


class Zip:
    """The files of a zip; nothing is ever unpacked to a disk.

    All may stand in one folder inside of it: that is where they are then, unless ``main`` stands at the top.
    Raises `UnreadableZipError`, and `ZooError` for names that lead out.
    """

    def __init__(self, path: Path, *, main: str) -> None:
        self.path = path
        try:
            with zipfile.ZipFile(path) as archive:
                files = {each.filename: each for each in archive.infolist() if not each.is_dir()}
        except (zipfile.BadZipFile, OSError, ValueError, EOFError, NotImplementedError) as error:
            raise UnreadableZipError(f"no readable zip ({one_line(error)})") from error
        for name in files:
            if name.startswith("/") or ".." in PurePosixPath(name).parts:
                raise ZooError(f"the zip {one_line(path)} is refused: `{one_line(name)}` would lie outside")
        top = {name.partition("/")[0] for name in files}
        if main not in files and len(top) == 1:
            files = {name.partition("/")[2]: entry for name, entry in files.items()}
        self._entries = files

    @property
    def names(self) -> set[str]:
        """The names of all files."""
        return set(self._entries)

    def read(self, name: str) -> bytes | None:
        """Return a file's content, or None if there is none of that name. Raises `DamagedFileError`."""
        if name not in self._entries:
            return None
        try:
            with zipfile.ZipFile(self.path) as archive:
                return archive.read(self._entries[name])
        except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError, ValueError) as error:
            # RuntimeError: encrypted; its kind NotImplementedError: an unknown compression.
            raise DamagedFileError(name, one_line(error)) from error


Array = NDArray[Any]

_SUFFIX = ".npy"


def write_npz(path: Path, arrays: Mapping[str, Array], texts: Mapping[str, str]) -> None:
    """Write arrays, compressed as ``np.load`` reads them, and the texts beside them. Raises `ZooError`."""
    with atomic_file(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
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


@contextmanager
def opened_npz(path: Path) -> Iterator[NpzFile]:
    """Give the archive of arrays, and texts as bytes, at ``path``; nothing in it is unpickled.

    Raises `ZooError` if it is missing or damaged, in the block too.
    """
    try:
        with np.load(path, allow_pickle=False) as npz:
            yield npz
    except FileNotFoundError as error:
        raise ZooError(f"there is no {one_line(path)}") from error
    except OSError as error:
        raise ZooError(f"can't read {one_line(path)}: {error.strerror or one_line(error)}") from error
    except (*UNREADABLE, MemoryError) as error:
        raise ZooError(f"{one_line(path)} is damaged: {one_line(error) or type(error).__name__}") from error


def parse_arrays(content: bytes, names: Iterable[str]) -> dict[str, NDArray[np.float64]]:
    """Return those of the named arrays that there are. Raises `ValueError` for a damaged archive."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as npz:
            return {name: npz[name].astype(np.float64) for name in names if name in npz.files}
    except (*UNREADABLE, MemoryError) as error:
        raise ValueError(one_line(error) or type(error).__name__) from error
