"""Running one job of a sweep, again if it failed and may be tried again; all that happens is written down."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from zoo.config.jobs import FAILURE, Outcome
from zoo.config.sweeps.folder import SweepFolder, run_overrides
from zoo.config.sweeps.processes import JobCommand, RunningJobs
from zoo.config.sweeps.states import DONE, FAILED, INTERRUPTED, KILLED, RUNNING, JobState, this_host
from zoo.errors import INTERRUPTED as INTERRUPTED_STATUS
from zoo.files.printing import first_and_last, one_line, say

Run = Callable[[JobState, list[str], int | None], Outcome]
"""Runs a job once, with overrides that are added to its own, and a lock to keep."""


@dataclass
class Attempts:
    """Runs the jobs of ``folder``, one or several at a time, in processes of their own."""

    folder: SweepFolder
    command: JobCommand
    running: RunningJobs = field(default_factory=RunningJobs)

    def run(self, number: int, once: Run, **values: object) -> Outcome:
        """Run a job until it is done, interrupted, or has failed for good; return how it ended.

        ``values`` are written down with its start.
        """
        with self.folder.states.held(str(number)) as lock:
            outcome = self._until_it_ends(number, once, lock, values)
        self.folder.write_table()
        return outcome

    def _until_it_ends(self, number: int, once: Run, lock: int | None, values: dict[str, object]) -> Outcome:
        state = self.folder.states.read(number)
        added = run_overrides(self.folder, self.command.command, number, state.overrides)
        while True:
            if not self.running.is_ending:
                state = self.folder.change(
                    number, status=RUNNING, started=time.time(), host=this_host(), reason="", **values
                )
            outcome = once(state, added, lock)
            state = self.folder.states.read(number)
            if outcome.status != FAILURE or not state.retries_left or self.running.is_ending:
                break
            say(
                f"zoo: job {number}: {one_line(outcome.message)};"
                f" it is tried again ({state.retries_left} left)"
            )
            values = {
                "seconds": state.seconds_so_far(),
                "retries": state.retries + 1,
                "retries_left": state.retries_left - 1,
            }
        self.folder.states.change(number, **self.end_of(state, outcome))
        if state.fail_fast and outcome.status not in (0, INTERRUPTED_STATUS):
            self.running.end(f"job {number} failed (sweep.fail_fast)")
        return outcome

    def end_of(self, state: JobState, outcome: Outcome) -> dict[str, object]:
        status = FAILED
        if outcome.status in (0, INTERRUPTED_STATUS):
            status = INTERRUPTED if outcome.status else DONE
        elif outcome.was_killed:
            status = KILLED
        return {
            "status": status,
            "reason": one_line(first_and_last(outcome.message), 500),
            "exit_status": outcome.status,
            "seconds": state.seconds_so_far(),
            "started": None,
        }
