"""The folder of a sweep: its command, the state of each job, and the jobs' runs."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import datetime
import os
import shutil
import subprocess
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoo.config.overrides import format_overrides, quoted
from zoo.config.user_files import shown
from zoo.core import atomic
from zoo.core.file_lock import FileLock, is_locked
from zoo.core.plain_data import parse_json, parse_own_yaml, to_yaml
from zoo.core.printing import csv_lines, one_line
from zoo.errors import ZooError
from zoo.launch.job_runs import JobRuns

QUEUED = "queued"
RUNNING = "running"
DONE = "done"
FAILED = "failed"
INTERRUPTED = "interrupted"
PREEMPTED = "preempted"
KILLED = "killed"

STATUSES = (QUEUED, RUNNING, PREEMPTED, DONE, FAILED, KILLED, INTERRUPTED)
"""Job states, in the order in which summaries count them."""

ENDED = (DONE, FAILED, INTERRUPTED, KILLED)

FAILURE = 1
"""Exit status of a job that raised an exception, or whose process died."""

LAUNCHER_LOCK = "launcher"
"""Name of the lock that a multirun on this machine holds."""

LOCK_TIMEOUT = 5.0
"""Seconds to wait for a lock: other processes hold it briefly to check it."""

COLUMNS = (
    *("job", "overrides", "status", "run", "seed", "steps", "final_score", "best_score", "seconds"),
    *("reason", "slurm_job"),
)


@dataclass
class JobState:
    """State of a job as its process last wrote it; a killed job's file still says ``running``."""

    number: int
    overrides: list[str]
    status: str = QUEUED
    reason: str = ""
    exit_status: int | None = None
    restarts: int = 0
    """Number of times that it was requeued and restarted."""
    slurm_job: str | None = None
    started: float | None = None
    """Start time of the current process, in seconds since 1970."""
    seconds: float = 0.0
    """Total time of earlier processes."""
    run: RunProgress | None = None
    """Stored when the job is done, so that its files are read only once."""

    @property
    def is_missing(self) -> bool:
        """Whether the job is not done, not running and not in Slurm's queue."""
        is_in_queue = self.slurm_job is not None and self.status in (QUEUED, PREEMPTED)
        return self.status not in (DONE, RUNNING) and not is_in_queue


@dataclass(frozen=True)
class RunProgress:
    """Progress, speed and scores of a run, from the files in its folder; None where unknown."""

    path: str
    """Relative to the sweep's folder."""
    status: str | None
    seed: int | None
    steps: int | None
    n_timesteps: int | None
    steps_per_second: float | None
    score: float | None
    """Mean return of the last evaluation or, before the first one, of the latest episodes."""
    best_score: float | None


