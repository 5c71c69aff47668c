"""The jobs of a multirun on this machine, each in a process of its own.

A job that dies takes no other with it, and what it leaves behind is ended.
"""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from zoo.config.overrides import format_overrides
from zoo.config.user_files import shown
from zoo.core.free_memory import usable_cores
from zoo.core.printing import one_line, say
from zoo.errors import INTERRUPTED as INTERRUPTED_STATUS
from zoo.errors import ZooError
from zoo.launch.processes import JobCommand, JobProcesses, JobResult, run_sweep_job
from zoo.launch.sweep import Sweep
from zoo.launch.sweep_folder import INTERRUPTED, SweepFolder


class LocalLauncher:
    """The launcher ``hydra/launcher=local`` (one job after the other) and ``=joblib`` (side by side).

    ``n_jobs`` is the number of jobs at a time, -1 for one a core. Jobs side by side would print over each
    other: each prints to its log.
    """

    def __init__(self, sweep: Sweep, folder: SweepFolder, n_jobs: int) -> None:
        if n_jobs < -1 or n_jobs == 0:
            raise ZooError(f"`hydra.launcher.n_jobs={n_jobs}` is neither -1 (one job a core) nor at least 1")
        self.sweep, self.folder, self.n_jobs = sweep, folder, n_jobs
        self.processes = JobProcesses()

    def run_jobs(self, numbers: Sequence[int]) -> None:
        """Run jobs that the sweep has, and wait for all of them."""
        cores = usable_cores()
        at_once = min(len(numbers), self.n_jobs if self.n_jobs > 0 else cores)
        # Each job would take all cores for its threads.
        environment = {"OMP_NUM_THREADS": str(max(1, cores // at_once))} if at_once > 1 else {}
        hydra_overrides = self.folder.read_record()["hydra_overrides"]
        self.command = JobCommand(
            self.sweep.loader.command, self.sweep.function, hydra_overrides, environment
        )
        self.folder.queue(numbers)
        with self.processes.handling_signals(), ThreadPoolExecutor(at_once) as pool:
            list(pool.map(self._run_job, numbers))

    def _run_job(self, number: int) -> None:
        """Run one job and wait for it, in a thread of the pool."""
        try:
            if self.processes.is_stopping:
                end = {"status": INTERRUPTED, "reason": "not started", "exit_status": INTERRUPTED_STATUS}
                self.folder.change_job(number, **end)
                return
            log = None if self.n_jobs == 1 else self.folder.log(number)
            where = "" if log is None else f" (output: {shown(log.absolute())})"
            say(f"zoo: job {number}: {format_overrides(self.folder.read_job(number).overrides)}{where}")
            run = functools.partial(self._run_once, log)
            result = run_sweep_job(self.folder, number, run, self.command.command)
        except (OSError, ZooError) as error:
            say(f"zoo: job {number}: it can't be run: {one_line(error)}")
            return
        if log is not None:
            say(f"zoo: job {number}: {result.message or result.status}")

    def _run_once(self, log: Path | None, overrides: list[str], lock: int | None) -> JobResult:
        if log is None:
            return self.command.run(self.processes, overrides, lock=lock)
        with open(log, "ab", buffering=0) as file:
            streams = {"stdout": file.fileno(), "stderr": subprocess.STDOUT}
            return self.command.run(self.processes, overrides, lock=lock, **streams)
