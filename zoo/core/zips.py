"""Zips read in memory and written whole, NumPy's archives of arrays, and files that are damaged."""

from __future__ import annotations

import csv
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from zoo.core.atomic import atomic_file
from zoo.core.free_memory import refuse_what_does_not_fit
from zoo.core.printing import one_line
from zoo.errors import ZooError

UNREADABLE = (
    *(ArithmeticError, AttributeError, EOFError, LookupError, OSError, RuntimeError, TypeError, ValueError),
    *(csv.Error, struct.error, zipfile.BadZipFile, zlib.error),
)
"""What the libraries raise that read a file of another form than they expect."""


def write_zip(path: Path, contents: Mapping[str, bytes]) -> None:
    """Write files into a new zip, which replaces an existing file. Raises `ZooError` if it can't."""
    with atomic_file(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            archive.writestr(name, content)


MAX_TEXT_BYTES, LARGE_BYTES, MAX_COMPRESSION_RATIO = 4 * 2**20, 64 * 2**20, 50


def read_zip(path: Path, names: Iterable[str], *, main: str) -> dict[str, bytes]:
    """Return the content of those files of ``names`` that a zip has, at its top or, as ``main``, in a folder.

    Raises `ValueError` for a file that is damaged, too large or no zip.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            files = {member.filename: member for member in archive.infolist() if not member.is_dir()}
            if main not in files and len({name.partition("/")[0] for name in files}) == 1:
                files = {name.partition("/")[2]: member for name, member in files.items()}
            wanted = {name: files[name] for name in names if name in files}
            for name, member in wanted.items():
                _check_size(name, member.file_size, member.compress_size)
            return {name: archive.read(member) for name, member in wanted.items()}
    except UNREADABLE as error:
        raise ValueError(f"no readable zip ({one_line(error)})") from error


def read_regular(path: Path) -> bytes:
    """Return the content of a file. Raises `ValueError` for one that is too large, or a pipe or device."""
    if not path.is_file():
        raise ValueError(f"{path.name} is no regular file")
    _check_size(path.name, path.stat().st_size)
    return path.read_bytes()


def _check_size(name: str, size: int, packed: int | None = None) -> None:
    """Raise `ValueError` for a file of a stranger that would fill the memory."""
    limit = size if packed is None else max(LARGE_BYTES, MAX_COMPRESSION_RATIO * packed)
    if size > (MAX_TEXT_BYTES if name.endswith((".json", ".yaml")) else limit):
        raise ValueError(f"{name} would have {size:,} bytes, which is refused as too large")
    if size > LARGE_BYTES:
        refuse_what_does_not_fit(name, 3 * size)  # its bytes, its arrays, and those of the agent


def write_npz(path: Path, arrays: Mapping[str, NDArray[Any]], texts: Mapping[str, str]) -> None:
    """Write arrays, compressed for ``np.load``, and texts, without times. Raises `ZooError`."""
    with atomic_file(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in texts.items():
            with archive.open(name, "w") as member:
                member.write(text.encode())
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.ascontiguousarray(array), allow_pickle=False)


@contextmanager
def opened_npz(path: Path) -> Iterator[NpzFile]:
    """Give the archive of arrays, and texts as bytes, at ``path``, without pickles. Raises `ZooError`."""
    if path.is_file() and not zipfile.is_zipfile(path):
        raise ZooError(f"{one_line(path)} is damaged, or no .npz file, as zoo expert and np.savez write them")
    try:
        with np.load(path, allow_pickle=False) as npz:
            yield npz
    except FileNotFoundError as error:
        raise ZooError(f"there is no {one_line(path)}") from error
    except (*UNREADABLE, MemoryError) as error:
        raise ZooError(f"{one_line(path)} is damaged: {one_line(error) or type(error).__name__}") from error