class SweepFolder:
    """Folder with ``sweep.yaml`` and ``sweep.csv``; each job has a file in ``jobs/``, a run and a log file.

    The log file is ``<number>.log``; ``.jobs`` maps jobs to runs.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.record = self.path / "sweep.yaml"
        self.table = self.path / "sweep.csv"
        self.jobs = self.path / "jobs"
        self.runs = JobRuns(self.path)

    def create(self, jobs: Sequence[Sequence[str]], **record: Any) -> None:
        """Create the sweep's folder with these jobs, each given by its overrides."""
        for number, overrides in enumerate(jobs):
            self._write_job(JobState(number, list(overrides)))
        started = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        atomic.write_text(self.record, to_yaml({"started": started, **record}))

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> SweepFolder:
        """Open the folder of an existing sweep. Raises `ZooError` if there is none."""
        folder = cls(Path(path).expanduser())
        if not folder.record.is_file():
            raise ZooError(f"there is no sweep in {one_line(path)}: it has no sweep.yaml")
        return folder

    @classmethod
    def newest(cls, runs_dir: str | os.PathLike[str]) -> SweepFolder:
        """Open the newest sweep in a runs folder. Raises `ZooError` if there is none."""
        records = sorted(Path(runs_dir).expanduser().glob("multirun/*/sweep.yaml"))
        if not records:
            place = one_line(Path(runs_dir, "multirun"))
            raise ZooError(f"there is no sweep in {place}; zoo status DIR shows one elsewhere")
        return cls(records[-1].parent)

    @property
    def shown(self) -> str:
        """Path of the folder as a person would write it."""
        return one_line(shown(self.path), 1000)

    def run_overrides(self, command: str, state: JobState) -> list[str]:
        """Return the overrides that tie a job's run to the sweep: job name and runs folder."""
        if command != "train":  # other commands create no runs
            return []
        name = f"job={quoted(self._job_name(state.number))}"
        is_resumed = _resumed_run(state.overrides) is not None
        return [name] if is_resumed else [f"runs_dir={quoted(str(self.path))}", name]

    def read_record(self) -> dict[str, Any]:
        """Return the content of ``sweep.yaml``. Raises `ZooError` for a damaged one."""
        record = _read(self.record)
        if not {"command", "working_folder", "overrides", "hydra_overrides"} <= record.keys():
            raise ZooError(f"{self.shown}/sweep.yaml is damaged: its command or overrides are missing")
        return record

    def read_job(self, number: int) -> JobState:
        """Return a job's state as last written."""
        values = parse_json((self.jobs / f"{number}.json").read_bytes())
        return JobState(**{**values, "run": values["run"] and RunProgress(**values["run"])})

    def change_job(self, number: int, **values: Any) -> JobState:
        """Change fields of a job's state, write it to its file, and return it."""
        earlier = self.read_job(number)
        state = dataclasses.replace(earlier, **values)
        if state != earlier:
            self._write_job(state)
        return state

    def end_job(self, number: int, status: str, **values: Any) -> JobState:
        """Write how a job ended and, if it is done, its run's progress."""
        run = self._run_of(self.read_job(number), self.runs.by_job()) if status == DONE else None
        return self.change_job(number, status=status, started=None, run=run, **values)

    def queue(self, numbers: Sequence[int], slurm_array: str | None = None) -> None:
        """Mark these jobs as queued."""
        state = {"status": QUEUED, "reason": "", "exit_status": None, "started": None, "run": None}
        for number in numbers:
            self.change_job(number, slurm_job=slurm_array and f"{slurm_array}_{number}", **state)

    @contextlib.contextmanager
    def hold(self, name: str) -> Iterator[int]:
        """Hold a job's lock, or another one, within the block; yield its descriptor for child processes.

        Raises `ZooError` if another process holds it. It is free once all holders have closed it, or died.
        """
        lock = FileLock(self.jobs / f"{name}.lock", inherited=True)
        deadline = time.monotonic() + LOCK_TIMEOUT
        while not lock.acquire(wait=False):
            if time.monotonic() > deadline:
                raise ZooError(f"the multirun in {self.shown} is still going on: zoo status {self.shown}")
            time.sleep(0.02)
        try:
            assert lock.descriptor is not None
            yield lock.descriptor
        finally:
            lock.release()

    def is_held(self, name: str) -> bool:
        """Return whether a running process holds this lock."""
        return is_locked(self.jobs / f"{name}.lock", inherited=True)

    def write_table(self) -> list[JobState]:
        """Return the state of all jobs, and write it to ``sweep.csv`` if the folder is writable."""
        jobs = self.current_jobs()
        with contextlib.suppress(ZooError, OSError):
            atomic.write_text(self.table, csv_lines([COLUMNS, *map(_csv_cells, jobs)]))
        return jobs

    def current_jobs(self) -> list[JobState]:
        """Return the current state of all jobs, with those whose process died marked as such."""
        is_launching = self.is_held(LAUNCHER_LOCK)
        jobs = [self.read_job(number) for number in range(len(list(self.jobs.glob("*.json"))))]
        # Ask Slurm first: a job that ends in between has then written its state.
        in_slurm = slurm_states([job.slurm_job for job in jobs if job.slurm_job and job.status not in ENDED])
        jobs = [self.read_job(job.number) if job.slurm_job in in_slurm else job for job in jobs]
        runs = self.runs.by_job()
        for job in jobs:
            job.run = self._run_of(job, runs)
            if job.status not in ENDED:
                if job.slurm_job in in_slurm:
                    job.status, job.reason = _status_by_slurm(job, *in_slurm[job.slurm_job])
                elif self.is_held(str(job.number)):
                    job.status = RUNNING
                elif not is_launching and (job.slurm_job is None or job.status == RUNNING):
                    job.status, job.reason = _status_without_process(job)
            job.reason = one_line(job.reason, 500)
        return jobs

    def _run_of(self, job: JobState, runs: Mapping[str, Sequence[Path]]) -> RunProgress | None:
        """Return a job's run: the stored one, else read from its files; ``runs`` are the folders by job."""
        if job.run is not None:
            return job.run
        folders = [path for path in runs.get(self._job_name(job.number), ()) if path.is_dir()]
        run = folders[-1] if folders else _resumed_run(job.overrides)
        return None if run is None else read_progress(run, self.path)

    def discard(self) -> None:
        """Remove a sweep without started jobs, and its folder if it is then empty."""
        shutil.rmtree(self.jobs, ignore_errors=True)
        self.record.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.path.rmdir()

    def _write_job(self, state: JobState) -> None:
        atomic.write_json(self.jobs / f"{state.number}.json", dataclasses.asdict(state))

    def _job_name(self, number: int) -> str:
        """Return the job name that this sweep's runs record."""
        return f"{self.path.absolute().name}_{number}"


