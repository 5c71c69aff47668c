"""Checkpoints: all that the rest of a run depends on, from which it goes on exactly.

``checkpoint.json`` holds the plain values of the newest and names the safetensors files beside it that hold
the arrays; ``previous.json`` is the same for the one before, in case that the newest is damaged. Arrays in a
`ContentFile` part of the state stand in a file of their own, which is called after it and written once: all
checkpoints that have this part share it. Checksums tell whether files are what was written. New arrays are on
the disk before ``checkpoint.json`` is replaced, in one step, and only then is removed what neither refers to.
Where several workers learn as one, each writes its share here, and ``checkpoint.json`` names all: ``workers``
holds those of the others.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import secrets
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.algorithms.callback import PREEMPTED, Callback, Training, named
from zoo.config.fields import minutes_of
from zoo.core import atomic
from zoo.core.plain_data import parse_json, to_json
from zoo.core.printing import one_line
from zoo.core.tensors import (
    SEPARATOR,
    Arrays,
    checksum_of,
    content_files,
    join,
    read_tensors,
    split,
    write_tensors,
)
from zoo.core.zips import UNREADABLE
from zoo.errors import ZooError
from zoo.experiment.problems import tell, told, warnings_in_one_line

if TYPE_CHECKING:
    from zoo.algorithms.algorithm import Algorithm
    from zoo.algorithms.distributed import DistributedContext

CHECKPOINT, RESTORE = "checkpoint", "restore"
"""Orders to the other workers."""

FORMAT = 4

NEWEST, PREVIOUS = "checkpoint.json", "previous.json"

KEPT_BYTES = 32 * 2**20
"""What the checkpoint of a finished run may take if nobody asked for it to be kept."""

_ARRAYS = r"(?:\d+-[0-9a-f]{8}|[0-9a-f]{32})\.safetensors"
_LEFTOVERS = re.compile(f"{_ARRAYS}|{atomic.unfinished(f'{_ARRAYS}|checkpoint[.]json|previous[.]json')}")
"""The names of arrays, and of what a killed process began of any file here."""

State = dict[str, Any]
Record = dict[str, Any]


class CheckpointCallback(Callback):
    """Writes a checkpoint to ``folder`` every ``every`` environment steps, or every so many ``minutes``.

    Nothing of the training changes with that. A signal writes one at once, so that the run goes on where it
    was. Only environments that can't be replayed are reset at each checkpoint, and then not at a signal.
    ``callbacks`` are the others of the run, whose state is part of the checkpoint. A checkpoint that can't be
    written is told in one line; the run goes on, and the previous checkpoint stays.
    """

    comes_last = True

    def __init__(
        self,
        folder: str | Path = "checkpoint",
        every: int = 0,
        callbacks: Sequence[Callback] = (),
        *,
        minutes: float | None = None,
    ) -> None:
        self.folder = Path(folder)
        self.every = 1 if minutes is not None else every
        self.looks_often = minutes is not None
        self.callbacks = callbacks
        self.minutes = minutes
        self.written_at: int | None = None
        """Environment steps at the last checkpoint of this process."""
        self._written = time.monotonic()

    def on_training_start(self, algorithm: Training) -> None:
        self._written = time.monotonic()
        if _is_replayable(algorithm):
            return
        tell(
            f"these environments can't be replayed: every {self.every:,} steps a checkpoint resets them,"
            " and cuts their episodes (callbacks.checkpoint=null leaves it out)"
        )

    def on_steps(self, algorithm: Training) -> None:
        if self.minutes is not None and time.monotonic() - self._written < 60 * self.minutes:
            return
        if self.looks_often:
            algorithm.check_finite()
        if not _is_replayable(algorithm):
            algorithm.barrier()
        self._write(algorithm)

    def on_preemption(self, algorithm: Training) -> None:
        """Write a checkpoint from which nothing has to be repeated."""
        if _is_replayable(algorithm):
            self._write(algorithm)

    def leave_last(self, algorithm: Training, most_bytes: float, *, is_outdated: bool) -> None:
        """Write a checkpoint of the run's end: to go on with after a signal, or with more steps.

        The one that is there may be ``is_outdated`` by an evaluation. Of a run that is done none is written
        that takes more than ``most_bytes``; and the one before stays the one to go on from where the end has
        cut the last collection short.
        """
        is_there = self.written_at == algorithm.num_timesteps
        if algorithm.stop_reason == PREEMPTED:
            if not is_there:
                self.on_preemption(algorithm)
        elif most_bytes and _is_replayable(algorithm) and (is_outdated or not is_there):
            is_cut = is_there and algorithm.cut_short
            if not is_cut and (most_bytes == math.inf or _n_bytes(algorithm) <= most_bytes):
                self._write(algorithm)

    def _write(self, algorithm: Training) -> None:
        with told("the run goes on, and the previous checkpoint, if any, stays"):
            write_checkpoint(self.folder, algorithm, self.callbacks)
            self.written_at = algorithm.num_timesteps
        self._written = time.monotonic()


def _is_replayable(algorithm: Training) -> bool:
    return algorithm.envs is not None and algorithm.envs.is_replayable


def _n_bytes(algorithm: Training) -> int:
    """Return about what a checkpoint takes, of all workers."""
    return algorithm.distributed.size * sum(array.nbytes for array in split(algorithm.state())[0].values())


def refuse_unfit_barriers(
    algorithm: Algorithm, config: Mapping[str, Any], before: Mapping[str, Any] | None
) -> None:
    """Raise `ZooError` for checkpoints that reset environments by the clock, or later at other steps.

    ``before`` is the config of the run that goes on, if one does.
    """
    if algorithm.envs is None or algorithm.envs.is_replayable:
        return
    was, now = (
        None if each is None else (each["callbacks"].get("checkpoint") or {}).get("every")
        for each in (before, config)
    )
    if minutes_of(now) is not None:
        raise ZooError(
            f"callbacks.checkpoint.every={now}: these environments can't be replayed, so a checkpoint"
            " resets them, and the run would depend on the clock; give a number of environment steps"
        )
    if before is not None and was != now:
        raise ZooError(
            "these environments can't be replayed, so checkpoints reset them, and the run depends on"
            f" when; it can't go on with callbacks.checkpoint.every={now} (the run has {was})"
        )


# -- of a run ---------------------------------------------------------------------------------------------


@dataclass
class Checkpoint:
    """What a checkpoint holds; the arrays in the algorithm's state tree are views of its files."""

    timesteps: int
    algorithm: State
    callbacks: dict[str, State]
    monitor: list[int] | None


