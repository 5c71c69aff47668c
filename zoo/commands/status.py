"""`zoo status`: how the jobs of a sweep stand, while they run and afterwards, from any terminal."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from zoo.core.printing import say
from zoo.launch.status_table import counts, jobs_table, print_jobs
from zoo.launch.sweep_folder import FAILED, KILLED, PREEMPTED, QUEUED, RUNNING, Row, SweepFolder

UNDER_WAY = (QUEUED, RUNNING, PREEMPTED)


def run(config: Mapping[str, Any]) -> int:
    """Show the sweep in ``folder``, or the newest; return 1 if a job has failed."""
    if config["folder"] is None:
        folder = SweepFolder.newest(config["runs_dir"])
    else:
        folder = SweepFolder.open(config["folder"])
    if config["watch"]:
        rows = _watch(folder, config["every"])
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
