"""What is known of each job of a sweep: one small file a job, which only the job's own process writes."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import platform
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from zoo.config.fields import build
from zoo.core import atomic
from zoo.core.file_lock import opened_lock, try_shared_lock
from zoo.core.plain_data import parse_json
from zoo.core.printing import one_line
from zoo.errors import ZooError

QUEUED = "queued"
RUNNING = "running"
DONE = "done"
FAILED = "failed"
INTERRUPTED = "interrupted"
PREEMPTED = "preempted"
KILLED = "killed"

STATUSES = (QUEUED, RUNNING, PREEMPTED, DONE, FAILED, KILLED, INTERRUPTED)
"""In the order in which counts name them."""

PATIENCE = 5.0
"""Seconds after which a lock that others only look at is held by one who keeps it."""


@dataclass
class JobState:
    """A job as its own process last wrote it down; one that was killed says ``running`` for ever."""

    number: int
    overrides: list[str]
    status: str = QUEUED
    reason: str = ""
    exit_status: int | None = None
    retries: int = 0
    """Times that it was tried again because it had failed."""
    retries_left: int = 0
    fail_fast: bool = False
    restarts: int = 0
    """Times that it was put back into the queue and started again."""
    slurm_job: str | None = None
    host: str | None = None
    started: float | None = None
    """Seconds since the epoch at which the process that runs now began."""
    seconds: float = 0.0
    """Time of the processes before."""

    def seconds_so_far(self) -> float:
        """Return how long the job has run, all tries together."""
        return self.seconds + (time.time() - self.started if self.started is not None else 0.0)


@dataclass
class StateFiles:
    """The folder ``jobs/`` of a sweep."""

    path: Path

    def write(self, state: JobState) -> None:
        """Write down how a job stands."""
        atomic.write_json(self._file(state.number), dataclasses.asdict(state))

    def read(self, number: int) -> JobState:
        """Return how a job stands. Raises `ZooError` if there is none, or its file is damaged."""
        file = self._file(number)
        try:
            return build(JobState, parse_json(file.read_bytes()), "")
        except FileNotFoundError as error:
            raise ZooError(f"the sweep has no job {number}") from error
        except (OSError, ValueError, ZooError) as error:
            raise ZooError(f"can't read {one_line(file)}: {one_line(error)}") from error

    def change(self, number: int, **values: object) -> JobState:
        """Write down what is different now, and return how the job stands."""
        state = dataclasses.replace(self.read(number), **values)  # type: ignore[arg-type]
        self.write(state)
        return state

    def all(self) -> list[JobState]:
        """Return how all jobs stand, in their order."""
        try:
            names = [entry.name for entry in self.path.iterdir()]
        except OSError:
            return []
        numbers = sorted(int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdecimal())
        return [self.read(number) for number in numbers]

    @contextlib.contextmanager
    def held(self, name: str) -> Iterator[int | None]:
        """Hold the lock of a job, or another one, within the block; give its file for a child to hold, too.

        Raises `ZooError` if somebody else holds it. It is free when all have closed it, or died.
        """
        descriptor = opened_lock(self.path / f"{name}.lock")
        deadline = time.monotonic() + PATIENCE
        try:
            while descriptor is not None and try_shared_lock(descriptor) is False:
                if time.monotonic() > deadline:
                    raise ZooError(f"another process is at work in {one_line(self.path.parent)}")
                time.sleep(0.02)
            yield descriptor
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def is_held(self, name: str) -> bool:
        """Tell whether a living process holds that lock; where the file system has no locks, yes."""
        path = self.path / f"{name}.lock"
        if not path.exists():
            return False
        descriptor = opened_lock(path)
        if descriptor is None:
            return True
        try:
            return try_shared_lock(descriptor, only_look=True) is not True
        finally:
            os.close(descriptor)

    def _file(self, number: int) -> Path:
        return self.path / f"{number}.json"


def this_host() -> str:
    """Return the name of this machine."""
    return platform.node()