def write_checkpoint(folder: str | Path, algorithm: Training, callbacks: Iterable[Callback] = ()) -> None:
    """Write the state of an algorithm between two updates, and of its callbacks.

    What it says of log files is on the disk before. Raises `ZooError` if it can't be written.
    """
    folder, state = Path(folder), algorithm.state()
    monitor = algorithm.envs.monitor if algorithm.envs is not None else None
    try:
        states = {name: own for name, each in named(callbacks) if (own := each.state())}
        offsets = None if monitor is None else monitor.offsets()
    except OSError as error:
        raise ZooError(f"can't write {folder}: a log does not reach the disk: {error}") from error
    values = {
        "timesteps": algorithm.num_timesteps,
        "cut_short": algorithm.cut_short,
        "callbacks": states,
        "monitor": offsets,
    }
    write_files(folder, state, values, lambda: _have_others_write(algorithm.distributed, folder))


def read_checkpoint(folder: str | Path, *, for_more_steps: bool = False) -> Checkpoint:
    """Return the checkpoint in ``folder``; if it is damaged, which is told, the one before it.

    So it is if the newest can't be gone on from ``for_more_steps`` than the run was to have. Raises
    `ZooError` if there is none that is whole.
    """
    record, state = read_files(Path(folder), for_more_steps=for_more_steps)
    return Checkpoint(record["timesteps"], state, record["callbacks"], record["monitor"])


