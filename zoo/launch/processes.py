"""Jobs and their processes: running one here or in a process of its own, how it ended, and ending all."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import NoReturn

from hydra.types import RunMode
from omegaconf import OmegaConf

from zoo.config.compose import ConfigLoader
from zoo.config.overrides import format_overrides
from zoo.core.printing import first_and_last, one_line, say, show, without_password
from zoo.errors import INTERRUPTED as INTERRUPTED_STATUS
from zoo.errors import MISTAKE, ZooError
from zoo.launch.sweep_folder import DONE, FAILED, FAILURE, INTERRUPTED, KILLED, RUNNING, SweepFolder


def run_job(loader: ConfigLoader, function: str, overrides: Sequence[str]) -> int:
    """Run one job in this process and return its exit status. Raises what the job raises.

    ``function`` is ``module:name`` of what takes the job's config and returns its exit status, or None for 0.
    """
    config = loader.load_configuration(overrides, RunMode.RUN)
    job_config = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    module, _, name = function.partition(":")
    return getattr(importlib.import_module(module), name)(job_config) or 0


@dataclass(frozen=True)
class JobResult:
    """How a job ended: its exit status, what is written down of it, and why."""

    exit_status: int
    message: str = ""
    status: str = FAILED


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
        *,
        lock: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
    ) -> JobResult:
        """Run a job in a process of its own, wait for it, and return how it ended.

        ``lock`` is an open file that it keeps open.
        """
        with tempfile.TemporaryFile() as report:
            kept_open = [report.fileno(), *([] if lock is None else [lock])]
            arguments = {
                "command": self.command,
                "function": self.function,
                "overrides": [*self.hydra_overrides, *overrides, "hydra.mode=RUN"],
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
            return JobResult(INTERRUPTED_STATUS, "not started", INTERRUPTED)
        if reported:
            exit_status, message = json.loads(reported)
            ended = {0: DONE, INTERRUPTED_STATUS: INTERRUPTED}.get(exit_status, FAILED)
            return JobResult(exit_status, message, ended)
        if processes.is_stopping and status < 0:
            return JobResult(INTERRUPTED_STATUS, status=INTERRUPTED)
        return JobResult(FAILURE, f"its process {describe_exit(status)}", KILLED)


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
    message = ""
    try:
        status = run_job(ConfigLoader(command), function, overrides)
    except ZooError as error:
        status, message = MISTAKE, without_password(str(error))
        say(f"zoo: {message}", sys.stderr)
    except KeyboardInterrupt:
        status = INTERRUPTED_STATUS
    except Exception as error:
        show(traceback.format_exc(), end="", file=sys.stderr, flush=True)
        status, message = FAILURE, f"{type(error).__name__}: {error}"
    with open(report, "w", encoding="utf-8") as file:
        json.dump([status, message], file)
    sys.exit(status)


def end_with_parent() -> None:
    """From now on end by SIGTERM when standard input closes, whose other end the parent process holds."""

    def wait() -> None:
        os.read(sys.stdin.fileno(), 1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


class JobProcesses:
    """The processes of the jobs that run now; each leads a session, so that Ctrl-C reaches ours alone.

    ``is_stopping`` once no more may start.
    """

    def __init__(self) -> None:
        self.is_stopping = False
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

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Let the jobs that run end after their update, and start no more."""
        with self._lock:
            self.is_stopping = True
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
            if not self.is_stopping:
                self.stop(number)
                # Unlike print, this is safe wherever the signal interrupted the program.
                with contextlib.suppress(OSError):
                    os.write(2, b"\nzoo: no more jobs will be started; Ctrl-C again ends all at once\n")
            elif number == signal.SIGINT:
                for process in list(self._processes):
                    _kill_session(process)


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


def run_sweep_job(
    folder: SweepFolder,
    number: int,
    run: Callable[[list[str], int | None], JobResult],
    command: str,
    **values: object,
) -> JobResult:
    """Run a job of a sweep; write down its start, with these ``values``, and how it ended.

    ``run`` takes the job's overrides and a lock to keep open.
    """
    with folder.hold(str(number)) as lock:
        state = folder.read_job(number)
        started = time.time()
        folder.change_job(number, status=RUNNING, started=started, reason="", **values)
        folder.write_table()
        result = run([*state.overrides, *folder.run_overrides(command, state)], lock)
        result = replace(result, message=one_line(first_and_last(result.message), 500))
        folder.change_job(
            number,
            status=result.status,
            reason=result.message,
            exit_status=result.exit_status,
            seconds=state.seconds + time.time() - started,
            started=None,
        )
    folder.write_table()
    return result
