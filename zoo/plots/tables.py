"""Tables of scores as Markdown, LaTeX and CSV."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from zoo.core.printing import csv_lines, csv_text, decimal, markdown_cell, one_line
from zoo.experiment.statistics import performance_profile
from zoo.plots.scores import GroupScore, Methods, aggregates, improvements, profile_thresholds

TEXTS = ("md", "tex", "csv")

_LATEX = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "±": r"$\pm$", "…": r"\dots{}", "–": "--"}
)


_SCORE_FIELDS = ["algo", "env", "runs", "runs_left_out", "mean", "std", "iqm", "iqm_low", "iqm_high"]
_SCORE_FIELDS += ["best", "steps", "hours"]


@dataclass(frozen=True)
class Table:
    """Cells for people, and the same values for programs."""

    columns: list[str]
    rows: list[list[str]]
    fields: list[str]
    values: list[list[Any]]
    n_text_columns: int

    def text(self, kind: str) -> str:
        """Return the table as ``md``, ``tex`` or ``csv``."""
        writers: dict[str, Callable[[Table], str]] = {"md": _markdown, "tex": _latex, "csv": _csv}
        return writers[kind](self)


def score_table(group_scores: Sequence[GroupScore]) -> Table:
    """Return a row for each group: runs, mean ± std, IQM with interval, best run, steps, time."""
    rows, values = [], []
    for each in group_scores:
        ci95 = each.ci95 if len(each.scores) else None
        names = [each.group.label, each.group.env]
        n_left = each.n_missing
        n_runs = f"{len(each.scores)} of {len(each.scores) + n_left}" if n_left else str(len(each.scores))
        if len(each.scores):
            mean = f"{decimal(each.mean)}" + ("" if each.std is None else f" ± {decimal(each.std)}")
            scores = [mean, _with_interval(each.iqm, ci95), decimal(each.best)]
            numbers = [each.mean, each.std, each.iqm, *(ci95 or (None, None)), each.best]
        else:
            scores, numbers = ["–"] * 3, [None] * 6
        time = "–" if each.hours is None else duration(each.hours)
        steps = "–" if each.steps is None else f"{each.steps:,.0f}"
        rows.append([*names, n_runs, *scores, steps, time])
        values.append([*names, len(each.scores), n_left, *numbers, each.steps, each.hours])
    return Table(
        ["algorithm", "environment", "runs", "mean ± std", "IQM [95 % interval]", "best", "steps", "time"],
        rows,
        _SCORE_FIELDS,
        values,
        2,
    )


def aggregate_table(methods: Methods) -> Table:
    """Return a row for each method: median, IQM, mean and optimality gap of its normalised scores."""
    rows, values = [], []
    found = aggregates(methods)
    for label, statistics in found.items():
        rows.append([label, *(_with_interval(each.value, each.ci95) for each in statistics)])
        ends = [(each.value, *(each.ci95 or (None, None))) for each in statistics]
        values.append([label, *(number for numbers in ends for number in numbers)])
    names = [each.name for each in next(iter(found.values()))]
    fields = [f"{name.replace(' ', '_').lower()}{end}" for name in names for end in ("", "_low", "_high")]
    return Table(["algorithm", *names], rows, ["algo", *fields], values, 1)


def improvement_table(methods: Methods) -> Table:
    """Return a row for each pair of methods: how likely a run of the first beats one of the second."""
    pairs = improvements(methods)
    return Table(
        ["first", "second", "P(first > second) [95 % interval]"],
        [[pair.first, pair.second, _with_interval(pair.probability, pair.ci95)] for pair in pairs],
        ["first", "second", "probability", "low", "high"],
        [[pair.first, pair.second, pair.probability, *(pair.ci95 or (None, None))] for pair in pairs],
        2,
    )


def profile_table(methods: Methods) -> Table:
    """Return a row for each threshold: the share of each method's runs with a normalised score above it."""
    labels = list(methods.scores)
    thresholds = profile_thresholds(methods)
    shares = np.array([performance_profile(methods.scores[label], thresholds) for label in labels]).T
    return Table(
        ["score", *labels],
        [
            [f"{threshold:.3f}", *(f"{share:.3f}" for share in row)]
            for threshold, row in zip(thresholds, shares, strict=True)
        ],
        ["score", *labels],
        [[float(threshold), *map(float, row)] for threshold, row in zip(thresholds, shares, strict=True)],
        0,
    )


def duration(hours: float) -> str:
    """Return a time as a person says it: 34 s, 12 min, 3.4 h."""
    if hours < 1 / 60:
        return f"{hours * 3600:.0f} s"
    return f"{hours * 60:.0f} min" if hours < 2 else f"{hours:,.1f} h"


def _with_interval(value: float, ci95: tuple[float, float] | None) -> str:
    return decimal(value) if ci95 is None else f"{decimal(value)} [{decimal(ci95[0])}, {decimal(ci95[1])}]"


def _markdown(table: Table) -> str:
    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cells)} |"

    n_numbers = len(table.columns) - table.n_text_columns
    rules = ["---"] * table.n_text_columns + ["---:"] * n_numbers
    columns, *rows = ([markdown_cell(cell) for cell in row] for row in [table.columns, *table.rows])
    return "\n".join(line(row) for row in [columns, rules, *rows]) + "\n"


def _latex(table: Table) -> str:
    n_numbers = len(table.columns) - table.n_text_columns
    lines = [f"\\begin{{tabular}}{{{'l' * table.n_text_columns}{'r' * n_numbers}}}", r"\hline"]
    lines += [_latex_row(table.columns), r"\hline", *map(_latex_row, table.rows), r"\hline", r"\end{tabular}"]
    return "\n".join(lines) + "\n"


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(one_line(cell).translate(_LATEX) for cell in cells) + r" \\"


def _csv(table: Table) -> str:
    return csv_lines(map(_csv_cell, row) for row in [table.fields, *table.values])


def _csv_cell(value: Any) -> str:
    if isinstance(value, str):
        return csv_text(value)
    return "" if value is None else f"{value:.10g}"
