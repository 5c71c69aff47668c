"""The folder of a sweep: its command, its jobs, how each of them stands, and their runs."""

from __future__ import annotations

import contextlib
import datetime
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoo.config.overrides import quoted
from zoo.config.paths import shown
from zoo.core import atomic
from zoo.core.plain_data import parse_yaml, to_yaml
from zoo.core.printing import csv_lines, csv_text, one_line
from zoo.errors import INTERRUPTED as INTERRUPTED_STATUS
from zoo.errors import ZooError
from zoo.launch import slurm_queue
from zoo.launch.jobs import FAILURE, spelled
from zoo.launch.runs import RunFacts, RunsOfJobs
from zoo.launch.slurm_queue import Standing
from zoo.launch.states import (
    DONE,
    FAILED,
    INTERRUPTED,
    KILLED,
    PREEMPTED,
    QUEUED,
    RUNNING,
    JobState,
    StateFiles,
)

LAUNCHER = "launcher"
"""The lock that a multirun on this machine holds."""

MAKING_RUNS = ("train",)
"""Commands whose jobs leave runs behind, which stand in the sweep's folder."""

COLUMNS = (
    *("job", "overrides", "status", "run", "seed", "steps", "final_score", "best_score", "seconds"),
    *("reason", "slurm_job", "retries"),
)


@dataclass(frozen=True)
class Row:
    """How a job stands now."""

    state: JobState
    status: str
    reason: str
    run: RunFacts | None

    @property
    def exit_status(self) -> int:
        """The exit status of a sweep in which only this job was."""
        if self.status == DONE:
            return 0
        if self.status == INTERRUPTED:
            return INTERRUPTED_STATUS
        return self.state.exit_status or FAILURE

    @property
    def is_missing(self) -> bool:
        """Whether the job is not done, and nobody is about to do it."""
        is_slurms = self.state.slurm_job is not None and self.status in (QUEUED, PREEMPTED)
        return self.status not in (DONE, RUNNING) and not is_slurms


class TakenError(ZooError):
    """Another process has begun with the jobs of a sweep first."""


