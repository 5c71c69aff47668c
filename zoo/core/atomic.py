"""Writing files and folders whole or not at all.

A new version is written beside the old one, forced to the disk, and renamed into place: a reader finds the
old or the new one whole, even after a crash. A log gets whole rows by `append`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO

from zoo.core.plain_data import to_json
from zoo.errors import ZooError


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write ``data`` to a file, whole or not at all, making its folder. Raises `ZooError` if it can't."""
    with atomic_file(path) as file:
        file.write(data)


def write_text(path: str | Path, text: str) -> None:
    """Write ``text`` as UTF-8; see `write_bytes`."""
    write_bytes(path, text.encode())


def write_json(path: str | Path, data: Any) -> None:
    """Write ``data`` as indented JSON, numpy's numbers and arrays as plain ones; see `write_bytes`."""
    write_text(path, to_json(data))


@contextlib.contextmanager
def atomic_file(path: str | Path) -> Iterator[BinaryIO]:
    """Give an open file whose content becomes ``path`` when the block ends, and vanishes if it raises."""
    path = Path(path)
    partial = _partial(path)
    try:
        with _explained(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(partial, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
            sync(path.parent)
    finally:
        remove(partial)


@contextlib.contextmanager
def atomic_folder(path: str | Path) -> Iterator[Path]:
    """Give an empty folder that becomes ``path`` when the block ends, and vanishes if it raises.

    An earlier folder at ``path`` gets a hidden name first: after a crash between the renames `recover` helps.
    """
    path = Path(path)
    partial = _partial(path)
    try:
        with _explained(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            partial.mkdir()
            yield partial
            for folder, _, names in os.walk(partial):
                for name in names:
                    sync(os.path.join(folder, name))
                sync(folder)
            previous = path.with_name(f".{path.name}.previous")
            shutil.rmtree(previous, ignore_errors=True)
            if path.is_dir():
                os.rename(path, previous)
            os.rename(partial, path)
            shutil.rmtree(previous, ignore_errors=True)
            sync(path.parent)
    finally:
        remove(partial)


def append(file: FileIO, data: bytes) -> None:
    """Write all of ``data`` to the end of an unbuffered file, or nothing. Raises `OSError`."""
    written = file.write(data) or 0
    if written < len(data):
        file.truncate(os.fstat(file.fileno()).st_size - written)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), file.name)


def sync(path: str | Path) -> None:
    """Force a file's content, or a folder's entries, to the disk. Raises `OSError`."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def recover(folder: Path) -> None:
    """Restore files that a crash left under hidden names in ``folder``; no process may be writing there."""
    for previous in folder.glob(".*.previous"):
        destination = previous.with_name(previous.name.removeprefix(".").removesuffix(".previous"))
        if not destination.exists():
            previous.rename(destination)
    for left in [*folder.glob(".*.previous"), *folder.glob(".*.partial")]:
        remove(left)


def _partial(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ZooError(f"can't write {path}: {error.strerror or error}") from error


def remove(path: Path) -> None:
    """Remove a file or a folder, as far as that is possible."""
    shutil.rmtree(path, ignore_errors=True)  # leaves a file
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
