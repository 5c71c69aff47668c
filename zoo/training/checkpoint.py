"""Checkpoints: all that the rest of a run depends on, from which it goes on exactly."""

from __future__ import annotations

import contextlib
import csv
import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from zoo.algorithms.callback import Callback, Training, named
from zoo.config.intervals import minutes_of
from zoo.envs.stepper import EnvStepper
from zoo.errors import ZooError
from zoo.files.printing import one_line
from zoo.files.trees import join, lasting_parts, split
from zoo.training.checkpoint_files import (
    check_workers,
    read_files,
    read_files_of_worker,
    write_arrays,
    write_files,
)
from zoo.training.problems import tell, told

if TYPE_CHECKING:
    from zoo.algorithms.algorithm import Algorithm
    from zoo.algorithms.distributed import Team

CHECKPOINT, RESTORE = "checkpoint", "restore"
"""Orders to the other workers."""

MISFITS = (
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    ArithmeticError,
    OSError,
    RuntimeError,
    csv.Error,
)
"""What taking over a state of the wrong form may raise."""


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
        """Say what a checkpoint costs where it costs something."""
        self._written = time.monotonic()
        if _is_replayable(algorithm):
            return
        if self.minutes is not None:
            refuse_barriers_by_the_clock(f"{self.minutes:g}min")
        tell(
            f"these environments can't be replayed: every {self.every:,} steps a checkpoint resets them,"
            " and cuts their episodes (callbacks.checkpoint=null leaves it out)"
        )

    def on_steps(self, algorithm: Training) -> None:
        """Write a checkpoint, if it is time."""
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

    def leave_last(self, algorithm: Training, most_bytes: float) -> None:
        """Write one of the run's end, with its last evaluation, unless it takes more than ``most_bytes``.

        The one before stays the one to go on from where the end has cut the last collection short.
        """
        is_there = self.written_at == algorithm.num_timesteps
        if not _is_replayable(algorithm) or (is_there and algorithm.cut_short):
            return
        if most_bytes == math.inf or _n_bytes(algorithm) <= most_bytes:
            self._write(algorithm)

    def _write(self, algorithm: Training) -> None:
        with told("the run goes on, and the previous checkpoint, if any, stays"):
            write_checkpoint(self.folder, algorithm, self.callbacks)
            self.written_at = algorithm.num_timesteps
        self._written = time.monotonic()


def _n_bytes(algorithm: Training) -> int:
    """Return about what a checkpoint takes, of all workers."""
    return algorithm.team.size * sum(array.nbytes for array in split(algorithm.state())[0].values())


def refuse_barriers_by_the_clock(interval: int | str | None) -> None:
    """Raise `ZooError` for an interval in time, where a checkpoint resets the environments."""
    if minutes_of(interval) is not None:
        raise ZooError(
            f"callbacks.checkpoint.every={interval}: these environments can't be replayed, so a checkpoint"
            " resets them, and the run would depend on the clock; give a number of environment steps"
        )


def refuse_unfit_barriers(
    algorithm: Resumable, config: Mapping[str, Any], before: Mapping[str, Any] | None
) -> None:
    """Raise `ZooError` for checkpoints that reset environments by the clock, or later at other steps.

    ``before`` is the config of the run that goes on, if one does.
    """
    envs = algorithm.envs
    if envs is None or envs.is_replayable:
        return
    was, now = (
        None if each is None else (each["callbacks"].get("checkpoint") or {}).get("every")
        for each in (before, config)
    )
    refuse_barriers_by_the_clock(now)
    if before is not None and was != now:
        raise ZooError(
            "these environments can't be replayed, so checkpoints reset them, and the run depends on"
            f" when; it can't go on with callbacks.checkpoint.every={now} (the run has {was})"
        )


def _is_replayable(algorithm: Training) -> bool:
    return algorithm.envs is not None and algorithm.envs.is_replayable


class Resumable(Protocol):
    """An algorithm, as far as a checkpoint is concerned."""

    num_timesteps: int
    envs: EnvStepper | None
    is_half_restored: bool

    def state(self) -> dict[str, Any]:
        """Return everything that the rest of the run depends on."""

    def load_state(self, state: dict[str, Any]) -> None:
        """Go back to where `state` returned this."""


@dataclass
class Checkpoint:
    """What a checkpoint holds; the arrays in the algorithm's state tree are views of its files."""

    timesteps: int
    algorithm: dict[str, Any]
    callbacks: dict[str, dict[str, Any]]
    monitor: list[int] | None


def write_checkpoint(folder: str | Path, algorithm: Training, callbacks: Iterable[Callback] = ()) -> None:
    """Write the state of an algorithm between two updates, and of its callbacks.

    What it says of log files is on the disk before, and a `Lasting` part that a checkpoint in ``folder`` has
    is not written again. Raises `ZooError` if it can't be written.
    """
    folder, state = Path(folder), algorithm.state()
    arrays, values = split(state)
    monitor = algorithm.envs.monitor if algorithm.envs is not None else None
    try:
        states = {name: own for name, each in named(callbacks) if (own := each.state())}
        offsets = None if monitor is None else monitor.offsets()
    except OSError as error:
        raise ZooError(f"can't write {folder}: a log does not reach the disk: {error}") from error
    reached = {"timesteps": algorithm.num_timesteps, "cut_short": algorithm.cut_short}
    record = {**reached, "algorithm": values}
    names = {path: part.name for path, part in lasting_parts(state).items()}
    others = partial(_have_others_write, algorithm.team, folder)
    write_files(folder, arrays, {**record, "callbacks": states, "monitor": offsets}, names, others)


