"""Where a run's scalars go: what a logger is, and the two that everybody needs, console and progress.csv."""

from __future__ import annotations

import contextlib
import csv
import itertools
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TextIO

from zoo.files import atomic
from zoo.files.printing import csv_lines, one_line, show
from zoo.files.zips import move_aside
from zoo.training.problems import tell

STEPS = "time/total_timesteps"
"""The scalar that is the x-axis everywhere."""


@dataclass
class Report:
    """What there is to say about a run at one moment."""

    timesteps: int
    scalars: dict[str, float]
    spent: dict[str, float] = field(default_factory=dict)
    """What the time since the last report was spent on, in seconds."""
    note: str | None = None


@dataclass(frozen=True)
class Ending:
    """How a run ended."""

    status: str
    """``finished``, ``preempted`` (it may be resumed) or ``failed``."""
    timesteps: int
    evaluation: Mapping[str, Any] = field(default_factory=dict)
    """The last evaluation, as ``run.json`` gives it: ``mean_return``, ``n_episodes``, …; or nothing."""
    best_mean: float | None = None
    """Mean return of the best agent, if any was evaluated."""
    agent: Path | None = None
    """The folder of the best agent, else of the last one, if one was saved."""


class Logger:
    """One place to which reports go, a tracker; override what is needed.

    Whatever it raises is told in one line and never ends a training: it is then switched off, unless it
    ``keeps_trying``. What needs a slow import does it at the first report.
    """

    keeps_trying: ClassVar[bool] = False
    """Whether it is asked again after an `OSError` or `ZooError`, such as one of a full disk."""

    def start(self, folder: Path, config: Mapping[str, Any]) -> None:
        """Take a run's folder and its config; before everything else, in every process of the run."""

    def write(self, report: Report) -> None:
        """Take one report."""

    def video(self, name: str, path: Path, timesteps: int) -> None:
        """Take a video that was filmed after so many environment steps."""

    def histograms(self, tensors: Mapping[str, Any], timesteps: int) -> None:
        """Take the policy's parameters, arrays by name, if it asked for them."""

    def flush(self) -> None:
        """Show or send what is still waiting: the training has come to its end."""

    def conclude(self, ending: Ending) -> None:
        """Take how the run ended, once its agent is saved."""

    def close(self) -> None:
        """Finish what is open; a later report opens it again."""

    def state(self) -> dict[str, Any]:
        """Return plain values from which a resumed run goes on where this one is now.

        A checkpoint will hold them: what they count on in files is forced to the disk first.
        """
        return {}

    def load_state(self, values: dict[str, Any]) -> None:
        """Go back to where `state` returned these."""


class ConsoleLogger(Logger):
    """Prints a table, but not more often than every ``seconds``; one may then tell of several reports."""

    keeps_trying = True

    def __init__(self, *, seconds: float = 2.0, stream: TextIO | None = None) -> None:
        self.seconds = seconds
        self.stream = stream
        self._unprinted: Report | None = None
        self._printed: float | None = None

    def write(self, report: Report) -> None:
        self._unprinted = report if self._unprinted is None else _merged(self._unprinted, report)
        now = time.perf_counter()
        if self._printed is None or now - self._printed >= self.seconds:
            self._printed = now
            self.flush()

    def flush(self) -> None:
        """Print what has not been printed yet."""
        if self._unprinted is not None:
            show(table(self._unprinted), file=self.stream or sys.stdout, flush=True)
            self._unprinted = None

    close = flush


def _merged(earlier: Report, later: Report) -> Report:
    """Return the later report with what only the earlier one says, and the time spent of both."""
    spent = {name: seconds + earlier.spent.get(name, 0.0) for name, seconds in later.spent.items()}
    return Report(later.timesteps, {**earlier.scalars, **later.scalars}, spent, later.note)


