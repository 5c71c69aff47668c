"""Which runs belong to which job: ``<runs_dir>/.jobs`` has a line for each run of a job with a name.

By it a job finds its run, and a sweep those of its jobs, without reading the files of all other runs.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from zoo.core import atomic
from zoo.core.file_lock import FileLock
from zoo.core.plain_data import parse_json


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
        """Return the run folders of each job, the newest last."""
        runs: dict[str, list[Path]] = {}
        with contextlib.suppress(OSError):
            for line in self.file.read_text(encoding="utf-8", errors="replace").splitlines():
                with contextlib.suppress(ValueError, TypeError):  # a line that a full disk has cut off
                    job, run = json.loads(line)
                    runs.setdefault(job, []).append(self.root / run)
            return runs
        # An earlier version of Zoo, which wrote no such file, put the job into the run's record alone.
        for record in sorted(self.root.glob("*/*/*/run.json"), key=lambda file: file.parent.name):
            with contextlib.suppress(OSError, ValueError):
                runs.setdefault(str(parse_json(record.read_bytes()).get("job")), []).append(record.parent)
        return runs

    def add(self, runs: Mapping[str, Path]) -> None:
        """Write down to which job each of these runs, below this folder, belongs."""
        earlier = {} if self.file.exists() else self.by_job()
        pairs = [*((job, run) for job, known in earlier.items() for run in known), *runs.items()]
        lines = (f"{json.dumps([job, str(run.relative_to(self.root))])}\n" for job, run in pairs)
        with open(self.file, "ab", buffering=0) as file:
            atomic.append(file, "".join(lines).encode())
