"""Which runs belong to which job: ``<runs_dir>/.jobs`` has a line for each run of a job with a name."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from zoo.core import atomic
from zoo.core.file_lock import FileLock


class JobRuns:
    """The runs of all jobs below one folder of runs."""

    def __init__(self, runs_dir: str | Path) -> None:
        self.root = Path(runs_dir)
        self.file = self.root / ".jobs"

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Let no other process add a run within the block; where files can't be locked, do nothing."""
        lock = FileLock(self.root / ".jobs.lock")
        with contextlib.suppress(OSError):
            self.root.mkdir(parents=True, exist_ok=True)
            lock.acquire()
        try:
            yield
        finally:
            lock.release()

    def by_job(self) -> dict[str, list[Path]]:
        """Return the run folders of each job that were written down, the newest last."""
        runs: dict[str, list[Path]] = {}
        with contextlib.suppress(OSError):
            for line in self.file.read_text(encoding="utf-8", errors="replace").splitlines():
                with contextlib.suppress(ValueError, TypeError):  # a line that a full disk has cut off
                    job, run = json.loads(line)
                    runs.setdefault(job, []).append(self.root / run)
        return runs

    def add(self, job: str, run: Path) -> None:
        """Write down to which job a run below this folder belongs."""
        line = f"{json.dumps([job, str(run.relative_to(self.root))])}\n"
        with open(self.file, "ab", buffering=0) as file:
            atomic.append(file, line.encode())
