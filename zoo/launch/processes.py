"""The processes of jobs: starting one and trying it again, how it ended, and ending all of them."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import NoReturn

from zoo.config.compose import ConfigLoader
from zoo.config.overrides import format_overrides
from zoo.core.printing import first_and_last, one_line, say, show, without_password
from zoo.errors import INTERRUPTED as INTERRUPTED_STATUS
from zoo.errors import MISTAKE, ZooError
from zoo.launch.job import run_job
from zoo.launch.sweep_folder import (
    DONE,
    FAILED,
    FAILURE,
    INTERRUPTED,
    KILLED,
    RUNNING,
    JobState,
    SweepFolder,
)


@dataclass
class JobResult:
    """How a job ended: its exit status and, if it failed, why; ``was_killed`` if its process just died."""

    exit_status: int
    message: str = ""
    was_killed: bool = False


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
        processes: JobProcesses,
        overrides: Sequence[str],
        hidden_overrides: Sequence[str],
        *,
        lock: int | None,
        stdout: int | None = None,
        stderr: int | None = None,
    ) -> JobResult:
        """Run a job in a process of its own, wait for it, and return how it ended.

        ``hidden_overrides`` are those that its record does not show; ``lock`` is an open file that it keeps
        open.
        """
        with tempfile.TemporaryFile() as report:
            kept_open = [report.fileno(), *([] if lock is None else [lock])]
            arguments = {
                "command": self.command,
                "function": self.function,
                "overrides": [*self.hydra_overrides, *overrides, *hidden_overrides, "hydra.mode=RUN"],
                "shown_overrides": [format_overrides([override]) for override in overrides],
                "report": report.fileno(),
                "inherited": kept_open,
            }
            status = processes.run(
                [sys.executable, "-c", _python_code(arguments)],
                stdout=stdout,
                stderr=stderr,
                env={**self.environment, **os.environ},
                pass_fds=kept_open,
            )
            report.seek(0)
            reported = report.read()
        if status is None:
            return JobResult(INTERRUPTED_STATUS, processes.reason or "not started")
        if reported:
            result = JobResult(*json.loads(reported))
            was_interrupted = result.exit_status == INTERRUPTED_STATUS
            return JobResult(INTERRUPTED_STATUS, processes.reason) if was_interrupted else result
        if processes.is_stopping and status < 0:
            return JobResult(INTERRUPTED_STATUS, processes.reason)
        return JobResult(FAILURE, f"its process {describe_exit(status)}", was_killed=True)


def _python_code(arguments: Mapping[str, object]) -> str:
    # Until the job handles signals itself they end it, without a traceback. Those by which Slurm announces
    # an end reach all processes of a job; the one that started this one passes on what they mean.
    return (
        f"import sys; sys.path[:] = {sys.path!r};"
        " import signal; signal.signal(signal.SIGINT, signal.SIG_DFL);"
        " signal.signal(signal.SIGUSR1, signal.SIG_IGN); signal.signal(signal.SIGUSR2, signal.SIG_IGN);"
        f" from zoo.launch.processes import run_in_this_process; run_in_this_process(**{arguments!r})"
    )


def run_in_this_process(
    command: str,
    function: str,
    overrides: Sequence[str],
    shown_overrides: Sequence[str],
    report: int,
    inherited: Sequence[int],
) -> NoReturn:
    """Run a job, write into the open file ``report`` how it ended, and exit with its status.

    ``shown_overrides`` are those by which the run's record calls it; what the job starts gets none of the
    files that are ``inherited``.
    """
    for descriptor in inherited:
        os.set_inheritable(descriptor, False)
    sys.argv = ["zoo", command, *shown_overrides]
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    end_with_parent()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        result = JobResult(run_job(ConfigLoader(command), function, overrides))
    except ZooError as error:
        result = JobResult(MISTAKE, without_password(str(error)))
        say(f"zoo: {result.message}", sys.stderr)
    except KeyboardInterrupt:
        result = JobResult(INTERRUPTED_STATUS)
    except Exception as error:
        show(traceback.format_exc(), end="", file=sys.stderr, flush=True)
        result = JobResult(FAILURE, f"{type(error).__name__}: {error}")
    with open(report, "w", encoding="utf-8") as file:
        json.dump([result.exit_status, result.message], file)
    sys.exit(result.exit_status)


def end_with_parent() -> None:
    """From now on end by SIGTERM when standard input closes, whose other end the parent process holds."""

    def wait() -> None:
        os.read(sys.stdin.fileno(), 1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


class JobProcesses:
    """The processes of the jobs that run now; each leads a session, so that Ctrl-C reaches ours alone.

    ``is_stopping`` once no more may start; ``reason`` says why, if it was no signal.
    """

    def __init__(self) -> None:
        self.is_stopping = False
        self.reason = ""
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.RLock()  # a second signal may come while the first is passed on

    def run(self, command: Sequence[str], **options: object) -> int | None:
        """Run a command until it ends; return its exit status, or None if no more may start.

        ``options`` are those of `subprocess.Popen`. What it left behind in its session is killed.
        """
        with self._lock:
            if self.is_stopping:
                return None
            process: subprocess.Popen[bytes] = subprocess.Popen(  # type: ignore[call-overload]
                command, stdin=subprocess.PIPE, start_new_session=True, **options
            )
            self._processes.add(process)
        status = process.wait()
        with self._lock:
            self._processes.remove(process)
        _kill_session(process)
        assert process.stdin is not None
        process.stdin.close()
        return status

    def stop(self, reason: str = "", number: int = signal.SIGTERM) -> None:
        """Let the jobs that run end after their update, and start no more."""
        with self._lock:
            if self.is_stopping:
                return
            self.is_stopping, self.reason = True, reason
            for process in list(self._processes):
                process.send_signal(number)

    @contextlib.contextmanager
    def handling_signals(self) -> Iterator[None]:
        """Within the block a first signal is passed on and no more jobs start; a second Ctrl-C kills all."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self._on_signal) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        with self._lock:
            is_first = not self.is_stopping or self.reason != ""
            if is_first:
                self.is_stopping = False
                self.stop(number=number)
            elif number == signal.SIGINT:
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


