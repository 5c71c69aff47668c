"""How the jobs of a sweep stand, for people: a table, and one line of counts."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from zoo.config.overrides import format_overrides
from zoo.core.printing import duration, one_line
from zoo.launch.sweep_folder import DONE, FAILED, KILLED, PREEMPTED, QUEUED, RUNNING, STATUSES, Row

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

COLOURS = {DONE: "green", RUNNING: "cyan", FAILED: "red", KILLED: "red", PREEMPTED: "yellow"}

WIDTH_OF_A_FILE = 200
"""Where nobody looks at a terminal, columns of it are no reason to break lines."""


def print_table(rows: Sequence[Row]) -> None:
    """Print the jobs that have ended, or not, with their scores and reasons."""
    console().print(jobs_table(rows))


def console() -> Console:
    """Return what prints tables on stdout."""
    from rich.console import Console

    is_terminal = sys.stdout.isatty()
    return Console(
        file=sys.stdout,
        width=None if is_terminal else WIDTH_OF_A_FILE,
        highlight=False,
        markup=False,
        emoji=False,
    )


def jobs_table(rows: Sequence[Row]) -> Table:
    """Return the table; columns in which nothing stands are left out."""
    from rich.table import Table
    from rich.text import Text

    columns = {name: [cell(row) for row in rows] for name, cell in _COLUMNS.items()}
    table = Table(box=None, pad_edge=False, header_style="bold")
    names = [name for name, cells in columns.items() if any(cells)]
    for name in names:
        is_number = name in _NUMBERS
        table.add_column(name, justify="right" if is_number else "left", no_wrap=is_number, overflow="fold")
    for number, row in enumerate(rows):
        style = COLOURS.get(row.status, "")
        cells = [Text(columns[name][number], style if name == "state" else "") for name in names]
        table.add_row(*cells)
    return table


def counts(rows: Sequence[Row]) -> str:
    """Return how many jobs there are in each state."""
    found = Counter(row.status for row in rows)
    parts = [f"{found[status]} {status}" for status in STATUSES if found[status]]
    return f"{len(rows)} {'job' if len(rows) == 1 else 'jobs'}: {', '.join(parts)}"


def _steps(row: Row) -> str:
    if row.run is None or row.run.steps is None:
        return ""
    steps, n_timesteps = row.run.steps, row.run.n_timesteps
    if not n_timesteps:
        return f"{steps:,}"
    return f"{steps:,} of {n_timesteps:,} ({min(1.0, steps / n_timesteps):.0%})"


def _speed(row: Row) -> str:
    speed = None if row.run is None else row.run.steps_per_second
    if speed is None or row.status in (QUEUED, PREEMPTED):
        return ""
    return f"{speed:,.0f}/s" if speed >= 10 else f"{speed:.2g}/s"


def _time_left(row: Row) -> str:
    run = row.run
    if run is None or row.status != RUNNING or not run.steps_per_second:
        return ""
    if run.steps is None or run.n_timesteps is None:
        return ""
    return duration(max(0.0, (run.n_timesteps - run.steps) / run.steps_per_second))


def _elapsed(row: Row) -> str:
    seconds = row.state.total_seconds() if row.status == RUNNING else row.state.seconds
    return duration(seconds) if seconds else ""


def _score(row: Row, name: str) -> str:
    value: Any = None if row.run is None else getattr(row.run, name)
    return "" if value is None else f"{value:,.2f}"


_COLUMNS: dict[str, Callable[[Row], str]] = {
    "job": lambda row: str(row.state.number),
    "overrides": lambda row: one_line(format_overrides(row.state.overrides), 1000),
    "state": lambda row: row.status,
    "steps": _steps,
    "speed": _speed,
    "left": _time_left,
    "score": lambda row: _score(row, "score"),
    "best": lambda row: _score(row, "best_score"),
    "time": _elapsed,
    "slurm": lambda row: one_line(row.state.slurm_job or ""),
    "requeued": lambda row: f"{row.state.restarts} ×" if row.state.restarts else "",
    "reason": lambda row: row.reason,
}

_NUMBERS = ("job", "steps", "speed", "left", "score", "best", "time")
