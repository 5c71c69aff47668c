"""Reading whole files, and the one error for those that are not what they should be."""

from __future__ import annotations

from pathlib import Path

from zoo.errors import ZooError


class DamagedFileError(ZooError):
    """A file is not what it should be: ``problem`` says how, in one line."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name}: {problem}")
        self.name, self.problem = name, problem


class Folder:
    """The files of a folder, read by their names as those of a `zoo.files.zips.Zip` are."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, name: str) -> bytes | None:
        """Return a file's content, or None if there is none of that name. Raises `OSError`."""
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            return None
