"""The files of a run's checkpoints: the newest, and the one before it in case that the newest is damaged.

``checkpoint.json`` holds the plain values of the newest and names the safetensors file beside it that holds
the arrays; ``previous.json`` is the same for the one before. Checksums tell whether they are what was
written. New arrays are on the disk before ``checkpoint.json`` is replaced, in one step, and only then is
removed what neither refers to: at any moment there is one whole checkpoint, or none has been written yet.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from zoo.errors import ZooError
from zoo.files import atomic
from zoo.files.checksums import checksum_of
from zoo.files.damaged import UNREADABLE
from zoo.files.plain_data import parse_json, to_json
from zoo.files.tensors import Arrays, read_tensors, write_tensors
from zoo.training.problems import tell

FORMAT = 3

NEWEST = "checkpoint.json"
PREVIOUS = "previous.json"

_ARRAYS = r"\d+-[0-9a-f]{8}\.safetensors"
_LEFTOVERS = re.compile(rf"{_ARRAYS}|\.({_ARRAYS}|{NEWEST}|{PREVIOUS})\..+")
"""The names of arrays, and of what a killed process began of any file here."""


class _DamagedError(ZooError):
    """A checkpoint is not what was written."""


def has_checkpoint(folder: Path) -> bool:
    """Tell whether one has been written, whole or not."""
    return any((folder / name).is_file() for name in (NEWEST, PREVIOUS))


def write_files(folder: Path, arrays: Arrays, values: Mapping[str, Any]) -> None:
    """Write a checkpoint, of which ``values`` hold at least ``timesteps``. Raises `ZooError` if it can't."""
    tensors = f"{values['timesteps']}-{secrets.token_hex(4)}.safetensors"
    _remove_leftovers(folder)
    try:
        checksum = write_tensors(folder / tensors, arrays)
        record = {"format": FORMAT, "tensors": tensors, "tensors_checksum": checksum, **values}
        _keep_the_newest_as_previous(folder)
        atomic.write_json(folder / NEWEST, {**record, "checksum": _checksum(record)})
    finally:
        _remove_leftovers(folder)


def read_files(folder: Path) -> tuple[dict[str, Any], Arrays]:
    """Return values and arrays of the newest checkpoint that is whole; the arrays are views of their file.

    One that is damaged is told, and given up for the one before it. Raises `ZooError` if none is whole, or
    none is there.
    """
    if not has_checkpoint(folder):
        raise ZooError(f"there is no checkpoint in {folder}")
    problems = []
    for name in (NEWEST, PREVIOUS):
        try:
            values, arrays = _read(folder / name)
        except _DamagedError as error:
            problems.append(str(error))
            continue
        if problems:
            step = f"step {values['timesteps']:,}"
            tell(f"{problems[0]}; the run goes on from the checkpoint before, at {step}")
            with contextlib.suppress(OSError):
                os.replace(folder / PREVIOUS, folder / NEWEST)
        return values, arrays
    raise ZooError(
        f"no checkpoint is whole: {'; '.join(problems)}. Without {folder} the run starts anew; another run"
        f" takes over its best agent with init_from={folder.parent}"
    )


def remove_files(folder: Path) -> None:
    """Remove all checkpoints, and their folder if nothing else is in it."""
    with contextlib.suppress(OSError):
        for name in (NEWEST, PREVIOUS):
            (folder / name).unlink(missing_ok=True)
        _remove_leftovers(folder)
        folder.rmdir()


def _read(path: Path) -> tuple[dict[str, Any], Arrays]:
    values = _read_values(path)
    if values is None:
        raise _DamagedError(f"{path} is missing")
    tensors = path.with_name(values["tensors"])
    try:
        if checksum_of(tensors) != values["tensors_checksum"]:
            raise _DamagedError(f"{tensors} is damaged: it is not what was written")
        return values, read_tensors(tensors)
    except FileNotFoundError as error:
        raise _DamagedError(f"{tensors} is missing") from error
    except OSError as error:
        raise _unreadable(tensors, error) from error


def _read_values(path: Path) -> dict[str, Any] | None:
    """Return what a file of values holds, None if there is none. Raises `ZooError` if it is damaged."""
    try:
        values = parse_json(path.read_bytes())
        checksum = values.pop("checksum", None)
        if checksum is None and values["format"] < FORMAT:
            raise ZooError(f"{path} was written by an earlier version of Zoo, which can go on with it")
        if checksum != _checksum(values):
            raise ValueError("it is not what was written")
        is_complete = {"tensors_checksum", "timesteps"} <= values.keys()
        if values["format"] == FORMAT and not (is_complete and re.fullmatch(_ARRAYS, values["tensors"])):
            raise ValueError("it does not say which arrays it has")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unreadable(path, error) from error
    except UNREADABLE as error:
        raise _DamagedError(f"{path} is damaged: {error}") from error
    if values["format"] != FORMAT:
        raise ZooError(f"{path} was written by a later version of Zoo, which can go on with it")
    return values


def _unreadable(path: Path, error: OSError) -> ZooError:
    """Return the error for a file that may be whole, and readable another time."""
    return ZooError(f"can't read {path}: {error.strerror or error}")


def _checksum(values: Mapping[str, Any]) -> int:
    return zlib.crc32(to_json(values).encode())


def _keep_the_newest_as_previous(folder: Path) -> None:
    """Let the newest checkpoint be the one before; one of which a part is lost takes no whole one's place."""
    with contextlib.suppress(_DamagedError):
        values = _read_values(folder / NEWEST)
        if values is not None and (folder / values["tensors"]).is_file():
            atomic.write_bytes(folder / PREVIOUS, (folder / NEWEST).read_bytes())


def _remove_leftovers(folder: Path) -> None:
    """Remove what no checkpoint refers to: the arrays of earlier ones, and what a killed process began."""
    if not folder.is_dir():
        return
    try:
        kept = set(_tensors_in_use(folder))
    except ZooError:
        # What can't be read now may be read later.
        return
    for path in folder.iterdir():
        if _LEFTOVERS.fullmatch(path.name) and path.name not in kept and path.is_file():
            path.unlink(missing_ok=True)


def _tensors_in_use(folder: Path) -> Iterator[str]:
    for name in (NEWEST, PREVIOUS):
        values = _read_values(folder / name)
        if values is not None:
            yield values["tensors"]