class SweepFolder:
    """``sweep.yaml``, ``sweep.csv``; for each job a log ``<number>.log``, a file in ``jobs/``, and its run.

    ``sweep.csv`` is made anew from the rest, whole, whenever a job changes its state.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.record = self.path / "sweep.yaml"
        self.table = self.path / "sweep.csv"
        self.states = StateFiles(self.path / "jobs")
        self._runs = RunsOfJobs(self.path)
        self._final: dict[int, Row] = {}

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> SweepFolder:
        """Return the folder of a sweep that was started. Raises `ZooError` if there is none."""
        folder = cls(Path(path).expanduser())
        if not folder.path.is_dir():
            raise ZooError(f"there is no sweep {one_line(path)}: there is no such folder")
        if not folder.record.is_file():
            raise ZooError(f"there is no sweep in {one_line(path)}: it has no sweep.yaml")
        return folder

    @classmethod
    def newest(cls, runs_dir: str | os.PathLike[str]) -> SweepFolder:
        """Return the newest sweep among the runs in a folder. Raises `ZooError` if there is none."""
        records = sorted(Path(runs_dir).expanduser().glob("multirun/*/sweep.yaml"))
        if not records:
            raise ZooError(
                f"there is no sweep in {one_line(Path(runs_dir, 'multirun'))}; zoo train -m … makes one,"
                " and zoo status DIR shows one elsewhere"
            )
        return cls(records[-1].parent)

    @property
    def shown(self) -> str:
        """The folder as a person would write it here."""
        return one_line(shown(self.path.absolute()), 1000)

    def log(self, number: int) -> Path:
        """Return the file for what a job prints."""
        return self.path / f"{number}.log"

    def job_name(self, number: int) -> str:
        """Return the name of the job to which a run of this sweep says that it belongs."""
        return f"{self.path.absolute().name}_{number}"

    def write_record(self, **values: Any) -> None:
        """Write into ``sweep.yaml`` what there is beside the jobs, and their overrides."""
        jobs = [{"number": state.number, "overrides": state.overrides} for state in self.states.all()]
        earlier = self.read_record() if self.record.is_file() else {}
        now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        record = {"started": now, **earlier, **values, "jobs": jobs}
        atomic.write_text(self.record, to_yaml(record))

    def read_record(self) -> dict[str, Any]:
        """Return what ``sweep.yaml`` says. Raises `ZooError` if it is damaged."""
        try:
            return parse_yaml(self.record.read_bytes())
        except (OSError, ValueError, ZooError) as error:
            raise ZooError(f"can't read {one_line(self.record)}: {one_line(error)}") from error

    def change(self, number: int, **values: object) -> JobState:
        """Write down how a job stands now, and `sweep.csv` anew."""
        state = self.states.change(number, **values)
        self.write_table()
        return state

    def write_table(self) -> list[Row]:
        """Write ``sweep.csv`` if anything is different, and return how all jobs stand."""
        with contextlib.ExitStack() as locked, contextlib.suppress(ZooError, OSError):
            locked.enter_context(self.states.held("table"))
            rows = self.rows()
            text = _as_csv(self.path, rows)
            if not self.table.is_file() or self.table.read_text(encoding="utf-8") != text:
                atomic.write_text(self.table, text)
            return rows
        return self.rows()  # of a sweep that can only be read

    def rows(self) -> list[Row]:
        """Return how all jobs stand, whoever may have died meanwhile."""
        return self._rows(is_launching=self.states.is_held(LAUNCHER))

    def _rows(self, *, is_launching: bool) -> list[Row]:
        asked = [state.slurm_job for state in self.states.all() if state.slurm_job and not _is_final(state)]
        # Slurm is asked first: a job that ends in between has then said so.
        standings = slurm_queue.standings(asked) if asked else None
        runs = self._runs.by_job()
        rows = []
        for state in self.states.all():
            row = self._final.get(state.number)
            if row is None or row.state != state:
                standing = None if standings is None else standings.get(state.slurm_job or "")
                row = self._row(state, standing, runs.get(self.job_name(state.number)), is_launching)
            if row.status == DONE:
                self._final[state.number] = row
            rows.append(row)
        return rows

    @contextlib.contextmanager
    def taken(self, numbers: Sequence[int]) -> Iterator[None]:
        """Hold the sweep for the launcher of this process, which is about to run these jobs.

        Raises `TakenError` if another holds it, or has done or begun any of the jobs since they were counted.
        """
        told = f"another process has gone on with {self.shown} first; zoo status {self.shown} shows it"
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(self.states.held(LAUNCHER))
            except ZooError as error:
                raise TakenError(told) from error
            missing = {row.state.number for row in self._rows(is_launching=False) if row.is_missing}
            if not missing.issuperset(numbers):
                raise TakenError(told)
            yield

    def has_failed(self) -> bool:
        """Tell whether a job has failed, by what the jobs' own processes say."""
        return any(state.status in (FAILED, KILLED) for state in self.states.all())

    def discard(self) -> None:
        """Remove a sweep of which no job was ever started, and its folder if nothing else is in it."""
        shutil.rmtree(self.states.path, ignore_errors=True)
        for file in (self.record, self.table, *self.path.glob("slurm-*.sh")):
            file.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.path.rmdir()

    def _row(self, state: JobState, standing: Standing | None, run: Path | None, is_launching: bool) -> Row:
        if run is None:
            run = _run_that_is_resumed(state.overrides)
        facts = None if run is None else self._runs.facts(run)
        if _is_final(state):
            status, reason = state.status, state.reason
        elif state.slurm_job is not None and standing is not None:
            status, reason = _by_slurm(state, standing)
        elif self.states.is_held(str(state.number)):
            status, reason = RUNNING, state.reason
        else:
            status, reason = _without_a_process(state, facts, is_launching)
        return Row(state, status, one_line(reason, 500), facts)


