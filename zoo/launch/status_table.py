"""How the jobs of a sweep stand, for people: a table, and one line of counts."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from zoo.config.overrides import format_overrides
from zoo.core.printing import duration, one_line
from zoo.launch.sweep_folder import DONE, FAILED, KILLED, PREEMPTED, QUEUED, RUNNING, STATUSES, JobState

if TYPE_CHECKING:
    from rich.text import Text

COLOURS = {DONE: "green", RUNNING: "cyan", FAILED: "red", KILLED: "red", PREEMPTED: "yellow"}

COLUMNS = ("job", "overrides", "state", "steps", "speed", "left", "score", "best", "time", "slurm", "reason")
TEXTS = ("overrides", "state", "slurm", "reason")


def jobs_table(jobs: Sequence[JobState]) -> Text:
    """Return the table; columns in which nothing stands are left out."""
    from rich.text import Text

    lines = [{name: name for name in COLUMNS}, *map(_cells, jobs)]
    columns = []
    for name in COLUMNS:
        cells = [line.get(name, "") for line in lines]
        width = max(map(len, cells))
        if any(cells[1:]):
            columns.append([cell.ljust(width) if name in TEXTS else cell.rjust(width) for cell in cells])
    text = Text("\n".join("  ".join(cells).rstrip() for cells in zip(*columns, strict=True)))
    for status, colour in COLOURS.items():
        text.highlight_regex(rf"(?<=  ){status}(?=  |$)", colour)
    return text


def print_jobs(jobs: Sequence[JobState]) -> None:
    """Print the table, in a terminal with colours; it never breaks a line."""
    from rich.console import Console

    Console().print(jobs_table(jobs), soft_wrap=True)


def counts(jobs: Sequence[JobState]) -> str:
    """Return how many jobs there are in each state."""
    by_status = Counter(job.status for job in jobs)
    parts = [f"{by_status[status]} {status}" for status in STATUSES if by_status[status]]
    return f"{len(jobs)} {'job' if len(jobs) == 1 else 'jobs'}: {', '.join(parts)}"


def _cells(job: JobState) -> dict[str, str]:
    run, is_running = job.run, job.status == RUNNING
    seconds = job.seconds + (time.time() - job.started if is_running and job.started else 0)
    cells = {
        "job": str(job.number),
        "overrides": one_line(format_overrides(job.overrides), 1000),
        "state": job.status,
        "time": duration(seconds) if seconds else "",
        "slurm": job.slurm_job or "",
        "reason": job.reason,
    }
    if run is None:
        return cells
    total, speed = run.n_timesteps, run.steps_per_second
    if run.steps is not None:
        share = f" of {total:,} ({min(1.0, run.steps / total):.0%})" if total else ""
        cells["steps"] = f"{run.steps:,}{share}"
    if speed and job.status not in (QUEUED, PREEMPTED):
        cells["speed"] = f"{speed:,.0f}/s" if speed >= 10 else f"{speed:.2g}/s"
        if is_running and total and run.steps is not None:
            cells["left"] = duration(max(0.0, (total - run.steps) / speed))
    for name, score in (("score", run.score), ("best", run.best_score)):
        cells[name] = "" if score is None else f"{score:,.2f}"
    return cells