def restore(checkpoint: Checkpoint, algorithm: Algorithm, callbacks: Iterable[Callback] = ()) -> None:
    """Bring algorithm, callbacks and their files back to where they were at the checkpoint.

    Then ``algorithm.learn(algorithm.total_timesteps - algorithm.num_timesteps, callbacks,
    reset_num_timesteps=False)`` goes on as if nothing had happened.
    """
    there = dict(named(callbacks))
    algorithm.is_half_restored = True
    algorithm.load_state(checkpoint.algorithm)
    for name, state in checkpoint.callbacks.items():
        there[name].load_state(state)
    monitor = algorithm.envs.monitor if algorithm.envs is not None else None
    if checkpoint.monitor is not None and monitor is not None:
        monitor.truncate(checkpoint.monitor)
    algorithm.is_half_restored = False


def go_back(
    algorithm: Algorithm, folder: Path, callbacks: Sequence[Callback], *, for_more_steps: bool
) -> None:
    """Bring a run, with all its workers, back to its checkpoint in ``folder``. Raises `ZooError`."""
    with warnings_in_one_line():
        checkpoint = read_checkpoint(folder, for_more_steps=for_more_steps)
        check_workers(folder, algorithm.distributed.size)
        restore(checkpoint, algorithm, callbacks)
        workers = algorithm.distributed.workers
        if workers is not None:
            workers.order(RESTORE, folder=str(folder.absolute()))
            for rank, problem in enumerate(workers.gathered(None)):
                if problem is not None:
                    raise ZooError(f"worker {rank}: {problem}")


def check_workers(folder: Path, n_workers: int) -> None:
    """Raise `ZooError` if the newest checkpoint is of another number of workers."""
    n_written = len(_shares(_read_record(folder / NEWEST)))
    if n_written != n_workers:
        raise ZooError(f"the checkpoint is of workers={n_written}, and can't go on with workers={n_workers}")


# -- of one worker ----------------------------------------------------------------------------------------


def write_share(folder: Path, algorithm: Training) -> Record:
    """Write the state of an algorithm that is not the first of its workers; return what is to be said of it.

    Where it can't be written, that is said.
    """
    try:
        return _write_share(folder, algorithm.num_timesteps, algorithm.state())
    except (ZooError, OSError) as error:
        return {"error": str(error)}


def restore_share(folder: Path, algorithm: Algorithm, rank: int) -> str | None:
    """Bring back one that is not the first of its workers; return what went wrong, if anything did."""
    try:
        algorithm.load_state(read_files_of_worker(folder, rank))
    except ZooError as error:
        return str(error)
    return None


def read_files_of_worker(folder: Path, rank: int) -> State:
    """Return the state of one of the workers in the newest checkpoint. Raises `ZooError`."""
    return _read_share(folder, _shares(_read_record(folder / NEWEST))[rank])


def _have_others_write(distributed: DistributedContext, folder: Path) -> Callable[[], list[Record]]:
    """Have the other workers write their shares; return what waits for that."""
    workers = distributed.workers
    if workers is None:
        return list
    workers.order(CHECKPOINT, folder=str(folder.absolute()))

    def wait() -> list[Record]:
        _, *shares = workers.gathered(None)
        for rank, share in enumerate(shares, 1):
            if "error" in share:
                raise ZooError(f"worker {rank}: {share['error']}")
        return shares

    return wait


# -- files ------------------------------------------------------------------------------------------------


class _DamagedError(ZooError):
    """A checkpoint is not what was written, or not there."""


def has_checkpoint(folder: Path) -> bool:
    """Tell whether one has been written, whole or not."""
    return any((folder / name).is_file() for name in (NEWEST, PREVIOUS))


