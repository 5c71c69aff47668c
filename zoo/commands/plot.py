"""`zoo plot`: figures, tables and reports of runs, whoever trained them."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from zoo.config.fields import build
from zoo.config.paths import shown
from zoo.config.schema import PlotSettings
from zoo.core import atomic
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
from zoo.plots.runs import Run, Score, find_runs, problems_of, read_run
from zoo.plots.scores import GroupScore, Methods, normalized_scores, scored, scores_by_label
from zoo.plots.tables import TEXTS, aggregate_table, score_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (*PICTURES, "html", *TEXTS)
PROBLEMS_SHOWN = 10
DEFAULT_Y = "train"


def run(config: Mapping[str, Any]) -> None:
    """Draw the runs that the config names, or tabulate their scores, or write a report about them."""
    settings = build(PlotSettings, config, "")
    kind = _format(settings)
    options = _curve_options(settings)
    runs = [read_run(path) for path in find_runs(_paths(settings.runs))]
    groups = group_runs(runs, keys_of(settings.by))
    refuse_unknown_scalar(options.y, runs)
    figure = _figure(settings, kind, len(runs))
    out = Path(settings.out).expanduser() if settings.out else _default_file(runs, figure, kind)
    if kind == "html":
        content = _report(groups, settings, options).encode()
    elif kind in TEXTS:
        content = _table(groups, settings, figure, kind).encode()
    else:
        with house_style():
            content = render(_draw(runs, groups, settings, options, figure), kind)
    atomic.write_bytes(out, content)
    _print_scores(runs, groups, settings, None if kind not in TEXTS else content.decode(), kind)
    show(f"wrote  {one_line(shown(out.absolute()))}")


def _format(settings: PlotSettings) -> str:
    """Return what is to be written, by ``report``, ``format`` and the ending of ``out``."""
    ending = Path(settings.out).suffix.removeprefix(".").lower() if settings.out else ""
    if settings.report and settings.format not in (None, "html"):
        raise ZooError(f"report=true writes HTML, and format={settings.format} was asked for")
    if settings.report or settings.format is not None:
        return settings.format or "html"
    if settings.out and ending not in FORMATS:
        raise ZooError(
            f"out={one_line(settings.out)}: no format has the ending .{one_line(ending)}"
            f"{nearest(ending, FORMATS)} ({', '.join(FORMATS)}; format=NAME writes it under any name)"
        )
    return ending or "png"


def _curve_options(settings: PlotSettings) -> CurveOptions:
    if isinstance(settings.smooth, str) and settings.smooth != "auto":
        raise ZooError(f"`smooth={one_line(settings.smooth)}` is neither auto nor a number of episodes")
    return CurveOptions(settings.x, settings.y, settings.smooth, settings.aggregate, settings.interval)


def _paths(runs: str | Sequence[str]) -> list[str]:
    return [runs] if isinstance(runs, str) else list(runs)


def _figure(settings: PlotSettings, kind: str, n_runs: int) -> str:
    asked = settings.figure
    if kind == "html" and asked != "auto":
        raise ZooError(f"a report has every figure: figure={asked} goes with png, svg and pdf")
    if asked == "run" and settings.y != DEFAULT_Y:
        raise ZooError(
            f"figure=run has a panel for everything: y={one_line(settings.y)} goes with figure=curves"
        )
    if asked == "run" and n_runs != 1:
        raise ZooError(f"figure=run shows one run, and there are {n_runs:,}: name one, or leave figure out")
    if kind in TEXTS and asked in ("run", "curves"):
        raise ZooError(f"format={kind} writes a table, and figure={asked} is a picture (png, svg, pdf)")
    if asked != "auto":
        return asked
    if kind in TEXTS:
        return "scores"
    return "run" if n_runs == 1 and settings.y == DEFAULT_Y else "curves"


def _default_file(runs: Sequence[Run], figure: str, kind: str) -> Path:
    """Return the file in ``plots/``, called after the run or after what is drawn."""
    if len(runs) == 1:
        name = "-".join([runs[0].algo, runs[0].env, runs[0].path.absolute().name])
        figure = re.sub(r"[^A-Za-z0-9._+-]+", "-", name).strip("-.")[:150] or "run"
    return Path("plots") / f"{'report' if kind == 'html' and len(runs) > 1 else figure}.{kind}"


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


def _table(groups: Sequence[Group], settings: PlotSettings, figure: str, kind: str) -> str:
    group_scores = scored(groups, cast(Score, settings.score))
    is_scores = figure == "scores"
    table = score_table(group_scores) if is_scores else aggregate_table(_methods(group_scores, settings))
    return table.text(kind)


def _methods(group_scores: Sequence[GroupScore], settings: PlotSettings) -> Methods:
    methods = normalized_scores(scores_by_label(group_scores), settings.reference)
    if methods.left_out:
        say(f"left out  {', '.join(methods.left_out)}: not all groups have scores there", sys.stderr)
    return methods


def _report(groups: Sequence[Group], settings: PlotSettings, options: CurveOptions) -> str:
    group_scores = scored(groups, cast(Score, settings.score))
    methods = None
    if len({each.group.env for each in group_scores if len(each.scores)}) > 1:
        try:
            methods = _methods(group_scores, settings)
        except ZooError as error:
            say(f"no statistics over environments: {error}", sys.stderr)
    return report_of(group_scores, methods, options, settings.score, settings.title)


def _print_scores(
    runs: Sequence[Run], groups: Sequence[Group], settings: PlotSettings, table: str | None, kind: str
) -> None:
    """Print the scores, and what a figure does not show: runs that did not finish, files that are damaged."""
    if table is not None and kind != "csv":
        show(table, end="")
    elif len(runs) > 1 and len(groups) <= 60:
        group_scores = scored(groups, cast(Score, settings.score))
        show(score_table(group_scores).text("md"), end="")
    unfinished = [f"{each.name}: {each.ending}" for each in runs if not each.is_complete]
    problems = problems_of(runs)
    repeats = [line for group in groups for line in group.repeat_lines]
    for what, lines in (("did not finish", unfinished), ("left out", repeats), ("damaged", problems)):
        for line in lines[:PROBLEMS_SHOWN]:
            say(f"{what}  {line}", sys.stderr)
        if len(lines) > PROBLEMS_SHOWN:
            say(f"{what}  … and {len(lines) - PROBLEMS_SHOWN} more", sys.stderr)