def table(report: Report) -> str:
    """Return a report as text: scalars by group, how the time divides, and the note."""
    groups: dict[str, dict[str, str]] = {}
    for name, value in report.scalars.items():
        group, _, key = name.rpartition("/")
        groups.setdefault(group, {})[key] = formatted(value)
    rows: list[tuple[str, str]] = []
    for group in sorted(groups):
        rows.append((f"{group}/", ""))
        rows += [(f"   {key}", groups[group][key]) for key in sorted(groups[group])]
    total = sum(report.spent.values())
    if total > 0:
        rows.append(("share of time/", ""))
        rows += [(f"   {name}", f"{seconds / total:.0%}") for name, seconds in report.spent.items()]
    width = max(len(key) for key, _ in rows)
    value_width = max(len(value) for _, value in rows)
    line = "-" * (width + value_width + 7)
    body = [f"| {key:<{width}} | {value:<{value_width}} |" for key, value in rows]
    return "\n".join([line, *body, line, *([report.note] if report.note else [])])


def formatted(value: float) -> str:
    """Return a number with four significant digits, whole numbers in full."""
    if isinstance(value, int) or (abs(value) >= 1e4 and abs(value) < 1e15):
        return f"{value:.0f}"
    return f"{value:.4g}"


class CsvLogger(Logger):
    """Appends one row a report to a CSV file, with a column for every scalar that has ever come.

    A file that can't be read is moved aside, and another one begun.
    """

    keeps_trying = True

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._columns: list[str] | None = None
        self._n_rows = 0

    def write(self, report: Report) -> None:
        columns = self._known_columns()
        new = sorted(report.scalars.keys() - columns)
        if new:
            columns = [STEPS, *sorted({*columns, *new} - {STEPS})]
            self._rewrite(columns, [*self._rows(), dict(report.scalars)])
        else:
            self._append(columns, report.scalars)
        self._n_rows += 1

    def state(self) -> dict[str, Any]:
        columns = self._known_columns()
        with contextlib.suppress(FileNotFoundError):
            atomic.sync(self.path)
        return {"columns": columns, "rows": self._n_rows}

    def load_state(self, values: dict[str, Any]) -> None:
        columns, n_rows = values["columns"], values["rows"]
        rows = self._rows(columns, n_rows) if n_rows else []
        if len(rows) < n_rows:
            reports = f"{len(rows)} of the {n_rows} reports"
            tell(f"{self.path} holds {reports} before the checkpoint; the run goes on")
        if columns:
            self._rewrite(columns, rows)
        else:
            self.path.unlink(missing_ok=True)
            self._columns = []
        self._n_rows = len(rows)

    def _known_columns(self) -> list[str]:
        """Return the columns of the file, which may be there from an earlier call of `learn`."""
        if self._columns is None:
            rows = self._rows()
            self._columns, self._n_rows = list(rows[0]) if rows else [], len(rows)
        return self._columns

    def _rows(self, columns: Sequence[str] = (STEPS,), limit: int | None = None) -> list[dict[str, str]]:
        """Return the first rows of the file, by ``columns`` and others; none, if it can't be read."""
        try:
            table = csv.DictReader(self._lines(None if limit is None else limit + 1))
            rows = list(table)
            if not set(columns) <= set(table.fieldnames or columns):
                raise ValueError("columns are missing")
            for number, row in enumerate(rows, start=1):
                if None in row or None in row.values() or any("\0" in value for value in row.values()):
                    raise ValueError(f"row {number} is not one of values for the columns")
        except FileNotFoundError:
            return []
        except (ValueError, csv.Error) as error:
            aside = move_aside(self.path)
            tell(
                f"{self.path} is damaged ({one_line(error)}): it is {aside.name} now, and another one begins"
            )
            return []
        return rows

    def _lines(self, limit: int | None) -> Iterator[str]:
        """Give the first whole lines of the file, one at a time."""
        with open(self.path, "rb") as file:
            for line in itertools.islice(file, limit):
                if not line.endswith(b"\n"):
                    return
                yield line.decode()

    def _rewrite(self, columns: list[str], rows: list[Any]) -> None:
        atomic.write_text(self.path, _as_csv([columns], columns, rows))
        self._columns = columns

    def _append(self, columns: list[str], row: Mapping[str, Any]) -> None:
        with open(self.path, "ab", buffering=0) as file:
            header = [] if file.tell() else [columns]
            atomic.append(file, _as_csv(header, columns, [row]).encode())


def _as_csv(header: list[list[str]], columns: list[str], rows: list[Mapping[str, Any]]) -> str:
    return csv_lines([*header, *([row.get(column) for column in columns] for row in rows)])
