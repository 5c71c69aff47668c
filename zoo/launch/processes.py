"""Jobs and their processes: running one here or in a process of its own, how it ended, and ending all."""

from __future__ import annotations

import contextlib
import json
import os
import pkgutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from zoo.config.compose import ConfigLoader
from zoo.config.overrides import format_overrides
from zoo.config.user_files import shown
from zoo.core.printing import first_and_last, one_line, prepare_streams, say, show, without_password
from zoo.errors import INTERRUPTED as INTERRUPTED_STATUS
from zoo.errors import MISTAKE, ZooError
from zoo.launch.sweep_folder import DONE, FAILED, FAILURE, INTERRUPTED, KILLED, RUNNING, JobState, SweepFolder


def run_job(loader: ConfigLoader, function: str, overrides: Sequence[str]) -> int:
    """Run one job in this process and return its exit status. Raises what the job raises.

    ``function`` is ``module:name`` of what takes `ConfigLoader.settings` and returns its exit status, or None
    for 0.
    """
    settings = loader.settings(overrides)  # what is wrong in it is told before a command is imported
    return pkgutil.resolve_name(function)(settings) or 0


def run_reported_job(command: str, function: str, overrides: Sequence[str]) -> tuple[int, str]:
    """Run a job; return its exit status and the message of an error, which is printed too."""
    arguments = (override for override in overrides if not override.startswith("hydra"))
    sys.argv = ["zoo", command, *(format_overrides([override]) for override in arguments)]
    try:
        return run_job(ConfigLoader(command), function, overrides), ""
    except ZooError as error:
        message = without_password(str(error))
        say(f"zoo: {message}", sys.stderr)
        return MISTAKE, message
    except KeyboardInterrupt:
        return INTERRUPTED_STATUS, ""
    except Exception as error:
        show(traceback.format_exc(), end="", file=sys.stderr, flush=True)
        return FAILURE, f"{type(error).__name__}: {error}"


def python_program(code: str) -> str:
    """Return a program for ``python -c`` that finds the modules that we find, and then runs ``code``."""
    # Until it handles signals itself they end it, without a traceback. Those by which Slurm announces an end
    # reach all processes of a job; the one that started this one passes on what they mean.
    return (
        f"import sys; sys.path[:] = {sys.path!r};"
        " import signal; signal.signal(signal.SIGINT, signal.SIG_DFL);"
        " signal.signal(signal.SIGUSR1, signal.SIG_IGN); signal.signal(signal.SIGUSR2, signal.SIG_IGN);"
        f" {code}"
    )


def call_and_exit(target: str, job: int) -> NoReturn:
    """Call ``module:name`` with the JSON in the open file ``job``; leave status and message there; exit.

    Ends by SIGTERM once standard input closes, whose other end the parent process holds.
    """
    function = pkgutil.resolve_name(target)
    prepare_streams()
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def end_with_parent() -> None:
        os.read(sys.stdin.fileno(), 1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end_with_parent, daemon=True).start()
    with open(job, "r+", encoding="utf-8") as file:
        status, message = function(**json.load(file))
        file.seek(0)
        file.truncate()
        json.dump([status, message], file)
    sys.exit(status)


@contextlib.contextmanager
def handling_signals(handler: Callable[[int, FrameType | None], None], *numbers: int) -> Iterator[None]:
    """Handle these signals within the block; outside the main thread, where Python has none, do nothing."""
    with contextlib.ExitStack() as restoring:
        if threading.current_thread() is threading.main_thread():
            for number in numbers:
                restoring.callback(signal.signal, number, signal.signal(number, handler))
        yield