def write_share(folder: Path, algorithm: Training) -> dict[str, Any]:
    """Write the state of an algorithm that is not the first of its workers; return what is to be said of it.

    Where it can't be written, that is said.
    """
    state = algorithm.state()
    arrays, values = split(state)
    names = {path: part.name for path, part in lasting_parts(state).items()}
    try:
        own = write_arrays(folder, algorithm.num_timesteps, arrays, names)
    except (ZooError, OSError) as error:
        return {"error": str(error)}
    return {**own, "algorithm": values}


def restore_share(folder: Path, algorithm: Resumable, rank: int) -> str | None:
    """Bring back one that is not the first of its workers; return what went wrong, if anything did."""
    try:
        values, arrays = read_files_of_worker(folder, rank)
        names = {path: part["name"] for path, part in values["parts"].items()}
        with misfits_told("the checkpoint does not fit this algorithm"):
            algorithm.load_state(join(arrays, values.get("algorithm", {}), names))
    except ZooError as error:
        return str(error)
    return None


def _have_others_write(team: Team, folder: Path) -> Callable[[], list[dict[str, Any]]]:
    """Have the other workers write their shares; return what waits for that."""
    workers = team.workers
    if workers is None:
        return list
    workers.order(CHECKPOINT, folder=str(folder.absolute()))

    def wait() -> list[dict[str, Any]]:
        _, *shares = workers.gathered(None)
        for rank, share in enumerate(shares, 1):
            if "error" in share:
                raise ZooError(f"worker {rank}: {share['error']}")
        return shares

    return wait


def have_others_restored(team: Team, folder: Path) -> None:
    """Have the other workers go back to their shares of the newest checkpoint. Raises `ZooError`."""
    if team.workers is None:
        return
    team.workers.order(RESTORE, folder=str(folder.absolute()))
    for rank, problem in enumerate(team.workers.gathered(None)):
        if problem is not None:
            raise ZooError(f"worker {rank}: {problem}")


def read_checkpoint(folder: str | Path, *, for_more_steps: bool = False) -> Checkpoint:
    """Return the checkpoint in ``folder``; if it is damaged, which is told, the one before it.

    So it is if the newest can't be gone on from ``for_more_steps`` than the run was to have. Raises
    `ZooError` if there is none that is whole.
    """
    values, arrays = read_files(Path(folder), for_more_steps=for_more_steps)
    names = {path: part["name"] for path, part in values["parts"].items()}
    return Checkpoint(
        timesteps=values["timesteps"],
        algorithm=join(arrays, values.get("algorithm", {}), names),
        callbacks=values.get("callbacks", {}),
        monitor=values.get("monitor"),
    )


def restore(checkpoint: Checkpoint, algorithm: Resumable, callbacks: Iterable[Callback] = ()) -> None:
    """Bring algorithm, callbacks and their files back to where they were at the checkpoint.

    Then ``algorithm.learn(algorithm.total_timesteps - algorithm.num_timesteps, callbacks,
    reset_num_timesteps=False)`` goes on as if nothing had happened. Raises `ZooError` if the checkpoint is
    not one of this algorithm and these callbacks.
    """
    there = dict(named(callbacks))
    missing = [name for name in checkpoint.callbacks if name not in there]
    if missing:
        what = one_line(", ".join(missing))
        raise ZooError(f"the checkpoint holds the state of {what}, which this run does not have")
    algorithm.is_half_restored = True
    with misfits_told("the checkpoint does not fit this algorithm"):
        algorithm.load_state(checkpoint.algorithm)
        if algorithm.num_timesteps != checkpoint.timesteps:
            raise ValueError(f"it is of step {checkpoint.timesteps}, the run in it of another one")
    with misfits_told("the checkpoint does not fit the callbacks of this run"):
        for name, state in checkpoint.callbacks.items():
            there[name].load_state(state)
        monitor = algorithm.envs.monitor if algorithm.envs is not None else None
        if checkpoint.monitor is not None and monitor is not None:
            monitor.truncate(checkpoint.monitor)
    algorithm.is_half_restored = False


def go_back(
    algorithm: Algorithm[Any], folder: Path, callbacks: Sequence[Callback], *, for_more_steps: bool
) -> None:
    """Bring a run, with all its workers, back to its checkpoint in ``folder``; what is odd is told."""
    with warnings.catch_warnings(record=True) as remarks:
        warnings.simplefilter("always")
        checkpoint = read_checkpoint(folder, for_more_steps=for_more_steps)
        check_workers(folder, algorithm.team.size)
        restore(checkpoint, algorithm, callbacks)
        have_others_restored(algorithm.team, folder)
    for remark in remarks:
        tell(str(remark.message))


@contextlib.contextmanager
def misfits_told(what: str) -> Iterator[None]:
    """Turn what a state of the wrong form leads to into one message."""
    try:
        yield
    except MISFITS as error:
        raise ZooError(f"{what}: {type(error).__name__}: {one_line(error)}") from error
