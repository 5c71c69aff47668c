"""`zoo plot`: figures, tables and reports of runs, whoever trained them."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from zoo.config.compose import compose
from zoo.config.environment_values import resolved
from zoo.config.fields import build
from zoo.config.overrides import as_overrides
from zoo.config.schema import PlotSettings
from zoo.config.user_files import shown
from zoo.core import atomic
from zoo.core.notebook import as_html
from zoo.core.printing import one_line, say, show
from zoo.errors import ZooError, nearest
from zoo.plots.curves import CurveOptions, curves_of, refuse_unknown_scalar
from zoo.plots.figures import (
    PICTURES,
    aggregates_figure,
    curves_figure,
    house_style,
    render,
    run_figure,
    scores_figure,
)
from zoo.plots.groups import Group, group_runs, keys_of
from zoo.plots.report import report_of
from zoo.plots.runs import Run, Score, find_runs, problems_of, read_run, run_path
from zoo.plots.scores import GroupScore, Methods, normalized_scores, scored, scores_by_label
from zoo.plots.tables import TEXTS, aggregate_table, score_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (*PICTURES, "html", *TEXTS)
PROBLEMS_SHOWN = 10
MOST_GROUPS = 60
"""Groups whose scores are printed beside a figure."""


def run(config: Mapping[str, Any]) -> None:
    """Draw the runs that the config names, or tabulate their scores, or write a report about them."""
    settings = build(PlotSettings, config, "")
    drawn = _drawn(settings)
    drawn.save()
    if drawn.kind != "csv":
        show(drawn.text, end="")
    _print_problems(drawn.runs, drawn.groups)
    show(f"wrote  {one_line(shown(drawn.path))}")


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
        if self.kind in PICTURES:
            return None
        return self.content.decode() if self.kind == "html" else as_html(self.text)


def plot(*runs: Any, **settings: Any) -> Plot:
    """Draw runs as `zoo plot` does, named by paths, patterns or results of `zoo.train`.

    ``settings`` are those of the command line, as ``figure="scores"``; with ``out`` it is written into that
    file. Raises `ZooError` for what can't be drawn.
    """
    named = {"runs": list(map(run_path, runs))} if runs else {}
    config = resolved(compose("plot", as_overrides({**named, **settings})))
    drawn = _drawn(build(PlotSettings, config, ""))
    if settings.get("out") is not None:
        drawn.save()
    return drawn


def _drawn(settings: PlotSettings) -> Plot:
    kind = _format(settings)
    if isinstance(settings.smooth, str) and settings.smooth != "auto":
        raise ZooError(f"`smooth={one_line(settings.smooth)}` is neither auto nor a number of episodes")
    options = CurveOptions(settings.x, settings.y, settings.smooth, settings.aggregate, settings.interval)
    paths = [settings.runs] if isinstance(settings.runs, str) else settings.runs
    runs = [read_run(path) for path in find_runs(paths)]
    groups = group_runs(runs, keys_of(settings.by))
    refuse_unknown_scalar(options.y, runs)
    figure = _figure(settings, kind, len(runs))
    out = Path(settings.out).expanduser() if settings.out else _default_file(runs, figure, kind)
    text = ""
    if kind in TEXTS or (len(runs) > 1 and len(groups) <= MOST_GROUPS):
        scores = scored(groups, cast(Score, settings.score))
        in_groups = kind not in TEXTS or figure == "scores"
        table = score_table(scores) if in_groups else aggregate_table(_methods(scores, settings))
        text = table.text(kind if kind in TEXTS else "md")
    if kind in TEXTS:
        content = text.encode()
    elif kind == "html":
        content = _report(groups, settings, options).encode()
    else:
        with house_style():
            content = render(_draw(runs, groups, settings, options, figure), kind)
    return Plot(content, kind, out, text, runs, groups)


def _format(settings: PlotSettings) -> str:
    ending = Path(settings.out).suffix.removeprefix(".").lower() if settings.out else ""
    if settings.report:
        if settings.format not in (None, "html") or settings.figure != "auto":
            raise ZooError("report=true writes HTML, with every figure; leave out format= and figure=")
        return "html"
    if settings.format is not None:
        return settings.format
    if settings.out and ending not in FORMATS:
        raise ZooError(
            f"out={one_line(settings.out)}: no format has the ending .{one_line(ending)}"
            f"{nearest(ending, FORMATS)} ({', '.join(FORMATS)}; format=NAME writes it under any name)"
        )
    return ending or "png"


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
    if kind in TEXTS and figure in ("run", "curves"):
        raise ZooError(f"format={kind} writes a table, and figure={figure} is an image (png, svg, pdf)")
    return figure


def _default_file(runs: Sequence[Run], figure: str, kind: str) -> Path:
    name = "report" if kind == "html" else figure
    if len(runs) == 1:
        name = "-".join([runs[0].algo, runs[0].env, runs[0].path.absolute().name])
        name = re.sub(r"[^A-Za-z0-9._+-]+", "-", name).strip("-.")[:150] or "run"
    return Path("plots") / f"{name}.{kind}"


def _draw(
    runs: Sequence[Run], groups: Sequence[Group], settings: PlotSettings, options: CurveOptions, figure: str
) -> Figure:
    if figure == "run":
        return run_figure(runs[0], options.x, options.smooth, settings.title)
    if figure == "curves":
        return curves_figure(curves_of(groups, options), options, settings.title)
    group_scores = scored(groups, cast(Score, settings.score))
    if figure == "scores":
        return scores_figure(group_scores, settings.score, settings.title)
    return aggregates_figure(_methods(group_scores, settings), settings.score, settings.title)


def _methods(group_scores: Sequence[GroupScore], settings: PlotSettings) -> Methods:
    methods = normalized_scores(scores_by_label(group_scores), settings.reference)
    if methods.left_out:
        say(f"left out  {', '.join(methods.left_out)}: not all groups have scores there", sys.stderr)
    return methods


def _report(groups: Sequence[Group], settings: PlotSettings, options: CurveOptions) -> str:
    group_scores = scored(groups, cast(Score, settings.score))
    methods = None
    if len({score.group.env for score in group_scores if len(score.scores)}) > 1:
        try:
            methods = _methods(group_scores, settings)
        except ZooError as error:
            say(f"no statistics over environments: {error}", sys.stderr)
    return report_of(group_scores, methods, options, settings.score, settings.title)


def _print_problems(runs: Sequence[Run], groups: Sequence[Group]) -> None:
    """Print what no figure shows: runs that did not finish or were left out, files that are damaged."""
    problems = {
        "did not finish": [f"{run.name}: {run.ending}" for run in runs if not run.is_complete],
        "left out": [line for group in groups for line in group.repeat_lines],
        "damaged": problems_of(runs),
    }
    for heading, lines in problems.items():
        for line in lines[:PROBLEMS_SHOWN]:
            say(f"{heading}  {line}", sys.stderr)
        if len(lines) > PROBLEMS_SHOWN:
            say(f"{heading}  … and {len(lines) - PROBLEMS_SHOWN} more", sys.stderr)