SCALARS = ("eval/mean_reward", "rollout/ep_rew_mean", "time/total_timesteps", "time/fps")


def read_progress(folder: Path, root: Path) -> RunProgress:
    """Read a run's progress from its files; missing or damaged files are skipped.

    ``root`` is the folder of the sweep.
    """
    record, config = _read(folder / "run.json"), _read(folder / "config.yaml")
    scalars: dict[str, float] = {}  # the last value of each scalar
    with contextlib.suppress(OSError, ValueError, csv.Error):
        head, *lines = (folder / "progress.csv").read_text(encoding="utf-8").splitlines()
        for row in csv.DictReader([head, *reversed(lines)]):
            scalars = {name: float(row[name]) for name in SCALARS if row.get(name)} | scalars
            if scalars.keys() >= {*SCALARS} & row.keys():
                break
    is_over = record.get("status") in ("finished", "failed", "preempted")
    score = (record.get("evaluation") or {}).get("mean_return") if is_over else None
    for name in SCALARS[:2]:
        score = scalars.get(name) if score is None else score
    steps = record.get("timesteps") if is_over else None
    return RunProgress(
        path=os.path.relpath(folder, root),
        status=record.get("status"),
        seed=record.get("seed"),
        steps=int(scalars.get("time/total_timesteps", 0)) if steps is None else steps,
        n_timesteps=config.get("n_timesteps"),
        steps_per_second=record.get("steps_per_second") if is_over else scalars.get("time/fps"),
        score=score,
        best_score=_read(folder / "best_agent" / "card.json").get("mean_return"),
    )


def _resumed_run(overrides: Sequence[str]) -> Path | None:
    runs = [o.removeprefix("resume=").strip("'\"") for o in overrides if o.startswith("resume=")]
    return Path(os.path.expanduser(runs[-1])) if runs and runs[-1] != "null" else None


