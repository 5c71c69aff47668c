"""A whole search by its config: the study, the processes that work on it, and the result."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from zoo.config.compose import compose
from zoo.config.environment_values import as_written, resolved
from zoo.config.overrides import as_overrides
from zoo.core.free_memory import usable_cores
from zoo.core.printing import say, without_password
from zoo.errors import INTERRUPTED, MISTAKE, ZooError
from zoo.launch.processes import JobProcesses, describe_exit
from zoo.tuning.report import Result, result_of
from zoo.tuning.study import Plan, open_study

MOST_DEATHS = 20
"""Study processes that may die, each replaced by another, before the search ends."""


def tune(config: Mapping[str, Any] | str | None = None, *overrides: str, **settings: Any) -> Result:
    """Search as `zoo tune` does, or go on with a search; overrides and settings as `zoo.train` takes them.

    The result shows the best trials. Raises `ZooError`.
    """
    if not isinstance(config, Mapping):
        typed = [] if config is None else [config]
        config = compose("tune", [*typed, *overrides, *as_overrides(settings)])
    search = Search(config)
    search.run()
    return result_of(search.plan, search.shared)


class Search:
    """A study that was begun or found; ``remarks`` are for the user. Raises `ZooError`."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.plan = Plan(resolved(config))
        self.plan.check()
        self.shared, self.remarks = open_study(self.plan)
        self._processes = JobProcesses()
        self._errors: list[str] = []

    def run(self) -> bool:
        """Keep ``n_jobs`` study processes running; return False if a signal ended them. Raises `ZooError`."""
        cores, timeout = usable_cores(), self.plan.timeout
        n_jobs = cores if self.plan.config["n_jobs"] == -1 else self.plan.config["n_jobs"]
        deadline = None if timeout is None else time.time() + timeout
        # By default each process would use all cores for its threads.
        variables = {"OMP_NUM_THREADS": str(max(1, cores // n_jobs))} if n_jobs > 1 else {}
        with self._processes.handling_signals(), ThreadPoolExecutor(n_jobs) as threads:
            jobs = [threads.submit(self._keep_one_running, deadline, variables) for _ in range(n_jobs)]
            statuses = [job.result() for job in jobs]
        if self._errors:
            raise ZooError(self._errors[0])
        return INTERRUPTED not in statuses

    def _keep_one_running(self, deadline: float | None, variables: Mapping[str, str]) -> int:
        """Keep one study process running until nothing is left to do; return its exit status."""
        environment, status = {**variables, **os.environ}, 0
        job = {
            "config": as_written(self.plan.config),
            "deadline": deadline,
            "arguments": [without_password(argument) for argument in sys.argv],
        }
        for _ in range(MOST_DEATHS):
            status, message = self._processes.run("zoo.tuning.study_process:work", job, environment)
            if message is not None:
                self._errors += [message] if status == MISTAKE else []
                return status
            if self._processes.is_stopping or self._errors:
                return INTERRUPTED
            say(f"zoo: a process {describe_exit(status)}; another one goes on", sys.stderr)
        self._errors.append(f"{MOST_DEATHS} processes died; the last {describe_exit(status)}")
        return INTERRUPTED
