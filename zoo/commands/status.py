"""`zoo status`: how the jobs of a sweep stand, while they run and afterwards, from any terminal."""

from __future__ import annotations

import time

from zoo.config.schema import StatusSettings
from zoo.core.printing import say
from zoo.launch.status_table import counts, jobs_table, print_jobs
from zoo.launch.sweep_folder import FAILED, KILLED, PREEMPTED, QUEUED, RUNNING, JobState, SweepFolder

UNDER_WAY = (QUEUED, RUNNING, PREEMPTED)


def run(settings: StatusSettings) -> int:
    """Show the sweep in ``folder``, or the newest; return 1 if a job has failed."""
    path = settings.folder
    folder = SweepFolder.newest(settings.runs_dir) if path is None else SweepFolder.open(path)
    if settings.watch:
        jobs = _watch(folder, settings.every)
    else:
        jobs = folder.write_table()
        print_jobs(jobs)
        say(f"{folder.shown}: {counts(jobs)}")
    return int(any(job.status in (FAILED, KILLED) for job in jobs))


def _watch(folder: SweepFolder, seconds: float) -> list[JobState]:
    from rich.live import Live

    with Live(auto_refresh=False) as live:
        while True:
            jobs = folder.write_table()
            live.update(jobs_table(jobs).append(f"\n{folder.shown}: {counts(jobs)}"), refresh=True)
            if not any(job.status in UNDER_WAY for job in jobs):
                return jobs
            time.sleep(seconds)
