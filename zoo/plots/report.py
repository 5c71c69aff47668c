"""Reports: one HTML file about one run, or about many, that can be sent to anybody."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2

from zoo.core.plain_data import to_yaml, value_at
from zoo.core.printing import decimal, one_line, printable
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
from zoo.plots.runs import Run, problems_of
from zoo.plots.scores import SCORE_NAMES, GroupScore, Methods
from zoo.plots.tables import Table, aggregate_table, duration, score_table
from zoo.version import __version__

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VIDEO_LIMIT = 12 * 2**20
"""Bytes of a video that goes into the page."""

MOST_LINES = 1_000
"""Runs and warnings that are listed."""

Part = dict[str, Any]
"""A part of a section: a figure, a video, a text, a table or warnings, as `report.html.j2` shows it."""

Section = tuple[str, list[Part]]


def run_report(run: Run, options: CurveOptions, heading: str | None = None) -> str:
    """Return the page about one run."""
    title = heading or f"{run.algo} on {run.env}" + ("" if run.seed is None else f", seed {run.seed}")
    ending = [] if run.is_complete else [f"This run is not complete: it {run.ending}."]
    figure = _figure(lambda: run_figure(run, options.x, options.smooth), f"Curves of {title}")
    sections: list[Section] = [("Run", [{"warnings": ending}, _facts(_outcome(run))]), ("Curves", [figure])]
    videos = sorted(path for kind in ("mp4", "gif") for path in (run.path / "videos").glob(f"[!.]*.{kind}"))
    if videos:
        sections.append(("Video", [_video(videos[-1])]))
    folded = [] if run.config is None else [{"summary": "config.yaml", "pre": to_yaml(run.config)}]
    for agent in ("best_agent", "agent"):
        card = run.path / agent / "README.md"
        if card.is_file():
            folded.append({"summary": f"{agent}/README.md", "pre": card.read_text(errors="replace")})
    sections.append(("How it was made", [_facts(_origin(run)), *folded]))
    return _page(title, [run], sections)


def sweep_report(
    group_scores: Sequence[GroupScore],
    methods: Methods | None,
    options: CurveOptions,
    kind: str,
    heading: str | None = None,
) -> str:
    """Return the page about several runs; with ``methods`` also their statistics over environments."""
    groups = [each.group for each in group_scores]
    runs = [(group, run) for group in groups for run in [*group.runs, *group.repeated]]
    unfinished = [f"{run.name}: {run.ending}" for _, run in runs if not run.is_complete]
    count = [f"{len(unfinished)} of {len(runs)} runs did not finish:"] if unfinished else []
    about = {"text": f"Each run's score is the {SCORE_NAMES[kind]}."}
    figure = _figure(lambda: scores_figure(group_scores, kind), "Scores of all runs")
    warnings: Part = {"warnings": count + unfinished[:MOST_LINES]}
    scores = [warnings, about, _table(score_table(group_scores)), figure]
    curves = []
    for y in dict.fromkeys([options.y, "eval", "train"]):
        these = replace(options, y=y, smooth=options.smooth if y == options.y else "auto")
        curves.append(
            _figure(lambda these=these: curves_figure(curves_of(groups, these), these), f"Curves, {y}")  # type: ignore[misc]
        )
    listed = [[group.label, group.env, run.seed, run.status or "–", run.name] for group, run in runs]
    columns = ["group", "environment", "seed", "status", "folder"]
    sections: list[Section] = [("Scores", scores), ("Learning curves", curves)]
    if methods is not None:
        sections.append(("Over all environments", _statistics(methods, kind)))
    sections.append(("Runs", [{"columns": columns, "rows": listed[:MOST_LINES]}]))
    envs = list(dict.fromkeys(group.env for group in groups))
    places = ", ".join([*envs[:3], *["…"][: len(envs) > 3]])
    title = heading or f"{len(runs)} runs in {len(groups)} groups on {places}"
    return _page(title, [run for _, run in runs], sections)


def _page(title: str, runs: Sequence[Run], sections: list[Section]) -> str:
    """Return the template filled in; every text is escaped, and without control characters."""
    problems = problems_of(runs)
    if problems:
        sections.append(("Files with problems", [{"warnings": problems[:MOST_LINES]}]))
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        finalize=lambda value: value if hasattr(value, "__html__") else printable(value, 10**9),
        trim_blocks=True,
    )
    template = environment.get_template("report.html.j2")
    return template.render(title=one_line(title, 300), sections=sections, version=__version__)


def _figure(draw: Callable[[], Figure], description: str) -> Part:
    """Return a figure as an image, or why there is none."""
    try:
        with house_style():
            content = render(draw(), "svg")
    except ZooError as error:
        return {"text": str(error)}
    return {"image": base64.b64encode(content).decode(), "kind": "image/svg+xml", "text": description}


def _table(table: Table) -> Part:
    return {"columns": table.columns, "rows": table.rows}


def _facts(facts: dict[str, Any]) -> Part:
    return {"rows": [[name, value] for name, value in facts.items() if value is not None]}


def _statistics(methods: Methods, kind: str) -> list[Part]:
    missing = [f"{env} is left out: not all groups have scores there" for env in methods.left_out]
    figure = _figure(lambda: aggregates_figure(methods, kind), "Aggregated scores")
    about = {"text": normalization_text(methods, kind)}
    return [about, {"warnings": missing}, _table(aggregate_table(methods)), figure]


def _outcome(run: Run) -> dict[str, Any]:
    final, best, steps, seconds = run.score("final"), run.score("best"), run.timesteps(), run.seconds()
    return {
        "folder": run.name,
        "status": run.status,
        "return of the last evaluation": None if final is None else decimal(final),
        "return of the best evaluation": None if best is None else decimal(best),
        "environment steps": None if steps is None else f"{steps:,.0f}",
        "time": None if seconds is None else duration(seconds / 3600),
        "error": run.record.get("error"),
    }


def _origin(run: Run) -> dict[str, Any]:
    names = ("command", "seed", "started", "ended", "host", "git_commit", "git_changed")
    versions = value_at(run.record, "versions") or {}
    text = ", ".join(f"{name} {version}" for name, version in versions.items())
    return {**{name: run.record.get(name) for name in names}, "versions": text}


def _video(path: Path) -> Part:
    """Return the video as a part of the page, or where it is if it is too large."""
    content = path.read_bytes()
    if len(content) > VIDEO_LIMIT:
        return {"text": str(path)}
    data = base64.b64encode(content).decode()
    is_gif = path.suffix == ".gif"
    return {"image": data, "kind": "image/gif", "text": path.name} if is_gif else {"video": data}