def write_files(
    folder: Path,
    state: State,
    values: Mapping[str, Any],
    others: Callable[[], Callable[[], list[Record]]] = lambda: list,
) -> None:
    """Write a state, and ``values`` beside it, of which there are at least ``timesteps``.

    ``others`` has other workers begin to write their shares, and returns what waits until they have, and
    tells what `write_share` returned there. Raises `ZooError` if it can't be written.
    """
    _remove_leftovers(folder)
    try:
        wait_for_others = others()
        try:
            own = _write_share(folder, values["timesteps"], state)
        finally:
            of_others = wait_for_others()
        workers = {"workers": of_others} if of_others else {}
        record = {"format": FORMAT, **own, **workers, **values}
        with contextlib.suppress(_DamagedError):
            _read_record(folder / NEWEST)  # a damaged one takes no whole one's place
            atomic.write_bytes(folder / PREVIOUS, (folder / NEWEST).read_bytes())
        atomic.write_json(folder / NEWEST, {**record, "checksum": _checksum(record)})
    finally:
        _remove_leftovers(folder)


def read_files(folder: Path, *, for_more_steps: bool = False) -> tuple[Record, State]:
    """Return values and state of the newest checkpoint that is whole; its arrays are views of the files.

    One that is damaged is told, and given up for the one before it; so is one that is of no use
    ``for_more_steps``, because the run's end cut its last collection short. Of several workers this is the
    first one's. Raises `ZooError` if none is whole, or none is there.
    """
    if not has_checkpoint(folder):
        raise ZooError(f"there is no checkpoint in {folder}")
    problems = []
    for name in (NEWEST, PREVIOUS):
        try:
            record = _read_record(folder / name)
            if for_more_steps and record.get("cut_short"):
                raise _DamagedError(f"{folder / name} is of an end that cut the collecting of steps short")
            state, *_ = [_read_share(folder, share) for share in _shares(record)]
        except _DamagedError as error:
            problems.append(str(error))
            continue
        if problems:
            step = f"step {record['timesteps']:,}"
            tell(f"{problems[0]}; the run goes on from the checkpoint before, at {step}")
            with contextlib.suppress(OSError):
                os.replace(folder / PREVIOUS, folder / NEWEST)
        return record, state
    raise ZooError(
        f"no checkpoint is whole: {'; '.join(dict.fromkeys(problems))}. Without {folder} the run starts anew;"
        f" another run takes over its best agent with init_from={folder.parent}"
    )


def kept_bytes(keep: bool | str) -> float:
    """Return what the checkpoint of a finished run may take, by the setting ``callbacks.checkpoint.keep``."""
    if keep == "auto":
        return KEPT_BYTES
    return math.inf if keep else 0


def drop(folder: Path, most_bytes: float) -> None:
    """Remove the checkpoints of a finished run, but for a last one that takes no more than ``most_bytes``.

    The one before stays where only that one serves for more steps.
    """
    if most_bytes == math.inf:
        return
    if most_bytes:
        with contextlib.suppress(ZooError, OSError):
            if not _read_record(folder / NEWEST).get("cut_short"):
                (folder / PREVIOUS).unlink(missing_ok=True)
                _remove_leftovers(folder)
            ours = {NEWEST, PREVIOUS, *_files_in_use(folder)}
            if sum(path.stat().st_size for path in folder.iterdir() if path.name in ours) <= most_bytes:
                return
    remove_files(folder)


def remove_files(folder: Path) -> None:
    """Remove all checkpoints, and their folder if nothing else is in it."""
    with contextlib.suppress(OSError):
        for name in (NEWEST, PREVIOUS):
            (folder / name).unlink(missing_ok=True)
        _remove_leftovers(folder)
        folder.rmdir()


