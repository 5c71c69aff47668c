"""Reading from a folder that a stranger made: nothing outside of it, nothing that blocks or is too large."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from zoo.errors import ZooError

TEXT_LIMIT = 16 * 2**20
"""Bytes that a text may have; real ones have some kilobytes."""
CONFIG_LIMIT = 256 * 2**10
"""Bytes that a config may have that nobody vouches for: YAML takes long to read."""
TENSOR_LIMIT = 16 * 2**30
"""Bytes that a tensor file may have."""


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
            size = os.fstat(file.fileno()).st_size
            if size > limit:
                raise DamagedFileError(name, f"it has {size:,} bytes")
            return file.read()

    def opened(self, name: str) -> BinaryIO | None:
        """Return a file to read from, of any size, which raises what `read` does."""
        path = self.path / name
        if not os.path.lexists(path):
            return None
        real_path, real_folder = Path(os.path.realpath(path)), os.path.realpath(self.path)
        if not self.follow_links and not real_path.is_relative_to(real_folder):
            raise LinkElsewhereError(name)
        # Without waiting, as a named pipe would hold the reader for ever, and no link that came meanwhile.
        descriptor = os.open(real_path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise DamagedFileError(name, "it is not a regular file")
        return open(descriptor, "rb")