class JobProcesses:
    """The processes of the jobs that run now, each in a session; no more may start if ``is_stopping``."""

    def __init__(self) -> None:
        self.is_stopping = False
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.RLock()  # a second signal may come while the first is passed on

    def run(
        self,
        function: str,
        arguments: Mapping[str, object],
        environment: Mapping[str, str],
        *,
        log: Path | None = None,
        lock: int | None = None,
    ) -> tuple[int, str | None]:
        """Call ``module:name`` in a Python of its own; return the status and message that it returned.

        The message is None for a process that died. What it left behind in its session is killed. Its output
        goes to ``log``, and it keeps the file ``lock`` open.
        """
        with (
            tempfile.TemporaryFile("w+", encoding="utf-8") as job,
            contextlib.nullcontext() if log is None else open(log, "ab", buffering=0) as stdout,
        ):
            json.dump(arguments, job)
            job.seek(0)
            call = f"call_and_exit({function!r}, {job.fileno()})"
            code = python_program(f"from zoo.launch.processes import call_and_exit; {call}")
            with self._lock:
                if self.is_stopping:
                    return INTERRUPTED_STATUS, "not started"
                process = subprocess.Popen(
                    [sys.executable, "-u", "-c", code],
                    env=environment,
                    stdin=subprocess.PIPE,
                    stdout=stdout,
                    stderr=None if log is None else subprocess.STDOUT,
                    pass_fds=[job.fileno(), *([] if lock is None else [lock])],
                    start_new_session=True,
                )
                self._processes.add(process)
            with process:  # closes its standard input
                status = process.wait()
                with self._lock:
                    self._processes.remove(process)
                _kill_session(process)
            job.seek(0)
            reported = json.load(job)  # the arguments still, if it died
        return (reported[0], reported[1]) if isinstance(reported, list) else (status, None)

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Let the jobs that run end after their update, and start no more."""
        with self._lock:
            self.is_stopping = True
            for process in list(self._processes):
                process.send_signal(number)

    def handling_signals(self) -> contextlib.AbstractContextManager[None]:
        """Within the block a first signal is passed on and no more jobs start; a second Ctrl-C kills all."""
        return handling_signals(self._on_signal, signal.SIGINT, signal.SIGTERM)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        with self._lock:
            if not self.is_stopping:
                self.stop(number)
                # Unlike print, this is safe wherever the signal interrupted the program.
                with contextlib.suppress(OSError):
                    os.write(2, b"\nzoo: no more jobs will be started; Ctrl-C again ends all at once\n")
            elif number == signal.SIGINT:
                for process in list(self._processes):
                    _kill_session(process)


def _kill_session(leader: subprocess.Popen[bytes]) -> None:
    """Kill a process and its descendants, except those in other process groups."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader.pid, signal.SIGKILL)


def describe_exit(status: int) -> str:
    """Say how a process ended before it was done, by its exit status."""
    if status >= 0:
        return f"ended with exit status {status} before it was done"
    name = signal.Signals(-status).name
    return f"was killed by {name}{' (out of memory?)' if name == 'SIGKILL' else ''}"


class JobRunner:
    """Runs jobs of a sweep in processes of their own, with ``environment`` beside the variables there are."""

    def __init__(self, folder: SweepFolder, function: str, environment: Mapping[str, str]) -> None:
        self.folder, self.function = folder, function
        self.environment = {**environment, **os.environ}
        record = folder.read_record()
        self.command, self.hydra_overrides = record["command"], record["hydra_overrides"]
        self.processes = JobProcesses()

    def run(self, number: int, log: Path | None = None, **values: object) -> JobState:
        """Run a job, which prints to ``log``, and return how it ended; ``values`` are written down first."""
        with self.folder.hold(str(number)) as lock:
            started = time.time()
            state = self.folder.change_job(number, status=RUNNING, started=started, reason="", **values)
            ties = self.folder.run_overrides(self.command, state)
            overrides = [*self.hydra_overrides, *state.overrides, *ties, "hydra.mode=RUN"]
            job = {"command": self.command, "function": self.function, "overrides": overrides}
            target = "zoo.launch.processes:run_reported_job"
            exit_status, reason = self.processes.run(target, job, self.environment, log=log, lock=lock)
            status = {0: DONE, INTERRUPTED_STATUS: INTERRUPTED}.get(exit_status, FAILED)
            if reason is None and self.processes.is_stopping and exit_status < 0:
                status, exit_status, reason = INTERRUPTED, INTERRUPTED_STATUS, ""
            elif reason is None:
                status, exit_status, reason = KILLED, FAILURE, f"its process {describe_exit(exit_status)}"
            if status == INTERRUPTED:
                status, reason = self.interruption(reason)
            return self.folder.end_job(
                number,
                status,
                reason=one_line(first_and_last(reason), 500),
                exit_status=exit_status,
                seconds=state.seconds + time.time() - started,
            )

    def run_and_report(self, number: int, log: Path | None = None) -> None:
        """Run a job unless no more may start; say which it is and how it ended, never raise an error."""
        try:
            if self.processes.is_stopping:
                end = {"status": INTERRUPTED, "reason": "not started", "exit_status": INTERRUPTED_STATUS}
                self.folder.change_job(number, **end)
                return
            where = "" if log is None else f" (output: {shown(log)})"
            say(f"zoo: job {number}: {format_overrides(self.folder.read_job(number).overrides)}{where}")
            state = self.run(number, log)
        except (OSError, ZooError) as error:
            say(f"zoo: job {number}: it can't be run: {one_line(error)}")
            return
        if log is not None:
            say(f"zoo: job {number}: {state.reason or state.status}")

    def interruption(self, reason: str) -> tuple[str, str]:
        """Return status and reason of a job that was interrupted."""
        return INTERRUPTED, reason
