"""A zip in the place of a folder: read in memory, and written whole or not at all."""

from __future__ import annotations

import lzma
import re
import stat
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from zoo.errors import ZooError
from zoo.files.atomic import atomic_file
from zoo.files.opening import DamagedFileError
from zoo.files.printing import one_line


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
    Raises `UnreadableZipError`, and `ZooError` for names that lead out and for links.
    """

    def __init__(self, path: Path, *, main: str) -> None:
        self.path = path
        try:
            with zipfile.ZipFile(path) as archive:
                entries = archive.infolist()
        except (zipfile.BadZipFile, OSError, ValueError, EOFError, NotImplementedError) as error:
            raise UnreadableZipError(f"no readable zip ({one_line(error)})") from error
        files = self._checked(entries)
        top = {PurePosixPath(name).parts[0] for name in files if name}
        if main not in files and len(top) == 1:
            folder = f"{top.pop()}/"
            files = {name.removeprefix(folder): entry for name, entry in files.items()}
        self._entries = files

    @property
    def names(self) -> set[str]:
        """The names of all files."""
        return set(self._entries)

    def read(self, name: str) -> bytes | None:
        """Return a file's content, or None if there is none of that name.

        Raises `DamagedFileError` if it can't be unpacked to the size that the zip declares.
        """
        entry = self._entries.get(name)
        if entry is None:
            return None
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
            if not entry.is_dir():
                files[name] = entry
        return files

    def _refused(self, name: str, problem: str) -> ZooError:
        return ZooError(f"the zip {one_line(self.path)} is refused: `{one_line(name)}` {problem}")
