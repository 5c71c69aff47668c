"""The process of a Slurm job that runs one job of a sweep, and sees to it that its end is written down.

What it runs is a process of its own: if that is killed, for its memory perhaps, this one says so. On the
signal that announces the time limit or a preemption the job ends with a checkpoint, to be queued again.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType
from typing import NoReturn

from zoo.core.printing import say
from zoo.errors import INTERRUPTED as INTERRUPTED_STATUS
from zoo.launch.folder import SweepFolder
from zoo.launch.jobs import Outcome, spelled
from zoo.launch.processes import Attempts, JobCommand
from zoo.launch.slurm import REQUEUE
from zoo.launch.states import INTERRUPTED, PREEMPTED, JobState

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)

SECONDS_BETWEEN_LOOKS = 2.0
"""How often a job looks whether another one has failed, where that ends the sweep."""


def main() -> NoReturn:
    """Run the job of the sweep in ``argv[1]`` that has the index of this Slurm job, and exit."""
    path, function, max_requeues = sys.argv[1:]
    sys.exit(_SlurmJob(SweepFolder.open(path), function, int(max_requeues)).run_to_the_end())


class _SlurmJob(Attempts):
    def __init__(self, folder: SweepFolder, function: str, max_requeues: int) -> None:
        record = folder.read_record()
        threads = os.environ.get("SLURM_CPUS_PER_TASK")
        environment = {} if threads is None else {"OMP_NUM_THREADS": threads}
        command = JobCommand(str(record["command"]), function, _hydra_overrides(record), environment)
        super().__init__(folder, command)
        self.number = int(os.environ["SLURM_ARRAY_TASK_ID"])
        self.restarts = int(os.environ.get("SLURM_RESTART_COUNT") or 0)
        self.may_be_requeued = self.restarts < max_requeues
        self.signal: str | None = None
        self.is_over = threading.Event()

    def run_to_the_end(self) -> int:
        """Run the job; return the exit status, `REQUEUE` if it goes on another time."""
        for number in SIGNALS:
            signal.signal(number, self._take)
        if self.folder.states.read(self.number).fail_fast:
            self._look_at_others()
            threading.Thread(target=self._watch_others, daemon=True).start()
        array = os.environ["SLURM_ARRAY_JOB_ID"]
        self.run(self.number, self._once, slurm_job=f"{array}_{self.number}", restarts=self.restarts)
        self.is_over.set()
        state = self.folder.states.read(self.number)
        return REQUEUE if state.status == PREEMPTED else state.exit_status or 0

    def _once(self, state: JobState, added: list[str], lock: int | None) -> Outcome:
        say(f"zoo: job {state.number}: {spelled(state.overrides)}")
        return self.command.run(self.running, state.overrides, added, lock=lock)

    def end_of(self, state: JobState, outcome: Outcome) -> dict[str, object]:
        end = super().end_of(state, outcome)
        if outcome.status != INTERRUPTED_STATUS or self.signal is None:
            return end
        if self.may_be_requeued:
            return {**end, "status": PREEMPTED, "reason": f"{self.signal}: it waits to be started again"}
        reason = f"{self.signal}; it was queued again {self.restarts} times (hydra.launcher.max_requeues)"
        return {**end, "status": INTERRUPTED, "reason": reason}

    def _take(self, number: int, frame: FrameType | None) -> None:
        self.signal = signal.Signals(number).name
        # The lock that this takes may be the one that the signal interrupted.
        threading.Thread(target=self.running.end, daemon=True).start()

    def _watch_others(self) -> None:
        while not self.running.is_ending and not self.is_over.wait(SECONDS_BETWEEN_LOOKS):
            self._look_at_others()

    def _look_at_others(self) -> None:
        """End this job, or let it not begin, if another one has failed."""
        if self.folder.has_failed():
            self.running.end("another job failed (sweep.fail_fast)")


def _hydra_overrides(record: dict[str, object]) -> list[str]:
    given = record.get("hydra_overrides")
    return [str(each) for each in given] if isinstance(given, list) else []
