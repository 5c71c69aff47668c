"""Reading from a folder that a stranger made: nothing outside of it, nothing that blocks or is too large."""

from __future__ import annotations

import fnmatch
import os
import stat
from collections.abc import Iterable
from io import BufferedReader
from pathlib import Path

from zoo.errors import ZooError

TEXT_LIMIT = 16 * 2**20
"""Bytes that a text may have; real ones have some kilobytes."""
CONFIG_LIMIT = 256 * 2**10
"""Bytes that a config may have that nobody vouches for: YAML takes long to read."""
TABLE_LIMIT = 256 * 2**20
"""Bytes that a monitor, ``progress.csv`` or ``evaluations.npz`` may have: some ten million episodes."""
TENSOR_LIMIT = 16 * 2**30
"""Bytes that a tensor file may have."""

_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY


class DamagedFileError(ZooError):
    """A file is not what it should be: ``problem`` says how, in one line."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name}: {problem}")
        self.name, self.problem = name, problem


class LinkElsewhereError(ZooError):
    """A file is a link to something outside of its folder."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is a link to a file elsewhere")
        self.name = name


class UnusualEntryError(ZooError):
    """Something in a folder is neither a file nor a folder of its own: ``name`` is where, ``what`` it is."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(f"{name} is {what}")
        self.name, self.what = name, what


def refuse_unusual_entries(
    folder: Path, names: Iterable[str], *, links_allowed: bool = False, holes_allowed: bool = True
) -> None:
    """Raise `UnusualEntryError` for links, pipes and devices at these names of a folder, and below them.

    A link leads elsewhere, whoever opens a pipe may wait for ever, and a hole of terabytes takes hours to
    read. A name may be a pattern. Raises `OSError`.
    """
    with os.scandir(folder) as entries:
        found = [entry for entry in entries if any(fnmatch.fnmatch(entry.name, name) for name in names)]
    for entry in found:
        status = entry.stat(follow_symlinks=False)
        if links_allowed and stat.S_ISLNK(status.st_mode):
            continue
        what = unusual(status)
        if what is None and not holes_allowed and _has_holes(status):
            what = "a file most of which was never written"
        if what is not None:
            raise UnusualEntryError(entry.name, what)
        if stat.S_ISDIR(status.st_mode):
            try:
                refuse_unusual_entries(
                    Path(entry.path), ("*",), links_allowed=links_allowed, holes_allowed=holes_allowed
                )
            except UnusualEntryError as error:
                raise UnusualEntryError(f"{entry.name}/{error.name}", error.what) from error


def unusual(status: os.stat_result) -> str | None:
    """Return what something is that is neither a file nor a folder, None for these."""
    if stat.S_ISLNK(status.st_mode):
        return "a link"
    if stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode):
        return None
    return "a named pipe, a socket or a device"


def open_regular(path: Path, *, follow_links: bool = True) -> BufferedReader:
    """Return a regular file to read from. Raises `DamagedFileError` for another kind, and `OSError`."""
    # Without waiting, as a named pipe would hold the reader for ever.
    flags = os.O_RDONLY | os.O_NONBLOCK | (0 if follow_links else os.O_NOFOLLOW)
    return _regular(os.open(path, flags), path.name)


def _regular(descriptor: int, name: str) -> BufferedReader:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise DamagedFileError(name, "it is not a regular file")
    return open(descriptor, "rb")


def read_regular(path: Path, limit: int, *, follow_links: bool = True) -> bytes:
    """Return a regular file's content. Raises `DamagedFileError` for more than ``limit`` bytes; `OSError`."""
    with open_regular(path, follow_links=follow_links) as file:
        return _whole(file, path.name, limit)


def _whole(file: BufferedReader, name: str, limit: int) -> bytes:
    size = os.fstat(file.fileno()).st_size
    if size > limit:
        raise DamagedFileError(name, f"it has {size:,} bytes, more than {limit:,}")
    refuse_holes(os.fstat(file.fileno()), name)
    return file.read(size)  # and not what it grows by meanwhile


def refuse_holes(status: os.stat_result, name: str) -> None:
    """Raise `DamagedFileError` for a large file most of which was never written: a hole fills memory, too."""
    if _has_holes(status):
        raise DamagedFileError(name, f"of its {status.st_size:,} bytes most were never written")


def _has_holes(status: os.stat_result) -> bool:
    return status.st_size > TEXT_LIMIT and 512 * status.st_blocks < status.st_size // 2


class Folder:
    """The files of a folder; links that leave it are followed only with ``follow_links``."""

    def __init__(self, path: Path, *, follow_links: bool = False) -> None:
        self.path, self.follow_links = path, follow_links

    def read(self, name: str, limit: int) -> bytes | None:
        """Return a file's content, or None if there is none of that name.

        Raises `LinkElsewhereError`; `DamagedFileError` for what is no regular file or has more than ``limit``
        bytes; and `OSError`.
        """
        file = self.opened(name)
        if file is None:
            return None
        with file:
            return _whole(file, name, limit)

    def opened(self, name: str) -> BufferedReader | None:
        """Return a file to read from, of any size, which raises what `read` does."""
        path = self.path / name
        if not os.path.lexists(path):
            return None
        real_path, real_folder = Path(os.path.realpath(path)), Path(os.path.realpath(self.path))
        if self.follow_links:
            return open_regular(real_path)
        if not real_path.is_relative_to(real_folder):
            raise LinkElsewhereError(name)
        return _opened_without_links(real_folder, real_path.relative_to(real_folder))


def _opened_without_links(folder: Path, place: Path) -> BufferedReader:
    """Open a file below a folder by a path that had no links, and has none now: none that came meanwhile."""
    *parents, name = place.parts or (".",)
    above = os.open(folder, _FOLDER)
    try:
        for each in parents:
            below = os.open(each, _FOLDER | os.O_NOFOLLOW, dir_fd=above)
            os.close(above)
            above = below
        descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW, dir_fd=above)
    finally:
        os.close(above)
    return _regular(descriptor, name)
