"""The jobs of a multirun on this machine, each in a process of its own.

A job that dies takes nobody with it, and what it leaves behind is ended. Each leads a session, so that Ctrl-C
reaches the launcher alone, which hands it on.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from hydra.plugins.launcher import Launcher
from omegaconf import DictConfig

from zoo.config.hydra_internals import JobReturn, completed
from zoo.config.jobs import FAILURE, Outcome, spelled
from zoo.config.paths import shown
from zoo.config.sweeps.attempts import Attempts
from zoo.config.sweeps.folder import TakenError
from zoo.config.sweeps.output import shown_and_logged
from zoo.config.sweeps.states import JobState
from zoo.config.sweeps.sweep import Sweep
from zoo.errors import INTERRUPTED, ZooError
from zoo.files.free_memory import usable_cores
from zoo.files.printing import one_line, say

_ENDINGS = {0: "done", INTERRUPTED: "interrupted"}


class LocalLauncher(Launcher):
    """What ``hydra/launcher=basic`` (one job after the other) and ``=joblib`` (side by side) stand for.

    ``n_jobs`` is the number of jobs at a time, -1 for one a core. Jobs side by side would print over each
    other: each prints to its log alone.
    """

    def __init__(self, n_jobs: int) -> None:
        self.n_jobs = n_jobs

    def setup(self, *, hydra_context: Any, task_function: Any, config: DictConfig) -> None:
        """Take over what the jobs have in common."""
        if self.n_jobs < -1 or self.n_jobs == 0:
            raise ZooError(
                f"`hydra.launcher.n_jobs={self.n_jobs}` is neither -1 (one job a core) nor at least 1"
            )
        assert isinstance(task_function, Sweep)
        if task_function.settings.wait:
            raise ZooError("sweep.wait=true is for hydra/launcher=slurm: jobs on this machine are waited for")
        self.sweep = task_function
        self.config = config
        self.sweep.begin(config)

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run the jobs and return how each of them ended, in their order."""
        numbers = self.sweep.add_jobs(self.config, job_overrides, initial_job_idx)
        try:
            outcomes = self.run_jobs(numbers)
        except TakenError:
            raise
        except ZooError:  # before the first of them was started
            if initial_job_idx == 0 and self.sweep.folder is not None:
                self.sweep.folder.discard()
            raise
        return [completed(each, outcome) for each, outcome in zip(job_overrides, outcomes, strict=True)]

    def run_jobs(self, numbers: Sequence[int]) -> list[Outcome]:
        """Run jobs that the sweep has; return how each of them ended."""
        assert self.sweep.folder is not None
        cores = usable_cores()
        at_once = min(len(numbers), self.n_jobs if self.n_jobs > 0 else cores)
        # Each job would take all cores for its threads.
        environment = {"OMP_NUM_THREADS": str(max(1, cores // at_once))} if at_once > 1 else {}
        self.attempts: Attempts = self.sweep.attempts(self.config, environment)
        with (
            self.sweep.folder.taken(numbers),
            self.attempts.running.heeding_signals(),
            ThreadPoolExecutor(at_once) as pool,
        ):
            self.sweep.prepare(numbers)
            return list(pool.map(self._run, numbers))

    def _run(self, number: int) -> Outcome:
        """Run one job and wait for it, in a thread of the pool."""
        once, is_told = (self._run_shown if self.n_jobs == 1 else self._run_aside), False
        try:
            outcome = self.attempts.run(number, once)
        except OSError as error:
            outcome = Outcome(FAILURE, f"it can't be started: {one_line(error)}")
        except ZooError as error:
            outcome = Outcome(FAILURE, str(error))
        else:
            is_told = self.n_jobs == 1  # by the job itself
        if not is_told:
            say(f"zoo: job {number}: {outcome.message or _ENDINGS.get(outcome.status, 'failed')}")
        return outcome

    def _run_shown(self, state: JobState, added: list[str], lock: int | None) -> Outcome:
        self._announce(state, "")
        with shown_and_logged(self.attempts.folder.log(state.number)) as (stdout, stderr):
            return self.attempts.command.run(
                self.attempts.running, state.overrides, added, lock=lock, stdout=stdout, stderr=stderr
            )

    def _run_aside(self, state: JobState, added: list[str], lock: int | None) -> Outcome:
        log = self.attempts.folder.log(state.number)
        self._announce(state, f" (output: {shown(log.absolute())})")
        with open(log, "ab", buffering=0) as file:
            return self.attempts.command.run(
                self.attempts.running,
                state.overrides,
                added,
                lock=lock,
                stdout=file.fileno(),
                stderr=subprocess.STDOUT,
            )

    def _announce(self, state: JobState, where: str) -> None:
        if not self.attempts.running.is_ending:
            say(f"zoo: job {state.number}: {spelled(state.overrides)}{where}")
