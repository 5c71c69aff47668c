"""`zoo plot`: figures, tables and reports of runs, whoever trained them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoo.config.compose import ConfigLoader
from zoo.config.overrides import as_overrides
from zoo.config.schema import PlotSettings
from zoo.config.user_files import shown
from zoo.core import atomic
from zoo.core.notebook import as_html
from zoo.core.printing import one_line, say, show
from zoo.envs.registry import folder_name
from zoo.errors import ZooError, nearest
from zoo.plots import figures
from zoo.plots.groups import Group, group_runs, keys_of
from zoo.plots.report import report_of
from zoo.plots.runs import Run, problems_of, read_runs
from zoo.plots.scores import GroupScore, Methods, normalized_scores, scored, scores_by_label
from zoo.plots.tables import TEXTS, aggregate_table, score_table

FORMATS = (*figures.PICTURES, "html", *TEXTS)
PROBLEMS_SHOWN = 10
MOST_GROUPS = 60
"""Groups whose scores are printed beside a figure."""


def run(settings: PlotSettings) -> None:
    """Draw the runs that the settings name, or tabulate their scores, or write a report about them."""
    plot = _plotted(settings)
    plot.save()
    if plot.kind != "csv":
        show(plot.text, end="")
    _print_problems(plot)
    show(f"wrote  {one_line(shown(plot.path))}")


@dataclass(frozen=True, repr=False)
class Plot:
    """A figure, table or report of runs, as the bytes of a file of this ``kind``; a notebook shows it."""

    content: bytes
    kind: str
    path: Path
    """The file that `save` writes."""
    text: str
    """The table, or beside a figure of several runs their scores, in Markdown."""
    runs: list[Run]
    groups: list[Group]

    def save(self, path: str | Path | None = None) -> None:
        """Write the file."""
        atomic.write_bytes(self.path if path is None else Path(path), self.content)

    def __repr__(self) -> str:
        return self.text or f"<Plot of {', '.join(run.name for run in self.runs)}>"

    def _repr_png_(self) -> bytes | None:
        return self.content if self.kind == "png" else None

    def _repr_html_(self) -> str | None:
        if self.kind in figures.PICTURES:
            return None
        return self.content.decode() if self.kind == "html" else as_html(self.text)


def plot(*runs: Any, **settings: Any) -> Plot:
    """Draw runs as `zoo plot` does, named by paths, patterns or results of `zoo.train`.

    ``settings`` are those of the command line, as ``figure="scores"``; with ``out`` it is written into that
    file. Raises `ZooError` for what can't be drawn.
    """
    named = {"runs": runs} if runs else {}
    plot = _plotted(ConfigLoader("plot").settings(as_overrides({**named, **settings})))
    if settings.get("out") is not None:
        plot.save()
    return plot


def _plotted(settings: PlotSettings) -> Plot:
    kind = _format(settings)
    paths = [settings.runs] if isinstance(settings.runs, str) else settings.runs
    runs = read_runs(paths)
    groups = group_runs(runs, keys_of(settings.by))
    figure, scores = _figure(settings, kind, len(runs)), scored(groups, settings.score)
    text = ""
    if kind in TEXTS and figure == "aggregates":
        text = aggregate_table(_methods(scores, settings)).text(kind)
    elif kind in TEXTS or (len(runs) > 1 and len(groups) <= MOST_GROUPS):
        text = score_table(scores).text(kind if kind in TEXTS else "md")
    if kind in TEXTS:
        content = text.encode()
    elif kind == "html":
        content = report_of(scores, settings).encode()
    else:
        data: dict[str, Any] = {"run": runs[0], "curves": groups, "scores": scores}
        drawn = data.get(figure) or _methods(scores, settings)
        content = figures.render(kind, getattr(figures, f"{figure}_figure"), drawn, settings)
    name = "report" if kind == "html" else figure
    if len(runs) == 1:
        name = folder_name("-".join([runs[0].algo, runs[0].env, runs[0].path.absolute().name]))[:150]
    out = Path(settings.out).expanduser() if settings.out else Path("plots", f"{name}.{kind}")
    return Plot(content, kind, out, text, runs, groups)


def _format(settings: PlotSettings) -> str:
    ending = Path(settings.out).suffix.removeprefix(".").lower() if settings.out else ""
    if settings.report:
        if settings.format not in (None, "html") or settings.figure != "auto":
            raise ZooError("report=true writes HTML, with every figure; leave out format= and figure=")
        return "html"
    if settings.out and settings.format is None and ending not in FORMATS:
        raise ZooError(
            f"out={one_line(settings.out)}: no format has the ending .{one_line(ending)}"
            f"{nearest(ending, FORMATS)} ({', '.join(FORMATS)}; format=NAME writes it under any name)"
        )
    return settings.format or ending or "png"


def _figure(settings: PlotSettings, kind: str, n_runs: int) -> str:
    """Return the figure, or the table of that name. Raises `ZooError` for one that the format can't hold."""
    figure, is_one_run = settings.figure, n_runs == 1 and settings.y == "train"
    if figure == "auto":
        return "scores" if kind in TEXTS else "run" if is_one_run else "curves"
    if figure == "run" and not is_one_run:
        raise ZooError(
            f"figure=run shows one run, all of it: figure=curves goes with {n_runs:,} runs and"
            f" y={one_line(settings.y)}"
        )
    if kind in TEXTS and figure in ("run", "curves", "profile"):
        raise ZooError(f"format={kind} writes a table, and figure={figure} is an image (png, svg, pdf)")
    return figure


def _methods(scores: Sequence[GroupScore], settings: PlotSettings) -> Methods:
    methods = normalized_scores(scores_by_label(scores), settings.reference)
    if methods.left_out:
        say(f"left out  {', '.join(methods.left_out)}: not all groups have scores there", sys.stderr)
    return methods


def _print_problems(plot: Plot) -> None:
    """Print what no figure shows: runs that did not finish or were left out, files that are damaged."""
    problems = {
        "did not finish": [f"{run.name}: {run.ending}" for run in plot.runs if not run.is_complete],
        "left out": [line for group in plot.groups for line in group.repeat_lines],
        "damaged": problems_of(plot.runs),
    }
    for heading, lines in problems.items():
        for line in lines[:PROBLEMS_SHOWN]:
            say(f"{heading}  {line}", sys.stderr)
        if len(lines) > PROBLEMS_SHOWN:
            say(f"{heading}  … and {len(lines) - PROBLEMS_SHOWN} more", sys.stderr)