def _write_share(folder: Path, timesteps: int, state: State) -> Record:
    """Write a worker's state, and return its plain values and where its arrays stand."""
    arrays, values = split(state)
    names = {place: part.name for place, part in content_files(state).items()}
    inside = {}
    for place in names:
        below = f"{place}{SEPARATOR}"
        found = [path for path in arrays if path.startswith(below)]
        inside[place] = {path.removeprefix(below): arrays.pop(path) for path in found}
    tensors = f"{timesteps}-{secrets.token_hex(4)}.safetensors"
    checksum = write_tensors(folder / tensors, arrays)
    written = {part["name"]: part for part in _parts_in_use(folder)}
    parts = {}
    for place, rows in inside.items():
        part = written.get(names[place])
        if part is None:
            path = folder / f"{names[place]}.safetensors"
            part = {"name": names[place], "checksum": write_tensors(path, rows), "bytes": path.stat().st_size}
        parts[place] = part
    return {"tensors": tensors, "tensors_checksum": checksum, "parts": parts, "algorithm": values}


def _read_share(folder: Path, share: Record) -> State:
    """Return the state of one worker."""
    arrays = _read_arrays(folder / share["tensors"], share["tensors_checksum"])
    for place, part in share["parts"].items():
        inside = _read_arrays(folder / f"{part['name']}.safetensors", part["checksum"])
        arrays |= {f"{place}{SEPARATOR}{key}": array for key, array in inside.items()}
    return join(arrays, share["algorithm"], {place: part["name"] for place, part in share["parts"].items()})


def _read_arrays(path: Path, checksum: int) -> Arrays:
    try:
        if checksum_of(path) != checksum:
            raise _DamagedError(f"{path} is damaged: it is not what was written")
        return read_tensors(path)
    except FileNotFoundError as error:
        raise _DamagedError(f"{path} is missing") from error
    except OSError as error:  # it may be whole, and readable another time
        raise ZooError(f"can't read {path}: {error.strerror or error}") from error


def _read_record(path: Path) -> Record:
    """Return what a file of values holds. Raises `ZooError`: it is missing, damaged or of another version."""
    try:
        record = parse_json(path.read_bytes())
        checksum = record.pop("checksum", None)
        if record["format"] != FORMAT and checksum in (None, _checksum(record)):
            version = "an earlier" if record["format"] < FORMAT else "a later"
            raise ZooError(f"{path} was written by {version} version of Zoo, which can go on with it")
        if checksum != _checksum(record):
            raise ValueError("it is not what was written")
    except FileNotFoundError as error:
        raise _DamagedError(f"{path} is missing") from error
    except OSError as error:
        raise ZooError(f"can't read {path}: {error.strerror or error}") from error
    except UNREADABLE as error:
        raise _DamagedError(f"{path} is damaged: {one_line(error)}") from error
    return record


def _checksum(values: Mapping[str, Any]) -> int:
    return zlib.crc32(to_json(values).encode())


def _shares(record: Record) -> list[Record]:
    """Return what a checkpoint says of each worker."""
    return [record, *record.get("workers", ())]


def _records(folder: Path) -> Iterator[Record]:
    """Give the records that are there and whole, the newest last."""
    for name in (PREVIOUS, NEWEST):
        with contextlib.suppress(_DamagedError):
            yield _read_record(folder / name)


def _parts_in_use(folder: Path) -> Iterator[Record]:
    """Give the parts that checkpoints have, but for those that were lost or cut short."""
    for record in _records(folder):
        for part in (part for share in _shares(record) for part in share["parts"].values()):
            path = folder / f"{part['name']}.safetensors"
            if path.is_file() and path.stat().st_size == part["bytes"]:
                yield part


def _files_in_use(folder: Path) -> set[str]:
    """Return the names of the files with the arrays of checkpoints, of all workers."""
    names = set()
    for share in (share for record in _records(folder) for share in _shares(record)):
        names |= {share["tensors"], *(f"{part['name']}.safetensors" for part in share["parts"].values())}
    return names


def _remove_leftovers(folder: Path) -> None:
    """Remove what no checkpoint refers to: the arrays of earlier ones, and what a killed process began."""
    if not folder.is_dir():
        return
    with contextlib.suppress(ZooError, OSError):  # what can't be read or removed now may be later
        kept = _files_in_use(folder)
        for path in folder.iterdir():
            if _LEFTOVERS.fullmatch(path.name) and path.name not in kept and path.is_file():
                path.unlink(missing_ok=True)
