"""A whole search by its config: the study, the processes that work on it, and the result."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zoo.config.environment_values import kept, resolved
from zoo.core.free_memory import usable_cores
from zoo.core.printing import say, without_password
from zoo.errors import INTERRUPTED, ZooError
from zoo.launch.processes import JobProcesses, describe_exit
from zoo.tuning.plan import Plan
from zoo.tuning.report import Result, result_of
from zoo.tuning.study import MOST_RETRIES, SharedStudy, n_claimed, new_worker_name, open_study, quiet_optuna

if TYPE_CHECKING:
    from typing_extensions import Self

MOST_DEATHS = MOST_RETRIES + 2
"""Processes that may die in a row while no new trial begins."""


@dataclass
class Search:
    """A study that was begun or found; use it as a context manager, which closes its storage.

    ``remarks`` are for the user.
    """

    plan: Plan
    shared: SharedStudy
    remarks: list[str]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.shared.storage.close()

    def run(self) -> bool:
        """Run the trials that are left; return False if a signal ended that. Raises `ZooError`."""
        with self.shared.storage.one_line_errors():
            return WorkerPool(self.plan, self.shared).run()

    def result(self) -> Result:
        """Return the result so far, and write it into the study's folder."""
        with self.shared.storage.one_line_errors():
            return result_of(self.plan, self.shared)


def search(config: Mapping[str, Any]) -> Search:
    """Begin or find the study of a config that `zoo.compose("tune", …)` returned. Raises `ZooError`."""
    plan = Plan(resolved(config))
    plan.check()
    return Search(plan, *open_study(plan))


def tune(config: Mapping[str, Any]) -> Result:
    """Run the search of a config that `zoo.compose("tune", …)` returned, and return its result.

    The same config again goes on with the study. Raises `ZooError`.
    """
    with search(config) as started:
        started.run()
        return started.result()


class WorkerPool:
    """Keeps ``n_jobs`` worker processes running until the study is over, and replaces those that die."""

    def __init__(self, plan: Plan, shared: SharedStudy) -> None:
        self.plan, self.shared = plan, shared
        self.running = JobProcesses()
        self.started = time.time()
        minutes = plan.deadline_minutes
        self.deadline = None if minutes is None else self.started + 60 * minutes
        self.errors: list[str] = []

    def run(self) -> bool:
        """Run the study to its end; return False if a signal ended it before. Raises `ZooError`."""
        cores = usable_cores()
        n_jobs = self.plan.config["n_jobs"]
        n_jobs = cores if n_jobs == -1 else n_jobs
        # By default each process would use all cores for its threads.
        self.environment = {"OMP_NUM_THREADS": str(max(1, cores // n_jobs))} if n_jobs > 1 else {}
        with self.running.handling_signals(), ThreadPoolExecutor(n_jobs) as threads:
            statuses = list(threads.map(lambda _: self._keep_one_running(), range(n_jobs)))
        if self.errors:
            raise ZooError(self.errors[0])
        return INTERRUPTED not in statuses

    def _keep_one_running(self) -> int:
        """Keep one worker running until nothing is left to do; return its exit status."""
        n_deaths = n_before = 0
        while True:
            status, message = self._run_worker()
            if message is not None:
                self.errors += [message] if message else []
                return status
            if self.running.is_stopping or self.errors:
                return INTERRUPTED
            say(f"zoo: a process {describe_exit(status)}; another one goes on", sys.stderr)
            with quiet_optuna():
                n_now = n_claimed(self.shared.study)
            n_deaths, n_before = (n_deaths + 1 if n_now == n_before else 1), n_now
            if n_deaths >= MOST_DEATHS:
                self.errors.append(
                    f"{n_deaths} processes died one after the other; the last {describe_exit(status)}"
                )
                return status

    def _run_worker(self) -> tuple[int, str | None]:
        """Run a worker to its end; return its status and its error, "" for none, None if it died."""
        job = {
            "config": self.plan.config,
            "variables": kept(),
            "name": new_worker_name(),
            "started": self.started,
            "deadline": self.deadline,
            "arguments": [without_password(argument) for argument in sys.argv],
        }
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as report:
            given.write(json.dumps(job).encode())
            given.flush()
            given.seek(0)
            status = self._run_process(given.fileno(), report.fileno())
            report.seek(0)
            reported = report.read()
        if status is None:
            return INTERRUPTED, ""
        if not reported:
            return status, None
        ended: tuple[int, str] = tuple(json.loads(reported))
        return ended

    def _run_process(self, given: int, report: int) -> int | None:
        # Until the worker handles signals itself they end it, without a traceback.
        code = (
            f"import sys; sys.path[:] = {sys.path!r};"
            " import signal; signal.signal(signal.SIGINT, signal.SIG_DFL);"
            f" from zoo.tuning.worker import main; main({given}, {report})"
        )
        environment = {**self.environment, **os.environ}
        return self.running.run([sys.executable, "-c", code], env=environment, pass_fds=[given, report])