def describe_exit(status: int) -> str:
    """Say how a process ended before it was done, by its exit status."""
    if status >= 0:
        return f"ended with exit status {status} before it was done"
    name = signal.Signals(-status).name
    return f"was killed by {name}{' (out of memory?)' if name == 'SIGKILL' else ''}"


RunOnce = Callable[[JobState, list[str], int | None], JobResult]
"""Runs a job once, with hidden overrides beside its own, and a lock to keep open."""


@dataclass
class JobRunner:
    """Runs the jobs of a sweep, one or several at a time, each until it is done or has failed for good."""

    folder: SweepFolder
    command: JobCommand
    processes: JobProcesses = field(default_factory=JobProcesses)

    def run(self, number: int, run_once: RunOnce, **values: object) -> JobResult:
        """Run a job, again where it failed and has retries left; return how it ended.

        ``values`` are written down with its start.
        """
        with self.folder.hold(str(number)) as lock:
            state = self.folder.read_job(number)
            hidden_overrides = self.folder.run_overrides(self.command.command, state)
            while True:
                if not self.processes.is_stopping:
                    values |= {"status": RUNNING, "started": time.time(), "host": platform.node()}
                    state = self.folder.change_job(number, reason="", **values)
                    self.folder.write_table()
                result = run_once(state, hidden_overrides, lock)
                state = self.folder.read_job(number)
                if result.exit_status != FAILURE or not state.retries_left or self.processes.is_stopping:
                    break
                message = one_line(result.message)
                say(f"zoo: job {number}: {message}; it is tried again ({state.retries_left} left)")
                values = {
                    "seconds": state.total_seconds(),
                    "retries": state.retries + 1,
                    "retries_left": state.retries_left - 1,
                }
            self.folder.change_job(number, **self.end_of(state, result))
            if state.fail_fast and result.exit_status not in (0, INTERRUPTED_STATUS):
                self.processes.stop(f"job {number} failed (sweep.fail_fast)")
        self.folder.write_table()
        return result

    def end_of(self, state: JobState, result: JobResult) -> dict[str, object]:
        """Return what is written down of a job that has ended."""
        ended = {0: DONE, INTERRUPTED_STATUS: INTERRUPTED}.get(result.exit_status, FAILED)
        return {
            "status": KILLED if result.was_killed else ended,
            "reason": one_line(first_and_last(result.message), 500),
            "exit_status": result.exit_status,
            "seconds": state.total_seconds(),
            "started": None,
        }
