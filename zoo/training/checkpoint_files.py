"""The files of a run's checkpoints: the newest, and the one before it in case that the newest is damaged.

``checkpoint.json`` holds the plain values of the newest and names the safetensors files beside it that hold
the arrays; ``previous.json`` is the same for the one before. Arrays in a `Lasting` part of the state stand in
a file of their own, which is called after it and written once: all checkpoints that have this part share it.
Checksums tell whether files are what was written. New arrays are on the disk before ``checkpoint.json`` is
replaced, in one step, and only then is removed what neither refers to: at any moment there is one whole
checkpoint, or none has been written yet. Where several workers learn as one, each writes its own arrays here,
and ``checkpoint.json`` names those of all: ``workers`` holds what it says of the others.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from zoo.errors import ZooError
from zoo.files import atomic
from zoo.files.plain_data import parse_json, to_json
from zoo.files.printing import one_line
from zoo.files.tensors import SEPARATOR, Arrays, checksum_of, read_tensors, write_tensors
from zoo.files.zips import UNREADABLE
from zoo.training.problems import tell

FORMAT = 4

NEWEST = "checkpoint.json"
PREVIOUS = "previous.json"

_ARRAYS = r"\d+-[0-9a-f]{8}\.safetensors"
_PART_NAME = r"[0-9a-f]{32}"
_OURS = rf"{_ARRAYS}|{_PART_NAME}\.safetensors"
_LEFTOVERS = re.compile(f"{_OURS}|{atomic.unfinished(f'{_OURS}|{re.escape(NEWEST)}|{re.escape(PREVIOUS)}')}")
"""The names of arrays, and of what a killed process began of any file here."""


class _DamagedError(ZooError):
    """A checkpoint is not what was written."""


def has_checkpoint(folder: Path) -> bool:
    """Tell whether one has been written, whole or not."""
    return any((folder / name).is_file() for name in (NEWEST, PREVIOUS))


def write_files(
    folder: Path,
    arrays: Arrays,
    values: Mapping[str, Any],
    names: Mapping[str, str],
    others: Callable[[], Callable[[], list[dict[str, Any]]]] = lambda: list,
) -> None:
    """Write a checkpoint, of which ``values`` hold at least ``timesteps``. Raises `ZooError` if it can't.

    ``names`` are those of `Lasting` parts by their place in the tree: what a checkpoint here has of these is
    not written again. ``others`` has other workers begin to write their arrays, and returns what waits until
    they have, and tells what `write_arrays` returned there: it is part of this checkpoint.
    """
    _remove_leftovers(folder)
    try:
        wait_for_others = others()
        try:
            own = write_arrays(folder, values["timesteps"], arrays, names)
        finally:
            of_others = wait_for_others()
        workers = {"workers": of_others} if of_others else {}
        record = {"format": FORMAT, **own, **workers, **values}
        _keep_the_newest_as_previous(folder)
        atomic.write_json(folder / NEWEST, {**record, "checksum": _checksum(record)})
    finally:
        _remove_leftovers(folder)


def write_arrays(folder: Path, timesteps: int, arrays: Arrays, names: Mapping[str, str]) -> dict[str, Any]:
    """Write the arrays of a checkpoint, or one worker's of it, and return where they stand."""
    tensors = f"{timesteps}-{secrets.token_hex(4)}.safetensors"
    outside, inside = _in_parts(arrays, names)
    checksum = write_tensors(folder / tensors, outside)
    arrays_at = {"tensors": tensors, "tensors_checksum": checksum}
    return {**arrays_at, "parts": _write_parts(folder, inside, names)}


def read_files_of_worker(folder: Path, rank: int) -> tuple[dict[str, Any], Arrays]:
    """Return values and arrays of one of the other workers in the newest checkpoint. Raises `ZooError`."""
    values = _read_values(folder / NEWEST)
    if values is None:
        raise ZooError(f"there is no checkpoint in {folder}")
    own = values["workers"][rank - 1]
    return own, _read_all_arrays(folder, own)


