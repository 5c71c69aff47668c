"""A zip in the place of a folder: read in memory, from strangers too, and written whole or not at all."""

from __future__ import annotations

import lzma
import re
import stat
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from zoo.errors import ZooError
from zoo.files.atomic import atomic_file
from zoo.files.opening import TEXT_LIMIT, DamagedFileError
from zoo.files.printing import one_line

RATIO_LIMIT = 10
"""How much smaller than its content an entry may be, if the content is larger than `TEXT_LIMIT`; weights
don't compress, so more than this is a bomb."""
ENTRIES_LIMIT = 1000


class UnreadableZipError(ZooError):
    """There is no zip here, or none that anybody would have made for its content."""


def write_zip(path: Path, contents: Mapping[str, bytes]) -> None:
    """Write files into a new zip, which replaces what stands there. Raises `ZooError` if it can't."""
    with atomic_file(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            archive.writestr(name, content)


class Zip:
    """The files of a zip; nothing is ever unpacked to a disk.

    All may stand in one folder inside of it: that is where they are then, unless ``main`` stands at the top.
    The zip may be an open file, whose ``name`` is for messages. Raises `UnreadableZipError`, and `ZooError`
    for names that lead out, links, and names that occur twice.
    """

    def __init__(self, path: Path | BinaryIO, *, main: str, name: str | None = None) -> None:
        self.path, self.name = path, one_line(path) if name is None else name
        try:
            with zipfile.ZipFile(path) as archive:
                entries = archive.infolist()
        except (zipfile.BadZipFile, OSError, ValueError, EOFError, NotImplementedError) as error:
            raise UnreadableZipError(f"no readable zip ({one_line(error)})") from error
        if len(entries) > ENTRIES_LIMIT:
            raise UnreadableZipError(f"the zip has {len(entries):,} entries")
        files = self._checked(entries)
        top = {PurePosixPath(name).parts[0] for name in files if name}
        if main not in files and len(top) == 1:
            folder = f"{top.pop()}/"
            files = {name.removeprefix(folder): entry for name, entry in files.items()}
        self._entries = files

    @property
    def size(self) -> int:
        """Bytes that all files have together, as the zip states."""
        return sum(entry.file_size for entry in self._entries.values())

    @property
    def names(self) -> set[str]:
        """The names of all files."""
        return set(self._entries)

    def read(self, name: str, limit: int) -> bytes | None:
        """Return a file's content, or None if there is none of that name.

        Raises `DamagedFileError` if it can't be unpacked, or would have more than ``limit`` bytes.
        """
        entry = self._entries.get(name)
        if entry is None:
            return None
        compressed = max(entry.compress_size, 1)
        is_bomb = entry.file_size > TEXT_LIMIT and entry.file_size > RATIO_LIMIT * compressed
        if entry.file_size > limit or is_bomb:
            raise DamagedFileError(name, f"{compressed:,} bytes that unpack to {entry.file_size:,}")
        try:
            with zipfile.ZipFile(self.path) as archive, archive.open(entry) as file:
                content = file.read(entry.file_size + 1)
        except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError, ValueError) as error:
            # RuntimeError: encrypted; its kind NotImplementedError: an unknown compression.
            raise DamagedFileError(name, one_line(error)) from error
        if len(content) != entry.file_size:
            raise DamagedFileError(name, "it does not have the size that the zip states")
        return content

    def _checked(self, entries: list[zipfile.ZipInfo]) -> dict[str, zipfile.ZipInfo]:
        files: dict[str, zipfile.ZipInfo] = {}
        for entry in entries:
            name = entry.filename
            parts = PurePosixPath(name).parts
            if name.startswith("/") or ".." in parts or "\\" in name or re.match(r"[A-Za-z]:", name):
                raise self._refused(name, "would lie outside of it")
            if stat.S_ISLNK(entry.external_attr >> 16):
                raise self._refused(name, "is a link")
            if name in files:
                raise self._refused(name, "stands in it twice")
            if not entry.is_dir():
                files[name] = entry
        return files

    def _refused(self, name: str, problem: str) -> ZooError:
        return ZooError(f"the zip {self.name} is refused: `{one_line(name)}` {problem}")
