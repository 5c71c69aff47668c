"""How the jobs of a sweep stand, for people: a table, and one line of counts."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from zoo.config.overrides import format_overrides
from zoo.core.printing import duration, one_line
from zoo.launch.sweep_folder import DONE, FAILED, KILLED, PREEMPTED, QUEUED, RUNNING, STATUSES, Row

if TYPE_CHECKING:
    from rich.text import Text

COLOURS = {DONE: "green", RUNNING: "cyan", FAILED: "red", KILLED: "red", PREEMPTED: "yellow"}

COLUMNS = ("job", "overrides", "state", "steps", "speed", "left", "score", "best", "time", "slurm", "reason")
TEXTS = ("overrides", "state", "slurm", "reason")


def jobs_table(rows: Sequence[Row]) -> Text:
    """Return the table; columns in which nothing stands are left out."""
    from rich.text import Text

    lines = [{name: name for name in COLUMNS}, *map(_cells, rows)]
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


def print_jobs(rows: Sequence[Row]) -> None:
    """Print the table, in a terminal with colours; it never breaks a line."""
    from rich.console import Console

    Console().print(jobs_table(rows), soft_wrap=True)


def counts(rows: Sequence[Row]) -> str:
    """Return how many jobs there are in each state."""
    by_status = Counter(row.status for row in rows)
    parts = [f"{by_status[status]} {status}" for status in STATUSES if by_status[status]]
    return f"{len(rows)} {'job' if len(rows) == 1 else 'jobs'}: {', '.join(parts)}"


def _cells(row: Row) -> dict[str, str]:
    state, run, is_running = row.state, row.run, row.status == RUNNING
    seconds = state.seconds + (time.time() - state.started if is_running and state.started else 0)
    cells = {
        "job": str(state.number),
        "overrides": one_line(format_overrides(state.overrides), 1000),
        "state": row.status,
        "time": duration(seconds) if seconds else "",
        "slurm": one_line(state.slurm_job or ""),
        "reason": row.reason,
    }
    if run is None:
        return cells
    total, speed = run.n_timesteps, run.steps_per_second
    if run.steps is not None:
        share = f" of {total:,} ({min(1.0, run.steps / total):.0%})" if total else ""
        cells["steps"] = f"{run.steps:,}{share}"
    if speed and row.status not in (QUEUED, PREEMPTED):
        cells["speed"] = f"{speed:,.0f}/s" if speed >= 10 else f"{speed:.2g}/s"
        if is_running and total and run.steps is not None:
            cells["left"] = duration(max(0.0, (total - run.steps) / speed))
    for name, score in (("score", run.score), ("best", run.best_score)):
        cells[name] = "" if score is None else f"{score:,.2f}"
    return cells
