"""Learning curves: a panel for each environment, a line for each group, a band for how its runs differ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.errors import ZooError
from zoo.files.printing import one_line
from zoo.plots.drawing import caption, look, new_figure, shorten_ticks, title
from zoo.plots.groups import Group
from zoo.plots.series import Curve, binned, curve, series_of, smoothed

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANELS_LIMIT = 60
LINES_LIMIT = 28

X_LABELS = {"steps": "environment steps", "episodes": "episodes", "hours": "hours"}
Y_LABELS = {"train": "return in training", "eval": "return in evaluation", "length": "episode length"}


@dataclass(frozen=True)
class CurveChoices:
    """What is drawn against what, and how runs become one line; see ``conf/plot.yaml``."""

    x: str = "steps"
    y: str = "train"
    smooth: int | str = "auto"
    aggregate: str = "mean"
    interval: str = "ci"


@dataclass(frozen=True)
class DrawnGroup:
    """A group with its curve, and how many of its runs are in it."""

    group: Group
    curve: Curve
    n_runs: int


def curves_of(groups: Sequence[Group], choices: CurveChoices) -> list[DrawnGroup]:
    """Return the curve of each group that has one. Raises `ZooError` if none has."""
    drawn = []
    for group in groups:
        found = []
        for run in group.counted:
            series = series_of(run, choices.x, choices.y)
            if series is not None:
                found.append(binned(smoothed(series, choices.smooth, choices.y)))
            run.forget()
        if found:
            drawn.append(DrawnGroup(group, curve(found, choices.aggregate, choices.interval), len(found)))
    if not drawn:
        missing = {"train": "no episode has ended in them", "length": "no episode has ended in them"}
        missing["eval"] = "none was evaluated (y=train shows the training episodes)"
        why = missing.get(choices.y, f"none has logged {one_line(choices.y)}")
        raise ZooError(f"nothing to draw from {sum(len(group.runs) for group in groups)} runs: {why}")
    return drawn


def curves_figure(drawn: Sequence[DrawnGroup], choices: CurveChoices, heading: str | None = None) -> Figure:
    """Draw the curves; within `house_style`. Raises `ZooError` for more than anybody could tell apart."""
    envs = list(dict.fromkeys(each.group.env for each in drawn))
    labels = list(dict.fromkeys(each.group.label for each in drawn))
    _refuse_too_many(envs, labels)
    n_columns = min(3, len(envs))
    n_rows = math.ceil(len(envs) / n_columns)
    legend_rows = math.ceil(len(labels) / (2 if len(labels) > 4 else 1)) if len(labels) > 1 else 1
    size = (6.4, 4.1) if len(envs) == 1 else (3.7 * n_columns, 2.9 * n_rows)
    figure = new_figure(size[0], size[1] + 0.22 * legend_rows + 0.3)
    panels = figure.subplots(n_rows, n_columns, squeeze=False)
    scale, x_label = x_unit(choices.x, max(float(each.curve.x[-1]) for each in drawn))
    looks = {label: look(number) for number, label in enumerate(labels)}
    handles: dict[str, Artist] = {}
    for axes, env in zip(panels.flat, envs, strict=False):
        for each in (each for each in drawn if each.group.env == env):
            handles[each.group.label] = _draw(axes, each.curve, scale, **looks[each.group.label])
        title(axes, env)
        shorten_ticks(axes.xaxis)
        shorten_ticks(axes.yaxis)
        axes.set_xlim(left=0)
        axes.set_xlabel(x_label)
        axes.set_ylabel(one_line(Y_LABELS.get(choices.y, choices.y), 60))
    for axes in panels.flat[len(envs) :]:
        axes.set_axis_off()
    names = [f"{label} ({_runs(drawn, label)})" for label in labels]
    figure.legend(
        [handles[label] for label in labels],
        names,
        loc="outside upper left",
        ncols=2 if len(labels) > 4 else 1,
    )
    if heading:
        figure.suptitle(one_line(heading, 100), x=0.01, ha="left", fontsize=12, fontweight="bold")
    caption(figure, explanation(drawn, choices))
    return figure


def x_unit(x: str, largest: float) -> tuple[float, str]:
    """Return by what to multiply x, and what it then is: hours of short runs are minutes, or seconds."""
    if x != "hours" or largest >= 1.5:
        return 1.0, X_LABELS[x]
    return (60.0, "minutes") if largest >= 1.5 / 60 else (3600.0, "seconds")


def _refuse_too_many(envs: list[str], labels: list[str]) -> None:
    if len(envs) > PANELS_LIMIT:
        raise ZooError(
            f"{len(envs)} environments don't fit into one figure (at most {PANELS_LIMIT}): name fewer runs"
        )
    if len(labels) > LINES_LIMIT:
        raise ZooError(
            f"{len(labels)} groups can't be told apart in one figure (at most {LINES_LIMIT});"
            " by=[algo] puts all of an algorithm together"
        )


def _draw(axes: Axes, drawn: Curve, scale: float, *, color: str, linestyle: Any) -> Artist:
    """Draw a curve, dotted where some runs have ended, and return what a legend shows."""
    x = drawn.x * scale
    if drawn.low is not None and drawn.high is not None:
        axes.fill_between(x, drawn.low, drawn.high, color=color, alpha=0.18, linewidth=0)
    is_full = drawn.n_runs == drawn.n_runs.max()
    last_full = int(np.flatnonzero(is_full)[-1])
    marker = "o" if len(drawn.x) == 1 else ("." if len(drawn.x) <= 12 else "")
    (handle,) = axes.plot(
        x[: last_full + 1],
        drawn.center[: last_full + 1],
        linestyle=linestyle,
        color=color,
        marker=marker,
    )
    axes.plot(x[last_full:], drawn.center[last_full:], linestyle=":", color=color, linewidth=1.2)
    return handle


def _runs(drawn: Sequence[DrawnGroup], label: str) -> str:
    counts = sorted({each.n_runs for each in drawn if each.group.label == label})
    number = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"{number} run{'' if counts[-1] == 1 else 's'}"


def explanation(drawn: Sequence[DrawnGroup], choices: CurveChoices) -> str:
    """Return in words what lines and bands are."""
    parts = []
    if any(each.n_runs > 1 for each in drawn):
        parts.append(f"Line: {'interquartile mean' if choices.aggregate == 'iqm' else 'mean'} of the runs")
        bands = {"ci": "95 % bootstrap interval over the runs", "std": "± one standard deviation of the runs"}
        bands["minmax"] = "lowest to highest run"
        if choices.interval in bands and any(each.curve.low is not None for each in drawn):
            parts.append(f"band: {bands[choices.interval]}")
        if any(each.curve.n_runs[-1] < each.n_runs for each in drawn):
            parts.append("dotted: some runs have ended")
    window = _window(choices)
    if window:
        parts.append(window)
    n_left = sum(not run.is_whole for each in drawn for run in each.group.counted)
    if n_left:
        parts.append(f"{n_left} of the runs did not finish: drawn as far as they came")
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _window(choices: CurveChoices) -> str:
    unit = (
        "episodes"
        if choices.y in ("train", "length")
        else "evaluations"
        if choices.y == "eval"
        else "log entries"
    )
    if choices.smooth == "auto":
        return "rolling mean over 100 episodes (a tenth of shorter runs)" if unit == "episodes" else ""
    return f"rolling mean over {choices.smooth} {unit}" if int(choices.smooth) > 1 else ""
