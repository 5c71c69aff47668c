"""Where a run's scalars go: what a logger is, and the two that everybody needs, console and progress.csv."""

from __future__ import annotations

import csv
import io
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from zoo.config import atomic

STEPS = "time/total_timesteps"
"""The scalar that is the x-axis everywhere."""


@dataclass
class Report:
    """What there is to say about a run at one moment."""

    timesteps: int
    scalars: dict[str, float]
    shares: dict[str, float] = field(default_factory=dict)
    """How the time since the last report divides, by what it was spent on; fractions of 1."""
    note: str | None = None
    is_last: bool = False


class Logger:
    """One place to which reports go. What needs a slow import does it at the first report."""

    def write(self, report: Report) -> None:
        """Take one report. May raise `OSError` or `ZooError`: the run goes on without it."""

    def close(self) -> None:
        """Finish what is open; a later report opens it again."""

    def state(self) -> dict[str, Any]:
        """Return plain values from which a resumed run goes on where this one is now."""
        return {}

    def load_state(self, values: dict[str, Any]) -> None:
        """Go back to where `state` returned these."""


class ConsoleLogger(Logger):
    """Prints reports as a table, one every ``seconds`` at most, and the last one in any case."""

    def __init__(self, *, seconds: float = 2.0, stream: TextIO | None = None) -> None:
        self.seconds = seconds
        self.stream = stream
        self._printed: float | None = None

    def write(self, report: Report) -> None:
        now = time.perf_counter()
        if self._printed is not None and now - self._printed < self.seconds and not report.is_last:
            return
        self._printed = now
        print(table(report), file=self.stream or sys.stdout, flush=True)


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
    if report.shares:
        rows.append(("share of time/", ""))
        rows += [(f"   {name}", f"{share:.0%}") for name, share in report.shares.items()]
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
    """Appends one row a report to a CSV file, with a column for every scalar that has ever come."""

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
            self._append(_as_csv([], columns, [report.scalars]))
        self._n_rows += 1

    def state(self) -> dict[str, Any]:
        return {"columns": self._known_columns(), "rows": self._n_rows}

    def load_state(self, values: dict[str, Any]) -> None:
        rows = self._rows()[: values["rows"]]
        if values["columns"]:
            self._rewrite(values["columns"], rows)
        self._n_rows = len(rows)

    def _known_columns(self) -> list[str]:
        """Return the columns of the file, which may be there from an earlier call of `learn`."""
        if self._columns is None:
            rows = self._rows()
            self._columns, self._n_rows = list(rows[0]) if rows else [], len(rows)
        return self._columns

    def _rows(self) -> list[dict[str, str]]:
        try:
            with open(self.path, encoding="utf-8", newline="") as file:
                return list(csv.DictReader(file))
        except FileNotFoundError:
            return []

    def _rewrite(self, columns: list[str], rows: list[Any]) -> None:
        atomic.write_text(self.path, _as_csv([columns], columns, rows))
        self._columns = columns

    def _append(self, text: str) -> None:
        with open(self.path, "ab", buffering=0) as file:
            size = file.tell()
            try:
                written = file.write(text.encode())
                if written != len(text.encode()):
                    raise OSError(f"can't write {self.path}: no space left")
            except OSError:
                file.truncate(size)
                raise


def _as_csv(header: list[list[str]], columns: list[str], rows: list[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows(header)
    writer.writerows([row.get(column, "") for column in columns] for row in rows)
    return text.getvalue()
