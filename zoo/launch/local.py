"""The jobs of a multirun on this machine, each in a process of its own.

A job that dies takes nobody with it, and what it leaves behind is ended. Each leads a session, so that Ctrl-C
reaches the launcher alone, which hands it on.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

from omegaconf import DictConfig

from zoo.config.paths import shown
from zoo.core.free_memory import usable_cores
from zoo.core.printing import one_line, say
from zoo.errors import INTERRUPTED, ZooError
from zoo.launch.jobs import FAILURE, Outcome, spelled
from zoo.launch.processes import Attempts
from zoo.launch.states import JobState
from zoo.launch.sweep import Sweep

_ENDINGS = {0: "done", INTERRUPTED: "interrupted"}


class LocalLauncher:
    """What ``hydra/launcher=local`` (one job after the other) and ``=joblib`` (side by side) stand for.

    ``n_jobs`` is the number of jobs at a time, -1 for one a core. Jobs side by side would print over each
    other: each prints to its log alone.
    """

    def __init__(self, n_jobs: int) -> None:
        self.n_jobs = n_jobs

    def setup(self, sweep: Sweep, config: DictConfig) -> None:
        """Take over what the jobs have in common."""
        if self.n_jobs < -1 or self.n_jobs == 0:
            raise ZooError(
                f"`hydra.launcher.n_jobs={self.n_jobs}` is neither -1 (one job a core) nor at least 1"
            )
        if sweep.settings.wait:
            raise ZooError("sweep.wait=true is for hydra/launcher=slurm: jobs on this machine are waited for")
        self.sweep, self.config = sweep, config

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


_COLOURS_AND_MOVES = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")

SECONDS_FOR_THE_REST = 2.0
"""What a job left behind may keep its output open; nobody waits for it longer."""


@contextlib.contextmanager
def shown_and_logged(log: Path) -> Iterator[tuple[int, int]]:
    """Give files for a job's stdout and stderr: what is written there appears on ours, and in the log.

    Where ours is a terminal the job sees one, too, so that it shows its progress bar; the log gets the lines
    as they stood last.
    """
    with open(log, "ab", buffering=0) as file:
        streams = [_Stream(shown, file) for shown in (1, 2)]
        try:
            yield streams[0].end, streams[1].end
        finally:
            sys.stdout.flush()
            for stream in streams:
                stream.finish()


class _Stream:
    """One of ours, ``shown``, with a thread that copies to it what comes from the job."""

    def __init__(self, shown: int, log: BinaryIO) -> None:
        self.shown, self.log = shown, log
        self._unfinished = b""
        self.is_terminal = _is_terminal(shown)
        if self.is_terminal:
            self._source, self.end = os.openpty()
            _take_over_size(shown, self.end)
        else:
            self._source, self.end = os.pipe()
        self._thread = threading.Thread(target=self._copy, daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Copy what is still to come."""
        os.close(self.end)
        self._thread.join(SECONDS_FOR_THE_REST)

    def _copy(self) -> None:
        # A terminal whose other end is closed is an error, a pipe's is the end of the file.
        with contextlib.suppress(OSError):
            while content := os.read(self._source, 2**16):
                with contextlib.suppress(OSError):  # nobody may be reading
                    _write_all(self.shown, content)
                with contextlib.suppress(OSError, ValueError):
                    self._log(content)
        with contextlib.suppress(OSError, ValueError):
            self.log.write(self._unfinished)
        os.close(self._source)

    def _log(self, content: bytes) -> None:
        if not self.is_terminal:
            self.log.write(content)
            return
        *lines, rest = (self._unfinished + content).split(b"\n")
        for line in lines:
            self.log.write(_as_it_stood_last(line) + b"\n")
        self._unfinished = rest[max(0, rest.rstrip(b"\r").rfind(b"\r")) :]


def _as_it_stood_last(line: bytes) -> bytes:
    """Return a terminal's line without what was written over, and without colours."""
    return _COLOURS_AND_MOVES.sub(b"", line.rstrip(b"\r").rpartition(b"\r")[2])


def _write_all(descriptor: int, content: bytes) -> None:
    while content:
        content = content[os.write(descriptor, content) :]


def _is_terminal(descriptor: int) -> bool:
    with contextlib.suppress(OSError):
        return os.isatty(descriptor)
    return False


def _take_over_size(source: int, target: int) -> None:
    with contextlib.suppress(ImportError, OSError):
        import fcntl
        import termios

        size = fcntl.ioctl(source, termios.TIOCGWINSZ, b"\0" * 8)
        fcntl.ioctl(target, termios.TIOCSWINSZ, size)
