"""Reports: one HTML file about one run, or about many, that can be sent to anybody."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import jinja2

from zoo.core.plain_data import to_yaml
from zoo.core.printing import decimal, one_line, printable
from zoo.errors import ZooError
from zoo.plots.curves import CurveOptions, curves_of
from zoo.plots.figures import (
    aggregates_figure,
    curves_figure,
    house_style,
    improvement_figure,
    normalization_text,
    profiles_figure,
    render,
    run_figure,
    scores_figure,
)
from zoo.plots.groups import Group, as_override, differences
from zoo.plots.runs import Run, finite_number, problems_of
from zoo.plots.scores import SCORE_NAMES, GroupScore, Methods
from zoo.plots.tables import aggregate_table, duration, improvement_table, score_table
from zoo.version import __version__

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VIDEO_LIMIT = 12 * 2**20
"""Bytes of a video that goes into the page; a larger one is linked to where it stands."""
RUNS_LIMIT = 1_000
"""Runs that are listed."""


def run_report(run: Run, choices: CurveOptions, out: Path, heading: str | None = None) -> str:
    """Return the page about one run. ``out`` is its file, which links to videos are relative to."""
    seed = "" if run.seed is None else f", seed {run.seed}"
    title = heading or f"{run.algo} on {run.env}{seed}"
    about = {
        "name": run.name,
        "ending": None if run.is_complete else run.ending,
        "outcome": _outcome(run),
        "curves": _figure(lambda: run_figure(run, choices.x, choices.smooth), f"Curves of {title}"),
        "videos": _videos(run, out),
        "card": _card(run),
        "origin": _origin(run),
        "config": None if run.config is None else to_yaml(run.config),
    }
    return _page(title, problems_of([run]), run=about)


def sweep_report(
    group_scores: Sequence[GroupScore],
    methods: Methods | None,
    choices: CurveOptions,
    kind: str,
    heading: str | None = None,
) -> str:
    """Return the page about several runs; with ``methods`` also their statistics over environments."""
    groups = [each.group for each in group_scores]
    runs = [run for group in groups for run in group.runs]
    envs = list(dict.fromkeys(group.env for group in groups))
    places = ", ".join([*envs[:3], *(["…"] if len(envs) > 3 else [])])
    about = {
        "unfinished": [f"{run.name}: {run.ending}" for run in runs if not run.is_complete],
        "score_name": SCORE_NAMES[kind],
        "scores": score_table(group_scores),
        "scores_figure": _figure(lambda: scores_figure(group_scores, kind), "Scores of all runs"),
        "curves": [_curves_figure(groups, choices, y) for y in dict.fromkeys([choices.y, "eval", "train"])],
        **_statistics(methods, kind),
        "differences": _config_tables(groups),
        "runs": [
            [group.label, group.env, "" if run.seed is None else run.seed, run.status or "–", run.name]
            for group in groups
            for run in group.runs
        ],
        "runs_limit": RUNS_LIMIT,
    }
    title = heading or f"{len(runs)} runs in {len(groups)} groups on {places}"
    return _page(title, problems_of(runs), sweep=about)


def _page(title: str, problems: Sequence[str], **about: Mapping[str, Any]) -> str:
    """Return the template filled in; every text is escaped, and without control characters."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        finalize=lambda value: value if hasattr(value, "__html__") else printable(value),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    template = environment.get_template("report.html.j2")
    return template.render(title=one_line(title, 300), problems=problems, version=__version__, **about)


def _figure(draw: Callable[[], Figure], description: str) -> dict[str, str]:
    """Return a figure as an image, or why there is none."""
    try:
        with house_style():
            return _image(render(draw(), "svg"), "svg+xml", description)
    except ZooError as error:
        return {"text": str(error)}


def _image(content: bytes, kind: str, text: str) -> dict[str, str]:
    return {"kind": kind, "data": base64.b64encode(content).decode(), "text": text}


def _curves_figure(groups: Sequence[Group], choices: CurveOptions, y: str) -> dict[str, str]:
    these = replace(choices, y=y, smooth=choices.smooth if y == choices.y else "auto")
    return _figure(lambda: curves_figure(curves_of(groups, these), these), f"Learning curves, {y}")


def _statistics(methods: Methods | None, kind: str) -> dict[str, Any]:
    if methods is None:
        return {}
    found: dict[str, Any] = {"envs_left_out": methods.left_out}
    if len(methods.envs) > 1:
        found["aggregates"] = {
            "normalization_text": normalization_text(methods, kind),
            "table": aggregate_table(methods),
            "figure": _figure(lambda: aggregates_figure(methods, kind), "Aggregated scores"),
            "profiles": _figure(lambda: profiles_figure(methods, kind), "Performance profiles"),
        }
    if len(methods.scores) > 1:
        found["improvements"] = {
            "table": improvement_table(methods),
            "figure": _figure(lambda: improvement_figure(methods, kind), "Probability of improvement"),
        }
    return found


def _outcome(run: Run) -> dict[str, Any]:
    evaluation, final = run.record.get("evaluation"), run.score("final")
    spread = finite_number(evaluation.get("std_return")) if isinstance(evaluation, Mapping) else None
    best, steps, seconds = run.score("best"), run.timesteps(), run.seconds()
    speed = finite_number(run.record.get("steps_per_second"))
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


def _card(run: Run) -> tuple[str, str] | None:
    """Return heading and text of the best agent's card."""
    for agent in ("best_agent", "agent"):
        card = run.path / agent / "README.md"
        if card.is_file():
            return f"{agent}/README.md: its card", card.read_text(encoding="utf-8", errors="replace")
    return None


def _videos(run: Run, out: Path) -> list[dict[str, str]]:
    """Return the newest video, embedded if it is small enough, and links to the others."""
    paths = sorted(path for kind in ("mp4", "gif") for path in (run.path / "videos").glob(f"[!.]*.{kind}"))
    found = []
    for path in reversed(paths[-10:]):
        if path == paths[-1] and path.stat().st_size <= VIDEO_LIMIT:
            found.append(_image(path.read_bytes(), path.suffix[1:], path.name))
        else:
            address = quote(os.path.relpath(path.absolute(), out.absolute().parent))
            found.append({"href": address, "text": path.name})
    return found


def _config_tables(groups: Sequence[Group]) -> list[tuple[list[str], list[list[str]]]]:
    """Return tables of the config values that differ between the two groups of an environment."""
    tables = []
    for env in dict.fromkeys(group.env for group in groups):
        here = [group for group in groups if group.env == env and any(run.config for run in group.runs)]
        if len(here) == 2:
            found = differences(here[0].runs, here[1].runs)
            cells = [
                [key, *(", ".join(map(as_override, values)) or "–" for values in found[key])]
                for key in sorted(found)
            ]
            if cells:
                tables.append((["", *(group.label for group in here)], cells[:100]))
    return tables
