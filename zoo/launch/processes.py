"""The processes of jobs: how one is started and tried again, how it ended, and how all are ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType

from zoo.core.printing import first_and_last, one_line, say
from zoo.errors import INTERRUPTED as INTERRUPTED_STATUS
from zoo.launch.folder import SweepFolder, run_overrides
from zoo.launch.jobs import FAILURE, Outcome, spelled
from zoo.launch.states import DONE, FAILED, INTERRUPTED, KILLED, RUNNING, JobState, this_host


@dataclass(frozen=True)
class JobCommand:
    """What all jobs of a sweep share; ``function`` is ``module:name`` of what takes their configs."""

    command: str
    function: str
    hydra_overrides: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables for those that are not set."""

    def run(
        self,
        running: RunningJobs,
        overrides: Sequence[str],
        added: Sequence[str],
        *,
        lock: int | None,
        stdout: int | None = None,
        stderr: int | None = None,
    ) -> Outcome:
        """Run a job in a process of its own, wait for it, and return how it ended.

        ``added`` are overrides that its record does not show; ``lock`` is an open file that it keeps open.
        """
        with tempfile.TemporaryFile() as report:

            def start() -> subprocess.Popen[bytes]:
                kept_open = [report.fileno(), *([] if lock is None else [lock])]
                arguments = {
                    "command": self.command,
                    "function": self.function,
                    "overrides": [*self.hydra_overrides, *overrides, *added, "hydra.mode=RUN"],
                    "shown": [spelled([override]) for override in overrides],
                    "report": report.fileno(),
                    "inherited": kept_open,
                }
                return subprocess.Popen(
                    [sys.executable, "-c", _code(arguments)],
                    stdin=subprocess.PIPE,
                    stdout=stdout,
                    stderr=stderr,
                    env={**self.environment, **os.environ},
                    pass_fds=kept_open,
                    start_new_session=True,
                )

            status = running.run(start)
            report.seek(0)
            reported = report.read()
        if status is None:
            return Outcome(INTERRUPTED_STATUS, running.why or "not started")
        if reported:
            ended = Outcome(*json.loads(reported))
            return Outcome(INTERRUPTED_STATUS, running.why) if ended.status == INTERRUPTED_STATUS else ended
        if running.is_ending and status < 0:
            return Outcome(INTERRUPTED_STATUS, running.why)
        return Outcome(FAILURE, f"its process {death(status)}", was_killed=True)


def _code(arguments: Mapping[str, object]) -> str:
    # Before the job minds signals itself they end it, without a traceback. Those by which Slurm announces
    # an end reach all processes of a job; whoever started this one hands on what they mean.
    return (
        f"import sys; sys.path[:] = {sys.path!r};"
        " import signal; signal.signal(signal.SIGINT, signal.SIG_DFL);"
        " signal.signal(signal.SIGUSR1, signal.SIG_IGN); signal.signal(signal.SIGUSR2, signal.SIG_IGN);"
        f" from zoo.launch.jobs import main; main(**{arguments!r})"
    )


class RunningJobs:
    """The processes of the jobs that run now.

    ``is_ending`` once no more may start; ``why`` says what led to it, if no signal did.
    """

    def __init__(self) -> None:
        self.is_ending = False
        self.why = ""
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

    def end(self, why: str = "", number: int = signal.SIGTERM) -> None:
        """Let the jobs that run end after their update, and start no more."""
        with self._lock:
            if self.is_ending:
                return
            self.is_ending, self.why = True, why
            for process in list(self._processes):
                process.send_signal(number)

    @contextlib.contextmanager
    def heeding_signals(self) -> Iterator[None]:
        """Within the block a first signal is handed on and no more jobs start; a second Ctrl-C kills all."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._take) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _take(self, number: int, frame: FrameType | None) -> None:
        with self._lock:
            if not self.is_ending or self.why:
                is_first, self.why, self.is_ending = True, "", False
                self.end("", number)
            else:
                is_first = False
                if number == signal.SIGINT:
                    for process in list(self._processes):
                        _kill_session(process)
        if is_first:
            # Unlike print, this is safe wherever the signal interrupted the program.
            with contextlib.suppress(OSError):
                os.write(2, b"\nzoo: no more jobs will be started; Ctrl-C again ends all at once\n")


def _kill_session(leader: subprocess.Popen[bytes]) -> None:
    """Kill the process and what it has started, but for what leads a session of its own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader.pid, signal.SIGKILL)


def death(status: int) -> str:
    """Say how a process ended before it was done, by its exit status."""
    if status >= 0:
        return f"ended with exit status {status} before it was done"
    name = signal.Signals(-status).name
    return f"was killed by {name}{' (out of memory?)' if name == 'SIGKILL' else ''}"


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
