"""The jobs of a multirun on this machine, each in a process of its own.

A job that dies takes nobody with it, and what it leaves behind is ended. Each leads a session, so that Ctrl-C
reaches the launcher alone, which hands it on.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO

from hydra.plugins.launcher import Launcher
from omegaconf import DictConfig

from zoo.config.hydra_internals import JobReturn, completed
from zoo.config.jobs import FAILURE, Job, Outcome, spelled
from zoo.errors import INTERRUPTED, ZooError
from zoo.files.printing import say

_ENDINGS = {0: "done", INTERRUPTED: "interrupted"}


class LocalLauncher(Launcher):
    """What ``hydra/launcher=basic`` (one job after the other) and ``=joblib`` (side by side) stand for.

    ``n_jobs`` is the number of jobs at a time, -1 for one a core. Jobs side by side would print over each
    other: each has a file for what it prints.
    """

    def __init__(self, n_jobs: int) -> None:
        self.n_jobs = n_jobs

    def setup(self, *, hydra_context: Any, task_function: Any, config: DictConfig) -> None:
        """Take over what the jobs have in common."""
        if self.n_jobs < -1 or self.n_jobs == 0:
            raise ZooError(
                f"`hydra.launcher.n_jobs={self.n_jobs}` is neither -1 (one job a core) nor at least 1"
            )
        assert isinstance(task_function, Job)
        self.function = task_function.function
        self.config = config
        self.running = RunningJobs()

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run the jobs and return how each of them ended, in their order."""
        if not job_overrides:
            raise ZooError("the sweep has no jobs: one of its ranges or lists is empty")
        cores = len(os.sched_getaffinity(0))
        at_once = min(len(job_overrides), self.n_jobs if self.n_jobs > 0 else cores)
        # Each job would take all cores for its threads.
        self.environment = {"OMP_NUM_THREADS": str(max(1, cores // at_once))} if at_once > 1 else {}
        numbers = range(initial_job_idx, initial_job_idx + len(job_overrides))
        with self.running.heeding_signals(), ThreadPoolExecutor(at_once) as pool:
            outcomes = list(pool.map(self._run, numbers, job_overrides))
        return [completed(each, outcome) for each, outcome in zip(job_overrides, outcomes, strict=True)]

    def _run(self, number: int, overrides: Sequence[str]) -> Outcome:
        """Run one job and wait for it, in a thread of the pool."""
        try:
            if self.n_jobs == 1:
                return self._run_printing_to(None, number, overrides)
            log = Path(self.config.hydra.sweep.dir, f"{number}.log")
            with open(log, "wb") as file:
                outcome = self._run_printing_to(file, number, overrides)
        except OSError as error:
            return Outcome(FAILURE, f"it can't be started: {error}")
        say(f"zoo: job {number}: {outcome.message or _ENDINGS.get(outcome.status, 'failed')}")
        return outcome

    def _run_printing_to(self, log: BinaryIO | None, number: int, overrides: Sequence[str]) -> Outcome:
        with tempfile.TemporaryFile() as report:

            def start() -> subprocess.Popen[bytes]:
                where = "" if log is None else f" (output: {log.name})"
                say(f"zoo: job {number}: {spelled(overrides)}{where}")
                return self._process(overrides, log, report.fileno())

            status = self.running.run(start)
            report.seek(0)
            reported = report.read()
        if status is None:
            return Outcome(INTERRUPTED, "not started")
        if reported:
            return Outcome(*json.loads(reported))
        if self.running.is_ending and status < 0:
            return Outcome(INTERRUPTED)
        return Outcome(FAILURE, f"its process {_death(status)}")

    def _process(
        self, overrides: Sequence[str], log: BinaryIO | None, report: int
    ) -> subprocess.Popen[bytes]:
        hydra = self.config.hydra
        arguments = {
            "command": str(hydra.job.config_name),
            "function": self.function,
            "overrides": [*map(str, hydra.overrides.hydra), *overrides, "hydra.mode=RUN"],
            "shown": [spelled([override]) for override in overrides],
            "report": report,
        }
        # Before the job minds signals itself they end it, without a traceback.
        code = (
            f"import sys; sys.path[:] = {sys.path!r};"
            " import signal; signal.signal(signal.SIGINT, signal.SIG_DFL);"
            f" from zoo.config.job_process import main; main(**{arguments!r})"
        )
        return subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=None if log is None else subprocess.STDOUT,
            env={**self.environment, **os.environ},
            pass_fds=[report],
            start_new_session=True,
        )


class RunningJobs:
    """The processes of the jobs that run now; ``is_ending`` once no more may start."""

    def __init__(self) -> None:
        self.is_ending = False
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.RLock()  # a second signal may come while the first is handed on

    def run(self, start: Callable[[], subprocess.Popen[bytes]]) -> int | None:
        """Start a process and wait until it ends; return its status, or None if it may not start any more.

        What it has started itself, and left behind in its session, is killed.
        """
        with self._lock:
            if self.is_ending:
                return None
            process = start()
            self._processes.add(process)
        status = process.wait()
        with self._lock:
            self._processes.remove(process)
        _kill_session(process)
        assert process.stdin is not None
        process.stdin.close()
        return status

    @contextlib.contextmanager
    def heeding_signals(self) -> Iterator[None]:
        """Within the block a first signal is handed on and no more jobs start; a second Ctrl-C kills all."""
        before = {number: signal.signal(number, self._end) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _end(self, number: int, frame: FrameType | None) -> None:
        with self._lock:
            is_second, self.is_ending = self.is_ending, True
            for process in list(self._processes):
                if not is_second:
                    process.send_signal(number)
                elif number == signal.SIGINT:
                    _kill_session(process)
        if not is_second:
            # Unlike print, this is safe wherever the signal interrupted the program.
            with contextlib.suppress(OSError):
                os.write(2, b"\nzoo: no more jobs will be started; Ctrl-C again ends all at once\n")


def _kill_session(leader: subprocess.Popen[bytes]) -> None:
    """Kill the process and what it has started, but for what leads a session of its own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader.pid, signal.SIGKILL)


def _death(status: int) -> str:
    if status >= 0:
        return f"ended with exit status {status} before it was done"
    name = signal.Signals(-status).name
    return f"was killed by {name}{' (out of memory?)' if name == 'SIGKILL' else ''}"
