"""The jobs of a multirun on this machine, each in a process of its own.

A job that dies takes no other with it, and what it leaves behind is ended.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

from zoo.config.overrides import format_overrides
from zoo.config.paths import shown
from zoo.core.free_memory import usable_cores
from zoo.core.printing import one_line, say
from zoo.errors import INTERRUPTED, ZooError
from zoo.launch.processes import JobCommand, JobResult, JobRunner
from zoo.launch.sweep import Sweep
from zoo.launch.sweep_folder import JobState, SweepFolder


class LocalLauncher:
    """The launcher ``hydra/launcher=local`` (one job after the other) and ``=joblib`` (side by side).

    ``n_jobs`` is the number of jobs at a time, -1 for one a core. Jobs side by side would print over each
    other: each prints to its log alone.
    """

    def __init__(self, sweep: Sweep, folder: SweepFolder, n_jobs: int) -> None:
        if n_jobs < -1 or n_jobs == 0:
            raise ZooError(f"`hydra.launcher.n_jobs={n_jobs}` is neither -1 (one job a core) nor at least 1")
        if sweep.settings.wait:
            raise ZooError("sweep.wait=true is for hydra/launcher=slurm: jobs on this machine are waited for")
        self.sweep, self.folder, self.n_jobs = sweep, folder, n_jobs

    def run_jobs(self, numbers: Sequence[int]) -> None:
        """Run jobs that the sweep has, and wait for all of them."""
        cores = usable_cores()
        at_once = min(len(numbers), self.n_jobs if self.n_jobs > 0 else cores)
        # Each job would take all cores for its threads.
        environment = {"OMP_NUM_THREADS": str(max(1, cores // at_once))} if at_once > 1 else {}
        hydra_overrides = self.folder.read_record()["hydra_overrides"]
        command = JobCommand(self.sweep.loader.command, self.sweep.function, hydra_overrides, environment)
        self.runner: JobRunner = JobRunner(self.folder, command)
        with (
            self.folder.hold_for_launcher(numbers),
            self.runner.processes.handling_signals(),
            ThreadPoolExecutor(at_once) as pool,
        ):
            self.sweep.queue(self.folder, numbers)
            list(pool.map(self._run_job, numbers))

    def _run_job(self, number: int) -> None:
        """Run one job and wait for it, in a thread of the pool."""
        try:
            result = self.runner.run(number, self._run_once)
        except (OSError, ZooError) as error:
            say(f"zoo: job {number}: it can't be run: {one_line(error)}")
            return
        if self.n_jobs != 1:
            ending = {0: "done", INTERRUPTED: "interrupted"}.get(result.exit_status, "failed")
            say(f"zoo: job {number}: {result.message or ending}")

    def _run_once(self, state: JobState, hidden_overrides: list[str], lock: int | None) -> JobResult:
        log, processes = self.folder.log(state.number), self.runner.processes
        where = "" if self.n_jobs == 1 else f" (output: {shown(log.absolute())})"
        if not processes.is_stopping:
            say(f"zoo: job {state.number}: {format_overrides(state.overrides)}{where}")
        with contextlib.ExitStack() as opened:
            if self.n_jobs == 1:
                stdout, stderr = opened.enter_context(printed_and_logged(log))
            else:
                file = opened.enter_context(open(log, "ab", buffering=0))
                stdout, stderr = file.fileno(), subprocess.STDOUT
            return self.runner.command.run(
                processes, state.overrides, hidden_overrides, lock=lock, stdout=stdout, stderr=stderr
            )


@contextlib.contextmanager
def printed_and_logged(log: Path) -> Iterator[tuple[int, int]]:
    """Give files for a job's stdout and stderr: what is written there appears on ours, and in the log.

    Where ours is a terminal the job sees one, too, so that it shows its progress bar; the log gets each line
    as it stood last.
    """
    with open(log, "ab", buffering=0) as file:
        copies = [_OutputCopy(descriptor, file) for descriptor in (1, 2)]
        try:
            yield copies[0].job_end, copies[1].job_end
        finally:
            sys.stdout.flush()
            for copy in copies:
                copy.finish()


class _OutputCopy:
    """A thread that copies what a job writes to ``job_end`` to one of our streams, and to its log."""

    SECONDS_TO_DRAIN = 2.0
    """How long `finish` waits for output that something keeps open which a job left behind."""

    def __init__(self, descriptor: int, log: BinaryIO) -> None:
        self.descriptor, self.log = descriptor, log
        self._unfinished_line = b""
        self.is_terminal = os.isatty(descriptor)
        self._our_end, self.job_end = os.openpty() if self.is_terminal else os.pipe()
        if self.is_terminal:
            window_size = fcntl.ioctl(descriptor, termios.TIOCGWINSZ, b"\0" * 8)
            fcntl.ioctl(self.job_end, termios.TIOCSWINSZ, window_size)
        self._thread = threading.Thread(target=self._copy, daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Copy what is still to come."""
        os.close(self.job_end)
        self._thread.join(self.SECONDS_TO_DRAIN)

    def _copy(self) -> None:
        # A terminal whose other end is closed is an error, a pipe's is the end of the file.
        with contextlib.suppress(OSError), open(self.descriptor, "wb", buffering=0, closefd=False) as stream:
            while content := os.read(self._our_end, 2**16):
                with contextlib.suppress(OSError):  # nobody may be reading
                    unwritten = content
                    while unwritten:
                        unwritten = unwritten[stream.write(unwritten) or 0 :]
                with contextlib.suppress(OSError, ValueError):
                    self._log(content)
        with contextlib.suppress(OSError, ValueError):
            self.log.write(self._unfinished_line)
        os.close(self._our_end)

    def _log(self, content: bytes) -> None:
        if not self.is_terminal:
            self.log.write(content)
            return
        *lines, rest = (self._unfinished_line + content).split(b"\n")
        for line in lines:
            final_text = line.rstrip(b"\r").rpartition(b"\r")[2]
            self.log.write(re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", final_text) + b"\n")
        self._unfinished_line = rest[max(0, rest.rstrip(b"\r").rfind(b"\r")) :]
