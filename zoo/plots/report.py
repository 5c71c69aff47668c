"""Reports: one HTML file about one run, or about many, that can be sent to anybody."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from zoo.errors import ZooError
from zoo.files.plain_data import to_yaml
from zoo.files.printing import decimal
from zoo.plots import html
from zoo.plots.curves import CurveChoices, curves_figure, curves_of
from zoo.plots.drawing import house_style, picture
from zoo.plots.groups import Group, as_typed, differences
from zoo.plots.run import Run, number, problems_of
from zoo.plots.run_figure import run_figure
from zoo.plots.scores import SCORE_NAMES, GroupScore, Methods
from zoo.plots.statistic_figures import (
    aggregates_figure,
    improvement_figure,
    normalisation,
    profiles_figure,
    scores_figure,
)
from zoo.plots.tables import aggregate_table, duration, improvement_table, score_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VIDEO_LIMIT = 12 * 2**20
"""Bytes of a video that goes into the page; a larger one is linked to where it stands."""
RUNS_LIMIT = 1_000
"""Runs that are listed."""


def run_report(run: Run, choices: CurveChoices, out: Path, heading: str | None = None) -> str:
    """Return the page about one run. ``out`` is where it will stand, for links to what stands beside."""
    seed = "" if run.seed is None else f", seed {run.seed}"
    title = heading or f"{run.algo} on {run.env}{seed}"
    parts = [
        html.heading(title, 1),
        f'<p class="lead">{html.escaped(run.name)}</p>',
        "" if run.is_whole else html.warning(f"This run is not complete: it {run.ending}."),
        html.facts(_outcome(run)),
        html.heading("Curves"),
        _drawn(lambda: run_figure(run, choices.x, choices.smooth), f"Curves of {title}"),
        _videos(run, out),
        _card(run),
        html.heading("How it was made"),
        html.facts(_origin(run)),
        _config(run),
        html.warning("Files with problems:", problems_of([run])) if run.problems else "",
        _footer(),
    ]
    return html.page(title, parts)


def sweep_report(
    group_scores: Sequence[GroupScore],
    methods: Methods | None,
    choices: CurveChoices,
    kind: str,
    heading: str | None = None,
) -> str:
    """Return the page about several runs; with ``methods`` also their statistics over environments."""
    groups = [each.group for each in group_scores]
    runs = [run for group in groups for run in group.runs]
    envs = list(dict.fromkeys(group.env for group in groups))
    places = ", ".join([*envs[:3], *(["…"] if len(envs) > 3 else [])])
    title = heading or f"{len(runs)} runs in {len(groups)} groups on {places}"
    unfinished = [f"{run.name}: {run.ending}" for run in runs if not run.is_whole]
    parts = [
        html.heading(title, 1),
        html.warning(f"{len(unfinished)} of {len(runs)} runs did not finish:", unfinished)
        if unfinished
        else "",
        html.heading("Scores"),
        f"<p>Each run's score is the {html.escaped(SCORE_NAMES[kind])}.</p>",
        html.table(score_table(group_scores)),
        _drawn(lambda: scores_figure(group_scores, kind), "Scores of all runs"),
        html.heading("Learning curves"),
        *(_curves(groups, choices, y) for y in dict.fromkeys([choices.y, "eval", "train"])),
        *(_statistics(methods, kind) if methods is not None else ()),
        _told_apart(groups),
        html.heading("Runs"),
        _list_of(groups),
        html.warning("Files with problems:", problems_of(runs)) if any(run.problems for run in runs) else "",
        _footer(),
    ]
    return html.page(title, parts)


def _drawn(draw: Callable[[], Figure], description: str) -> str:
    """Return a figure, or why there is none."""
    try:
        with house_style():
            return html.image(picture(draw(), "svg"), description)
    except ZooError as error:
        return f"<p>{html.escaped(error)}</p>"


def _curves(groups: Sequence[Group], choices: CurveChoices, y: str) -> str:
    these = CurveChoices(
        choices.x, y, choices.smooth if y == choices.y else "auto", choices.aggregate, choices.interval
    )
    return _drawn(lambda: curves_figure(curves_of(groups, these), these), f"Learning curves, {y}")


def _statistics(methods: Methods, kind: str) -> list[str]:
    parts = []
    if len(methods.envs) > 1:
        parts = [
            html.heading("Over all environments"),
            f"<p>{html.escaped(normalisation(methods, kind))}</p>",
            html.table(aggregate_table(methods)),
            _drawn(lambda: aggregates_figure(methods, kind), "Aggregated scores"),
            _drawn(lambda: profiles_figure(methods, kind), "Performance profiles"),
        ]
    if len(methods.scores) > 1:
        parts += [
            html.heading("One against another"),
            html.table(improvement_table(methods)),
            _drawn(lambda: improvement_figure(methods, kind), "Probability of improvement"),
        ]
    if methods.left_out:
        parts.append(html.warning("Environments that not all groups have, left out here:", methods.left_out))
    return parts


def _outcome(run: Run) -> dict[str, Any]:
    evaluation, final = run.record.get("evaluation"), run.score("final")
    spread = number(evaluation.get("std_return")) if isinstance(evaluation, Mapping) else None
    best, steps, seconds = run.score("best"), run.timesteps(), run.seconds()
    speed = number(run.record.get("steps_per_second"))
    return {
        "algorithm": run.algo,
        "environment": run.env,
        "status": run.status,
        "return of the last evaluation": None
        if final is None
        else decimal(final) + ("" if spread is None else f" ± {decimal(spread)}"),
        "return of the best evaluation": None if best is None else decimal(best),
        "environment steps": None if steps is None else f"{steps:,.0f}",
        "time": None if seconds is None else duration(seconds / 3600),
        "steps per second": None if speed is None else f"{speed:,.0f}",
        "error": run.record.get("error"),
    }


def _origin(run: Run) -> dict[str, Any]:
    record = run.record
    versions = record.get("versions")
    commit = record.get("git_commit")
    changed = " (with changes)" if record.get("git_changed") else ""
    return {
        "command": record.get("command"),
        "seed": run.seed,
        "started": record.get("started"),
        "ended": record.get("ended"),
        "host": record.get("host"),
        "git commit": None if commit is None else f"{commit}{changed}",
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items())
        if isinstance(versions, Mapping)
        else None,
    }


def _config(run: Run) -> str:
    return "" if run.config is None else html.folded("config.yaml: the whole config", to_yaml(run.config))


def _card(run: Run) -> str:
    for agent in ("best_agent", "agent"):
        card = run.path / agent / "README.md"
        if card.is_file():
            text = card.read_text(encoding="utf-8", errors="replace")
            return html.heading("Agent") + html.folded(f"{agent}/README.md: its card", text)
    return ""


def _videos(run: Run, out: Path) -> str:
    """Return the newest video, inside the page if it is small enough, and links to the others."""
    try:
        names = sorted(
            name
            for name in os.listdir(run.path / "videos")
            if name.endswith((".mp4", ".gif")) and name[0] != "."
        )
    except OSError:
        return ""
    parts = []
    for place, name in enumerate(reversed(names[-10:])):
        parts.append(_video(run, name, out, inside=place == 0))
    return html.heading("Video") + "".join(parts) if parts else ""


def _video(run: Run, name: str, out: Path, *, inside: bool) -> str:
    path = run.path / "videos" / name
    if inside and path.stat().st_size <= VIDEO_LIMIT:
        content = path.read_bytes()
        return html.image(content, name, "gif") if name.endswith(".gif") else html.video(content)
    beside = os.path.relpath(path.absolute(), out.absolute().parent)
    return f'<p><a href="{html.escaped(quote(beside))}">{html.escaped(name, 200)}</a></p>'


def _told_apart(groups: Sequence[Group]) -> str:
    """Return the values of the configs that differ between the groups of an environment."""
    parts = []
    for env in dict.fromkeys(group.env for group in groups):
        here = [group for group in groups if group.env == env and any(run.config for run in group.runs)]
        found: dict[str, list[Any]] = {}
        for other in here[1:]:
            for key, (first, second) in differences(here[0].runs, other.runs).items():
                found.setdefault(key, [first]).append(second)
        if found and len(here) == 2:
            cells = [
                [key, *(", ".join(map(as_typed, values)) or "–" for values in found[key])]
                for key in sorted(found)
            ]
            parts.append(html.rows(["", *(group.label for group in here)], cells[:100]))
    return html.heading("Where their configs differ") + "".join(parts) if parts else ""


def _list_of(groups: Sequence[Group]) -> str:
    cells = [
        [group.label, group.env, "" if run.seed is None else run.seed, run.status or "–", run.name]
        for group in groups
        for run in group.runs
    ]
    more = f"<p>… and {len(cells) - RUNS_LIMIT:,} more</p>" if len(cells) > RUNS_LIMIT else ""
    return html.rows(["group", "environment", "seed", "status", "folder"], cells[:RUNS_LIMIT]) + more


def _footer() -> str:
    from zoo.version import __version__

    return f"<footer>Written by zoo {html.escaped(__version__)}; this page loads and runs nothing.</footer>"