def check_workers(folder: Path, n_workers: int) -> None:
    """Raise `ZooError` if the newest checkpoint is of another number of workers."""
    values = _read_values(folder / NEWEST)
    n_written = 1 if values is None else 1 + len(values.get("workers", ()))
    if values is not None and n_written != n_workers:
        raise ZooError(f"the checkpoint is of workers={n_written}, and can't go on with workers={n_workers}")


def read_files(folder: Path, *, for_more_steps: bool = False) -> tuple[dict[str, Any], Arrays]:
    """Return values and arrays of the newest checkpoint that is whole; the arrays are views of their file.

    One that is damaged is told, and given up for the one before it; so is one that is of no use
    ``for_more_steps``, because the run's end cut its last collection short. Of several workers these are the
    first one's. Raises `ZooError` if none is whole, or none is there.
    """
    if not has_checkpoint(folder):
        raise ZooError(f"there is no checkpoint in {folder}")
    problems = []
    for name in (NEWEST, PREVIOUS):
        try:
            values, arrays = _read(folder / name)
            if for_more_steps and values.get("cut_short"):
                raise _DamagedError(f"{folder / name} is of an end that cut the collecting of steps short")
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
        f"no checkpoint is whole: {'; '.join(dict.fromkeys(problems))}. Without {folder} the run starts anew;"
        f" another run takes over its best agent with init_from={folder.parent}"
    )


def keep_last(folder: Path) -> int:
    """Remove the checkpoint before the newest, unless only that one serves for more steps.

    Return the bytes that are left.
    """
    with contextlib.suppress(ZooError, OSError):
        newest = _read_values(folder / NEWEST)
        if newest is not None and not newest.get("cut_short"):
            (folder / PREVIOUS).unlink(missing_ok=True)
            _remove_leftovers(folder)
    return n_bytes(folder)


def n_bytes(folder: Path) -> int:
    """Return the bytes that all checkpoints in a folder take."""
    with contextlib.suppress(OSError):
        ours = (each for each in folder.iterdir() if re.fullmatch(f"{_OURS}|{NEWEST}|{PREVIOUS}", each.name))
        return sum(each.stat().st_size for each in ours)
    return 0


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
    for other in values.get("workers", ()):
        _read_all_arrays(path.parent, other)
    return values, _read_all_arrays(path.parent, values)


def _read_all_arrays(folder: Path, values: Mapping[str, Any]) -> Arrays:
    arrays = _read_arrays(folder / values["tensors"], values["tensors_checksum"])
    for place, part in values["parts"].items():
        inside = _read_arrays(_part_file(folder, part), part["checksum"])
        arrays |= {f"{place}{SEPARATOR}{key}": array for key, array in inside.items()}
    return arrays


def _read_arrays(path: Path, checksum: int) -> Arrays:
    try:
        if checksum_of(path) != checksum:
            raise _DamagedError(f"{path} is damaged: it is not what was written")
        return read_tensors(path)
    except FileNotFoundError as error:
        raise _DamagedError(f"{path} is missing") from error
    except OSError as error:
        raise _unreadable(path, error) from error


def _read_values(path: Path) -> dict[str, Any] | None:
    """Return what a file of values holds, None if there is none. Raises `ZooError` if it is damaged."""
    try:
        values = parse_json(path.read_bytes())
        checksum = values.pop("checksum", None)
        if values["format"] < FORMAT and checksum in (None, _checksum(values)):
            raise ZooError(f"{path} was written by an earlier version of Zoo, which can go on with it")
        if checksum != _checksum(values):
            raise ValueError("it is not what was written")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unreadable(path, error) from error
    except UNREADABLE as error:
        raise _DamagedError(f"{path} is damaged: {one_line(error)}") from error
    if values["format"] != FORMAT:
        raise ZooError(f"{path} was written by a later version of Zoo, which can go on with it")
    return values


def _unreadable(path: Path, error: OSError) -> ZooError:
    """Return the error for a file that may be whole, and readable another time."""
    return ZooError(f"can't read {path}: {error.strerror or error}")


