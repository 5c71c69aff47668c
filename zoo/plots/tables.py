"""Tables of scores as Markdown and CSV."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from zoo.core.printing import csv_lines, decimal, duration, one_line
from zoo.plots.scores import AGGREGATES, GroupScore, Interval, Methods, aggregates

TEXTS = ("md", "csv")


@dataclass(frozen=True)
class Table:
    """Cells for people, and the same values for programs."""

    columns: list[str]
    rows: list[list[str]]
    fields: list[str]
    values: list[list[Any]]
    n_text_columns: int

    def text(self, kind: str) -> str:
        """Return the table as ``md`` or ``csv``."""
        if kind == "csv":
            return csv_lines([self.fields, *self.values])
        columns, *rows = (  # No text ends its cell or begins an element of HTML.
            [re.sub(r"([\\|])", r"\\\1", one_line(cell, 300)).replace("<", "&lt;") for cell in row]
            for row in [self.columns, *self.rows]
        )
        rules = ["---"] * self.n_text_columns + ["---:"] * (len(columns) - self.n_text_columns)
        return "".join(f"| {' | '.join(row)} |\n" for row in [columns, rules, *rows])


def score_table(group_scores: Sequence[GroupScore]) -> Table:
    """Return a row for each group: runs, mean ± std, IQM with interval, best run, steps, time."""
    rows, values = [], []
    for score in group_scores:
        hours = None if score.seconds is None else score.seconds / 3600
        scores, n_left, names = score.scores, len(score.left_out), [score.group.label, score.group.env]
        cells = ["–"] * 3
        numbers: list[float | None] = [None] * 6
        if len(scores):
            mean, best, ci95 = float(scores.mean()), float(scores.max()), score.ci95
            spread = "" if score.std is None else f" ± {decimal(score.std)}"
            cells = [f"{decimal(mean)}{spread}", _with_interval(score.iqm, ci95), decimal(best)]
            numbers = [mean, score.std, score.iqm, *(ci95 or (None, None)), best]
        n_runs = f"{len(scores)} of {len(scores) + n_left}" if n_left else str(len(scores))
        steps = "–" if score.steps is None else f"{score.steps:,.0f}"
        time = "–" if score.seconds is None else duration(score.seconds)
        rows.append([*names, n_runs, *cells, steps, time])
        values.append([*names, len(scores), n_left, *numbers, score.steps, hours])
    columns = ["algorithm", "environment", "runs", "mean ± std", "IQM [95 % interval]", "best", "steps"]
    fields = ["algo", "env", "runs", "runs_left_out", "mean", "std", "iqm", "iqm_low", "iqm_high", "best"]
    return Table([*columns, "time"], rows, [*fields, "steps", "hours"], values, 2)


def aggregate_table(methods: Methods) -> Table:
    """Return a row for each method: median, IQM, mean and optimality gap of its normalised scores."""
    by_label = aggregates(methods)
    rows = [[label, *(_with_interval(*cell) for cell in row.values())] for label, row in by_label.items()]
    values = [
        [label, *(number for value, ci95 in row.values() for number in (value, *(ci95 or (None, None))))]
        for label, row in by_label.items()
    ]
    fields = [f"{key.replace(' ', '_').lower()}{end}" for key in AGGREGATES for end in ("", "_low", "_high")]
    return Table(["algorithm", *AGGREGATES], rows, ["algo", *fields], values, 1)


def _with_interval(value: float, ci95: Interval | None) -> str:
    return decimal(value) if ci95 is None else f"{decimal(value)} [{decimal(ci95[0])}, {decimal(ci95[1])}]"
