"""Reports: one HTML file about one run, or about many, that can be sent to anybody."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2

from zoo.config.schema import PlotSettings
from zoo.core.plain_data import value_at
from zoo.core.printing import one_line
from zoo.errors import ZooError
from zoo.plots.figures import (
    aggregates_figure,
    curves_figure,
    normalization_text,
    render,
    run_figure,
    scores_figure,
)
from zoo.plots.runs import Run, problems_of
from zoo.plots.scores import SCORE_NAMES, GroupScore, normalized_scores, scores_by_label
from zoo.plots.tables import Table, aggregate_table, score_table
from zoo.version import __version__

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VIDEO_LIMIT = 12 * 2**20
"""Bytes of a video that goes into the page."""

Part = dict[str, Any] | Table
"""A part of a section: a figure, a video, a text, a table or warnings, as `report.html.j2` shows it."""


def report_of(group_scores: Sequence[GroupScore], settings: PlotSettings) -> str:
    """Return the page about these groups' runs."""
    groups = [score.group for score in group_scores]
    runs = [(group, run) for group in groups for run in [*group.runs, *group.repeated]]
    unfinished = [f"{run.name}: {run.ending}" for _, run in runs if not run.is_complete]
    if unfinished:
        unfinished.insert(0, f"{len(unfinished)} of {len(runs)} runs did not finish:")
    about = {"text": f"Each run's score is the {SCORE_NAMES[settings.score]}."}
    scores: list[Part] = [{"warnings": unfinished}, about, score_table(group_scores)]
    if len(runs) > 1:
        scores.append(_figure("Scores of all runs", scores_figure, group_scores, settings))
        others = [replace(settings, y=y, smooth="auto") for y in ("eval", "train") if y != settings.y]
        curves = [
            _figure(f"Learning curves, {curve_settings.y}", curves_figure, groups, curve_settings)
            for curve_settings in (settings, *others)
        ]
    else:
        curves = [_figure("Curves of the run", run_figure, runs[0][1], settings)]
    sections = {"Scores": scores, "Learning curves": curves}
    if len({score.group.env for score in group_scores if len(score.scores)}) > 1:
        sections["Over all environments"] = _statistics(group_scores, settings)
    columns = ["group", "environment", "seed", "status", "folder", "started", "git commit", "command"]
    rows = [
        [group.label, group.env, run.seed, run.status, run.name]
        + [run.record.get(key) or "" for key in ("started", "git_commit")]
        + [_command(run.record)]
        for group, run in runs
    ]
    sections["Runs"] = [{"columns": columns, "rows": rows}]
    if len(runs) == 1:
        sections["How it was made"] = _files(runs[0][1])
    if problems := problems_of(run for _, run in runs):
        sections["Files with problems"] = [{"warnings": problems}]
    labels, envs = (dict.fromkeys(names) for names in zip(*((g.label, g.env) for g in groups), strict=True))
    title = settings.title or f"{', '.join(labels)} on {', '.join(envs)}"
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    page = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True).get_template("report.html.j2")
    return page.render(title=one_line(title, 300), sections=sections.items(), version=__version__)


def _command(record: Mapping[str, Any]) -> str:
    """Return the command as one types it, without the quotes that a script needs."""
    words = shlex.split(str(record.get("command") or ""))
    return " ".join(f'"{word}"' if "'" in word and '"' not in word else shlex.quote(word) for word in words)


def _figure(description: str, draw: Callable[..., Figure], *arguments: Any) -> Part:
    """Return a figure as an image, or why there is none."""
    try:
        content = render("svg", draw, *arguments)
    except ZooError as error:
        return {"text": str(error)}
    return {"image": base64.b64encode(content).decode(), "text": description}


def _statistics(group_scores: Sequence[GroupScore], settings: PlotSettings) -> list[Part]:
    try:
        methods = normalized_scores(scores_by_label(group_scores), settings.reference)
    except ZooError as error:
        return [{"text": str(error)}]
    missing = [f"{env} is left out: not all groups have scores there" for env in methods.left_out]
    figure = _figure("Aggregated scores", aggregates_figure, methods, settings)
    about = {"text": normalization_text(methods, settings.score)}
    return [about, {"warnings": missing}, aggregate_table(methods), figure]


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
