"""Reports: one HTML file about one run, or about many, that can be sent to anybody."""

from __future__ import annotations

import base64
import contextlib
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2

from zoo.core.plain_data import value_at
from zoo.core.printing import one_line
from zoo.errors import ZooError
from zoo.plots.curves import CurveOptions, curves_of
from zoo.plots.figures import (
    aggregates_figure,
    curves_figure,
    house_style,
    normalization_text,
    render,
    run_figure,
    scores_figure,
)
from zoo.plots.groups import Group
from zoo.plots.runs import Run, problems_of
from zoo.plots.scores import SCORE_NAMES, GroupScore, Methods
from zoo.plots.tables import Table, aggregate_table, score_table
from zoo.version import __version__

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VIDEO_LIMIT = 12 * 2**20
"""Bytes of a video that goes into the page."""

Part = dict[str, Any]
"""A part of a section: a figure, a video, a text, a table or warnings, as `report.html.j2` shows it."""

Section = tuple[str, list[Part]]


def report_of(
    group_scores: Sequence[GroupScore],
    methods: Methods | None,
    options: CurveOptions,
    kind: str,
    heading: str | None = None,
) -> str:
    """Return the page about these groups' runs; with ``methods`` also their statistics over environments."""
    groups = [score.group for score in group_scores]
    runs = [(group, run) for group in groups for run in [*group.runs, *group.repeated]]
    unfinished = [f"{run.name}: {run.ending}" for _, run in runs if not run.is_complete]
    count = [f"{len(unfinished)} of {len(runs)} runs did not finish:"] if unfinished else []
    about = {"text": f"Each run's score is the {SCORE_NAMES[kind]}."}
    scores: list[Part] = [{"warnings": count + unfinished}, about, _table(score_table(group_scores))]
    if len(runs) > 1:
        scores.append(_figure(lambda: scores_figure(group_scores, kind), "Scores of all runs"))
        others = [replace(options, y=y, smooth="auto") for y in ("eval", "train") if y != options.y]
        curves = [_curves(groups, x_options) for x_options in (options, *others)]
    else:
        curves = [_figure(lambda: run_figure(runs[0][1], options.x, options.smooth), "Curves of the run")]
    sections: list[Section] = [("Scores", scores), ("Learning curves", curves)]
    if methods is not None:
        sections.append(("Over all environments", _statistics(methods, kind)))
    columns = ["group", "environment", "seed", "status", "folder", "started", "git commit", "command"]
    rows = [
        [group.label, group.env, run.seed, run.status, run.name]
        + [run.record.get(key) or "" for key in ("started", "git_commit")]
        + [_command(run.record)]
        for group, run in runs
    ]
    sections.append(("Runs", [{"columns": columns, "rows": rows}]))
    if len(runs) == 1:
        sections.append(("How it was made", _files(runs[0][1])))
    problems = problems_of(run for _, run in runs)
    if problems:
        sections.append(("Files with problems", [{"warnings": problems}]))
    places = ", ".join(dict.fromkeys(group.env for group in groups))
    title = heading or f"{', '.join(dict.fromkeys(group.label for group in groups))} on {places}"
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True
    )
    template = environment.get_template("report.html.j2")
    return template.render(title=one_line(title, 300), sections=sections, version=__version__)


def _command(record: Mapping[str, Any]) -> str:
    """Return the command as one types it, without the quotes that a script needs."""
    command = str(record.get("command") or "")
    with contextlib.suppress(ValueError):  # a shell's command always can be split
        words = shlex.split(command)
        return " ".join(
            f'"{word}"' if "'" in word and '"' not in word else shlex.quote(word) for word in words
        )
    return command


def _figure(draw: Callable[[], Figure], description: str) -> Part:
    """Return a figure as an image, or why there is none."""
    try:
        with house_style():
            content = render(draw(), "svg")
    except ZooError as error:
        return {"text": str(error)}
    return {"image": base64.b64encode(content).decode(), "text": description}


def _curves(groups: Sequence[Group], options: CurveOptions) -> Part:
    return _figure(
        lambda: curves_figure(curves_of(groups, options), options), f"Learning curves, {options.y}"
    )


def _table(table: Table) -> Part:
    return {"columns": table.columns, "rows": table.rows}


def _statistics(methods: Methods, kind: str) -> list[Part]:
    missing = [f"{env} is left out: not all groups have scores there" for env in methods.left_out]
    figure = _figure(lambda: aggregates_figure(methods, kind), "Aggregated scores")
    about = {"text": normalization_text(methods, kind)}
    return [about, {"warnings": missing}, _table(aggregate_table(methods)), figure]


def _files(run: Run) -> list[Part]:
    """Return a run's newest video, its config and the card of its best agent."""
    parts: list[Part] = []
    videos = sorted((run.path / "videos").glob("[!.]*.mp4"))
    if videos and videos[-1].stat().st_size <= VIDEO_LIMIT:
        parts.append({"video": base64.b64encode(videos[-1].read_bytes()).decode()})
    for name in ("config.yaml", "best_agent/README.md"):
        if (run.path / name).is_file():
            text = (run.path / name).read_text(encoding="utf-8", errors="replace")
            parts.append({"summary": name, "pre": text})
    versions = value_at(run.record, "versions") or {}
    return [*parts, {"rows": [[name, version] for name, version in versions.items()]}]