def _status_by_slurm(job: JobState, slurm_state: str, why: str) -> tuple[str, str]:
    """Return status and reason of a job that has not written its end, from Slurm's state."""
    if slurm_state in WAITING:
        waits = f"waits: {why}" if why not in ("", "None") else ""
        if job.status == QUEUED:
            return QUEUED, waits
        return PREEMPTED, job.reason or waits or "it is in the queue again"
    if slurm_state not in OVER:
        return RUNNING if job.status == QUEUED else job.status, job.reason
    if job.status == PREEMPTED:
        return INTERRUPTED, "it ended with a checkpoint, and was not put back into the queue"
    reason = REASONS.get(slurm_state, f"its process is gone; Slurm says {slurm_state or 'nothing'}")
    return INTERRUPTED if slurm_state == "CANCELLED" else KILLED, reason


def _status_without_process(job: JobState) -> tuple[str, str]:
    """Return status and reason of a job that no process runs and Slurm does not know."""
    if job.status == QUEUED:
        return QUEUED, "its multirun is gone before it started"
    if job.run is not None and job.run.status == "finished":
        return DONE, ""
    if job.run is not None and job.run.status == "preempted":
        return PREEMPTED, "it ended with a checkpoint when its multirun was gone"
    return KILLED, "its process is gone"


def _csv_cells(job: JobState) -> list[Any]:
    run = {} if job.run is None else dataclasses.asdict(job.run)
    values = {
        **dataclasses.asdict(job),
        **{key: run.get(key) for key in ("seed", "steps", "best_score")},
        "job": job.number,
        "overrides": format_overrides(job.overrides),
        "run": run.get("path"),
        "final_score": run["score"] if run.get("status") == "finished" else None,
        "seconds": f"{job.seconds:.1f}" if job.seconds and job.status != RUNNING else None,
    }
    cells = (values[column] for column in COLUMNS)
    return [one_line(cell, 10_000) if isinstance(cell, str) else cell for cell in cells]


def _read(file: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        return (parse_json if file.suffix == ".json" else parse_own_yaml)(file.read_bytes())
    return {}


# -- Slurm ------------------------------------------------------------------------------------------------

WAITING = ("PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD")

REASONS = {
    "OUT_OF_MEMORY": "it needed more memory than it had (hydra.launcher.mem_gb)",
    "TIMEOUT": "its time was up (hydra.launcher.timeout_min)",
}

OVER = (*REASONS, "", "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "PREEMPTED")
"""States of jobs that are gone; those in all others, such as ``RESIZING``, may go on."""

TIMEOUT = 60
"""Timeout in seconds of a Slurm command."""


def slurm_states(jobs: Collection[str]) -> dict[str, tuple[str, str]]:
    """Return each job's state, such as ``PENDING``, and why it waits; "" if Slurm has forgotten it.

    ``jobs`` are elements of job arrays, such as ``12_3``. Empty if Slurm can't be reached.
    """
    ids = ",".join(sorted({job.partition("_")[0] for job in jobs}))
    squeue = ["squeue", "--noheader", "--array", "--states=all", "--format=%i|%T|%r"]
    sacct = ["sacct", "--noheader", "--parsable2", "--allocations", "--format=JobID,State"]
    try:
        states = _parse(run_slurm([*squeue, f"--jobs={ids}"])) if jobs else {}
    except ZooError:
        return {}
    if not {*jobs} <= states.keys():
        with contextlib.suppress(ZooError):
            states = _parse(run_slurm([*sacct, f"--jobs={ids}"])) | states
    return {job: states.get(job, ("", "")) for job in jobs}


def _parse(answer: str) -> dict[str, tuple[str, str]]:
    rows = [line.strip().split("|") for line in answer.splitlines() if "|" in line]
    # sacct writes `CANCELLED by 1000`
    return {job: (state.split(" ")[0], why[0] if why else "") for job, state, *why in rows}


def run_slurm(command: Sequence[str]) -> str:
    """Return the output of a Slurm command. Raises `ZooError` with Slurm's message if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ZooError(f"Slurm did not take the jobs: {one_line(error)}") from error
    if done.returncode and "Invalid job id" not in done.stderr:  # Slurm has forgotten the job
        raise ZooError(f"Slurm did not take the jobs: {one_line(done.stderr, 500)}")
    return done.stdout
