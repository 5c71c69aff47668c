"""`zoo status`: how the jobs of a sweep stand, while they run and afterwards, from any terminal."""

from __future__ import annotations

import time

from zoo.config.schema import StatusSettings
from zoo.core.printing import say
from zoo.launch.status_table import counts, jobs_table, print_jobs
from zoo.launch.sweep_folder import FAILED, KILLED, PREEMPTED, QUEUED, RUNNING, Row, SweepFolder

UNDER_WAY = (QUEUED, RUNNING, PREEMPTED)


def run(settings: StatusSettings) -> int:
    """Show the sweep in ``folder``, or the newest; return 1 if a job has failed."""
    path = settings.folder
    folder = SweepFolder.newest(settings.runs_dir) if path is None else SweepFolder.open(path)
    if settings.watch:
        rows = _watch(folder, settings.every)
    else:
        rows = folder.write_table()
        print_jobs(rows)
        say(f"{folder.shown}: {counts(rows)}")
    return int(any(row.status in (FAILED, KILLED) for row in rows))


def _watch(folder: SweepFolder, seconds: float) -> list[Row]:
    from rich.live import Live

    with Live(auto_refresh=False) as live:
        while True:
            rows = folder.write_table()
            live.update(jobs_table(rows).append(f"\n{folder.shown}: {counts(rows)}"), refresh=True)
            if not any(row.status in UNDER_WAY for row in rows):
                return rows
            time.sleep(seconds)