def run_overrides(folder: SweepFolder, command: str, number: int, overrides: Sequence[str]) -> list[str]:
    """Return what a job is given beside its own overrides, so that its run is found in the sweep."""
    if command not in MAKING_RUNS:
        return []
    name = [f"job={quoted(folder.job_name(number))}"]
    is_resumed = _run_that_is_resumed(overrides) is not None
    return name if is_resumed else [f"runs_dir={quoted(str(folder.path))}", *name]


def _run_that_is_resumed(overrides: Sequence[str]) -> Path | None:
    runs = [each.removeprefix("resume=").strip("'\"") for each in overrides if each.startswith("resume=")]
    return Path(os.path.expanduser(runs[-1])) if runs and runs[-1] != "null" else None


def _is_final(state: JobState) -> bool:
    return state.status in (DONE, FAILED, INTERRUPTED, KILLED)


def _by_slurm(state: JobState, standing: Standing) -> tuple[str, str]:
    """Return how a job stands that has not written down its end, by what Slurm says."""
    if standing.is_at_work:
        return RUNNING if state.status == QUEUED else state.status, state.reason
    if standing.is_waiting:
        why = f"waits: {standing.why}" if standing.why not in ("", "None") else ""
        if state.status == QUEUED:
            return QUEUED, why
        return PREEMPTED, state.reason or why or "it is in the queue again"
    reason = slurm_queue.REASONS.get(standing.state, "its process is gone, and Slurm does not say why")
    if state.status == PREEMPTED:
        return INTERRUPTED, "it ended with a checkpoint, and was not put back into the queue"
    if standing.state == "CANCELLED":
        return INTERRUPTED, reason
    return KILLED, reason


def _without_a_process(state: JobState, run: RunFacts | None, is_launching: bool) -> tuple[str, str]:
    """Return how a job stands whose lock nobody holds, and which Slurm does not know."""
    if state.slurm_job is not None and state.status in (QUEUED, PREEMPTED):
        return state.status, state.reason  # Slurm can't be asked from here
    if is_launching:  # between two of its processes
        return state.status, state.reason
    if state.status == QUEUED:
        return QUEUED, "its multirun is gone before it started"
    if run is not None and run.status == "finished":
        return DONE, ""
    if run is not None and run.status == "preempted":
        return PREEMPTED, "it ended with a checkpoint when its multirun was gone"
    if run is not None and run.status == "failed":
        return FAILED, run.error
    return KILLED, "its process is gone"


def _as_csv(root: Path, rows: Sequence[Row]) -> str:
    return csv_lines([COLUMNS, *(_cells(root, row) for row in rows)])


def _cells(root: Path, row: Row) -> list[Any]:
    run, state = row.run, row.state
    values = {
        "job": state.number,
        "overrides": spelled(state.overrides),
        "status": row.status,
        "seconds": f"{state.seconds:.1f}" if state.seconds and row.status != RUNNING else None,
        "reason": row.reason,
        "slurm_job": state.slurm_job,
        "retries": state.retries,
    }
    if run is not None:
        values |= {
            "run": os.path.relpath(run.path, root),
            "seed": run.seed,
            "steps": run.steps,
            "final_score": run.score if run.status == "finished" else None,
            "best_score": run.best,
        }
    cells = (values.get(column) for column in COLUMNS)
    return [csv_text(cell, 10_000) if isinstance(cell, str) else cell for cell in cells]


def made(path: Path, numbers: Sequence[int], jobs: Sequence[Sequence[str]], **record: Any) -> SweepFolder:
    """Make the folder of a sweep, or add jobs to it. Raises `ZooError` if it can't be written."""
    folder = SweepFolder(path)
    try:
        atomic.make_folder(folder.states.path)
    except OSError as error:
        raise ZooError(f"can't make the folder {one_line(path)}: {error.strerror or error}") from error
    for number, each in zip(numbers, jobs, strict=True):
        folder.states.write(JobState(number, list(each)))
    folder.write_record(**record)
    folder.write_table()
    return folder