def _checksum(values: Mapping[str, Any]) -> int:
    return zlib.crc32(to_json(values).encode())


def _in_parts(arrays: Arrays, places: Iterable[str]) -> tuple[Arrays, dict[str, Arrays]]:
    """Return the arrays outside of these places of a tree, and those inside of each, by their path there."""
    outside: Arrays = {}
    inside: dict[str, Arrays] = {place: {} for place in places}
    for path, array in arrays.items():
        place = next((each for each in _above(path) if each in inside), None)
        if place is None:
            outside[path] = array
        else:
            inside[place][path[len(place + SEPARATOR) :]] = array
    return outside, inside


def _above(path: str) -> Iterator[str]:
    while SEPARATOR in path:
        path = path.rpartition(SEPARATOR)[0]
        yield path


def _write_parts(folder: Path, parts: Mapping[str, Arrays], names: Mapping[str, str]) -> dict[str, Any]:
    """Write those parts that no checkpoint has; return what the new one says of each of them, by place."""
    there: dict[str, Mapping[str, Any]] = {}
    for part in _parts_in_use(folder):
        there.setdefault(part["name"], part)  # the newest comes first
    records = {}
    for place, arrays in parts.items():
        record = there.get(names[place])
        if record is None:
            record = {"name": names[place]}
            record["checksum"] = write_tensors(_part_file(folder, record), arrays)
            record["bytes"] = _part_file(folder, record).stat().st_size
        records[place] = record
    return records


def _parts_in_use(folder: Path) -> Iterator[Mapping[str, Any]]:
    """Give the parts that checkpoints have, but for those that were lost."""
    for name in (NEWEST, PREVIOUS):
        with contextlib.suppress(_DamagedError):
            values = _read_values(folder / name)
            if values is not None:
                yield from (part for part in _parts_of(values) if _is_there(folder, part))


def _is_there(folder: Path, part: Mapping[str, Any]) -> bool:
    """Whether a part's file is as long as it was written: what was cut short is written again."""
    path = _part_file(folder, part)
    return path.is_file() and path.stat().st_size == part["bytes"]


def _part_file(folder: Path, part: Mapping[str, Any]) -> Path:
    return folder / f"{part['name']}.safetensors"


def _keep_the_newest_as_previous(folder: Path) -> None:
    """Let the newest checkpoint be the one before; one of which a part is lost takes no whole one's place."""
    with contextlib.suppress(_DamagedError):
        values = _read_values(folder / NEWEST)
        if values is None or not all((folder / each["tensors"]).is_file() for each in _shares(values)):
            return
        if all(_is_there(folder, part) for part in _parts_of(values)):
            atomic.write_bytes(folder / PREVIOUS, (folder / NEWEST).read_bytes())


def _remove_leftovers(folder: Path) -> None:
    """Remove what no checkpoint refers to: the arrays of earlier ones, and what a killed process began."""
    if not folder.is_dir():
        return
    with contextlib.suppress(ZooError, OSError):  # what can't be read or removed now may be later
        kept = set(_files_in_use(folder))
        for path in folder.iterdir():
            if _LEFTOVERS.fullmatch(path.name) and path.name not in kept and path.is_file():
                path.unlink(missing_ok=True)


def _files_in_use(folder: Path) -> Iterator[str]:
    for name in (NEWEST, PREVIOUS):
        values = _read_values(folder / name)
        if values is not None:
            yield from _files_of(values)


def _files_of(values: Mapping[str, Any]) -> list[str]:
    """Return the names of the files with the arrays of a checkpoint, of all workers."""
    tensors = [each["tensors"] for each in _shares(values)]
    return tensors + [f"{part['name']}.safetensors" for part in _parts_of(values)]


def _shares(values: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return what a checkpoint says of the arrays of each worker."""
    return [values, *values.get("workers", ())]


def _parts_of(values: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [part for each in _shares(values) for part in each["parts"].values()]
