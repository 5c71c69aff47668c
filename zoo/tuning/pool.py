"""The processes of a study on this machine: as many as trials run at a time, each replaced if it dies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from zoo.config.environment_values import kept
from zoo.config.sweeps.processes import RunningJobs
from zoo.errors import INTERRUPTED, ZooError
from zoo.files.printing import say, without_password
from zoo.tuning.plan import Plan
from zoo.tuning.shared_study import SharedStudy, new_worker_name
from zoo.tuning.study import has_claimed_any
from zoo.tuning.try_folders import remove_try

MOST_DEATHS = 3
"""Processes that may die one after the other before they have claimed a trial."""


class Pool:
    """Runs what is left of a study; `interrupted` tells whether a signal ended that."""

    def __init__(self, plan: Plan, shared: SharedStudy) -> None:
        self.plan, self.shared = plan, shared
        self.running = RunningJobs()
        self.started = time.time()
        minutes = plan.deadline_minutes
        self.deadline = None if minutes is None else self.started + 60 * minutes
        self.mistakes: list[str] = []

    def run(self) -> bool:
        """Run it to its end and return whether it came there; False: a signal ended it.

        Raises `ZooError` for what stopped the study.
        """
        cores = len(os.sched_getaffinity(0))
        n_jobs = self.plan.config["n_jobs"]
        n_jobs = cores if n_jobs == -1 else n_jobs
        # Each trial would take all cores for its threads.
        self.environment = {"OMP_NUM_THREADS": str(max(1, cores // n_jobs))} if n_jobs > 1 else {}
        with self.running.heeding_signals(), ThreadPoolExecutor(n_jobs) as threads:
            statuses = list(threads.map(self._keep_one_at_work, range(n_jobs)))
        if self.mistakes:
            raise ZooError(self.mistakes[0])
        return INTERRUPTED not in statuses

    def _keep_one_at_work(self, index: int) -> int:
        """Keep one process at work until nothing is left to do; in a thread of its own."""
        n_deaths = 0
        while True:
            name = new_worker_name()
            status, message = self._work(name)
            remove_try(self.plan.folder, name)
            if message is not None:
                self.mistakes += [message] if message else []
                return status
            if self.running.is_ending or self.mistakes:
                return INTERRUPTED
            # Those that died of a trial come to an end: it has failed, or does after a few times.
            n_deaths = 0 if self._record_death(name, status) else n_deaths + 1
            if n_deaths >= MOST_DEATHS:
                self.mistakes.append(
                    f"{n_deaths} processes one after the other died before their first trial;"
                    f" the last one {_death(status)}"
                )
                return status

    def _work(self, name: str) -> tuple[int, str | None]:
        """Start a process and wait; return its status and its message: None if it died before it told one."""
        job = {
            "config": self.plan.config,
            "variables": kept(),
            "name": name,
            "started": self.started,
            "deadline": self.deadline,
            "shown": [without_password(argument) for argument in sys.argv],
        }
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as report:
            given.write(json.dumps(job).encode())
            given.flush()
            given.seek(0)
            status = self.running.run(lambda: self._process(given.fileno(), report.fileno()))
            report.seek(0)
            reported = report.read()
        if status is None:
            return INTERRUPTED, ""
        if not reported:
            return status, None
        ended: tuple[int, str] = tuple(json.loads(reported))
        return ended

    def _process(self, given: int, report: int) -> subprocess.Popen[bytes]:
        # Before the process minds signals itself they end it, without a traceback.
        code = (
            f"import sys; sys.path[:] = {sys.path!r};"
            " import signal; signal.signal(signal.SIGINT, signal.SIG_DFL);"
            f" from zoo.tuning.worker import main; main({given}, {report})"
        )
        environment: dict[str, Any] = {**self.environment, **os.environ}
        return subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            env=environment,
            pass_fds=[given, report],
            start_new_session=True,
        )

    def _record_death(self, name: str, status: int) -> bool:
        """Record what the process was running as failed; return whether it had claimed anything."""
        self.shared.fail_of_dead(name, f"its process {_death(status)}")
        has_claimed = has_claimed_any(name, self.plan, self.shared)
        what = "a trial failed: its process" if has_claimed else "a process"
        say(f"zoo: {what} {_death(status)}; another process goes on", sys.stderr)
        return has_claimed


def _death(status: int) -> str:
    if status >= 0:
        return f"ended with exit status {status} before it was done"
    import signal

    name = signal.Signals(-status).name
    return f"was killed by {name}{' (out of memory?)' if name == 'SIGKILL' else ''}"
