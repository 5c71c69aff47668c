"""One run on a page: return, evaluations, episode length, losses, and where the time went."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from zoo.errors import ZooError
from zoo.plots.curves import x_unit
from zoo.plots.drawing import COLORS, GREY, caption, new_figure, shorten_ticks, title
from zoo.plots.run import Run, number
from zoo.plots.series import binned, extremes, series_of, smoothed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Panel = Callable[["Axes"], None]

N_SCALARS = 5
_FIRST = (
    "loss",
    "entropy",
    "approx_kl",
    "explained_variance",
    "clip_fraction",
    "std",
    "ent_coef",
    "qf",
    "q_",
)
"""Parts of names of scalars that are drawn before others, in this order."""
_SETTINGS = ("n_updates", "learning_rate", "clip_range")

ACTIVITIES = {
    "env": "environments",
    "policy": "acting",
    "update": "updates",
    "compiling": "compiling",
    "evaluation": "evaluation",
    "other": "other",
}
"""What a run records its seconds under, and what that is called."""


def run_figure(run: Run, x: str, smooth: int | str, heading: str | None = None) -> Figure:
    """Draw one run; within `house_style`. Raises `ZooError` if there is nothing in it to draw."""
    panels = _panels(run, x, smooth)
    if not panels:
        raise ZooError(f"nothing to draw in {run.name}: no episode has ended, and nothing was logged")
    n_columns = min(3, len(panels))
    n_rows = math.ceil(len(panels) / n_columns)
    figure = new_figure(3.7 * n_columns, 2.6 * n_rows + 0.8)
    grid = figure.subplots(n_rows, n_columns, squeeze=False)
    for axes, (name, draw) in zip(grid.flat, panels.items(), strict=False):
        title(axes, name)
        draw(axes)
    for axes in grid.flat[len(panels) :]:
        axes.set_axis_off()
    seed = "" if run.seed is None else f", seed {run.seed}"
    figure.suptitle(
        heading or f"{run.algo} on {run.env}{seed}", x=0.01, ha="left", fontsize=12, fontweight="bold"
    )
    caption(figure, _explanation(run, smooth))
    return figure


def _explanation(run: Run, smooth: int | str) -> str:
    window = "100 episodes (a tenth of shorter runs)" if smooth == "auto" else f"{smooth} episodes"
    ending = "" if run.is_whole else f" This run {run.ending}."
    return (
        f"Thick lines: rolling mean over {window}; behind them: each episode, or the range of many.{ending}"
    )


def _panels(run: Run, x: str, smooth: int | str) -> dict[str, Panel]:
    """Return what can be drawn of a run, by title."""
    panels: dict[str, Panel] = {}
    for name, y, color in (
        ("Return in training", "train", COLORS[0]),
        ("Episode length", "length", COLORS[2]),
    ):
        if series_of(run, x, y) is not None:
            panels[name] = lambda axes, y=y, color=color: _episodes(axes, run, x, y, smooth, color)  # type: ignore[misc]
        if y == "train" and series_of(run, x, "eval") is not None:
            panels["Return in evaluation"] = lambda axes: _evaluations(axes, run, x)
    if seconds_by_activity(run):
        panels["Where the time went"] = lambda axes: _time(axes, run)
    for name in training_scalars(run):
        panels[name] = lambda axes, name=name: _scalar(axes, run, x, name)  # type: ignore[misc]
    return panels


def training_scalars(run: Run) -> list[str]:
    """Return the logged scalars of the updates that say most, losses first."""
    columns = run.progress()
    names = [
        name
        for name, values in columns.items()
        if name.startswith("train/")
        and not any(part in name for part in _SETTINGS)
        and np.isfinite(values).sum() > 1
    ]
    ranks = {
        name: next((rank for rank, part in enumerate(_FIRST) if part in name), len(_FIRST)) for name in names
    }
    return sorted(names, key=lambda name: (ranks[name], name))[:N_SCALARS]


def seconds_by_activity(run: Run) -> dict[str, float]:
    """Return on what a run spent how many seconds, as its record says; nothing where it does not."""
    recorded = run.record.get("seconds")
    if not isinstance(recorded, Mapping):
        return {}
    found = {name: number(recorded.get(name)) for name in ACTIVITIES}
    spent = {name: seconds for name, seconds in found.items() if seconds is not None and seconds > 0}
    rest = (run.seconds() or 0.0) - sum(spent.values())
    return {**spent, "other": rest} if spent and rest > 0 else spent


def _episodes(axes: Axes, run: Run, x: str, y: str, smooth: int | str, color: str) -> None:
    series = series_of(run, x, y)
    assert series is not None
    places, low, high = extremes(series)
    scale, x_label = x_unit(x, float(series.x[-1]))
    if len(series.x) > len(places):
        axes.fill_between(places * scale, low, high, color=color, alpha=0.16, linewidth=0)
    else:
        axes.plot(series.x * scale, series.y, color=color, alpha=0.3, linewidth=0.7)
    line = binned(smoothed(series, smooth, y))
    axes.plot(line.x * scale, line.y, color=color, marker="o" if len(line.x) == 1 else "")
    _finish(axes, x_label)


def _evaluations(axes: Axes, run: Run, x: str) -> None:
    series, evaluations = series_of(run, x, "eval"), run.evaluations()
    assert series is not None
    assert evaluations is not None
    spread = evaluations.returns.std(axis=1)
    scale, x_label = x_unit(x, float(series.x[-1]))
    places = series.x * scale
    axes.fill_between(places, series.y - spread, series.y + spread, color=COLORS[1], alpha=0.16, linewidth=0)
    axes.plot(places, series.y, color=COLORS[1], marker="." if len(series.x) <= 60 else "")
    axes.text(
        0.99,
        0.03,
        f"± std of {evaluations.returns.shape[1]} episodes",
        transform=axes.transAxes,
        ha="right",
        fontsize=7,
        color=GREY,
    )
    _finish(axes, x_label)


def _scalar(axes: Axes, run: Run, x: str, name: str) -> None:
    series = series_of(run, x, name)
    if series is None:
        axes.text(0.5, 0.5, f"not known by {x}", transform=axes.transAxes, ha="center", color=GREY)
        return
    line = binned(series)
    scale, x_label = x_unit(x, float(series.x[-1]))
    axes.plot(line.x * scale, line.y, color=COLORS[3], linewidth=1.3)
    _finish(axes, x_label)


def _time(axes: Axes, run: Run) -> None:
    spent = seconds_by_activity(run)
    total = sum(spent.values())
    names = [ACTIVITIES[name] for name in spent]
    axes.barh(names, list(spent.values()), color=COLORS[5], height=0.6)
    for place, seconds in enumerate(spent.values()):
        axes.text(seconds, place, f" {seconds / total:.0%}", va="center", fontsize=8, color="#333333")
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(0, max(spent.values()) * 1.2)
    shorten_ticks(axes.xaxis)
    axes.set_xlabel("seconds")


def _finish(axes: Axes, x_label: str) -> None:
    shorten_ticks(axes.xaxis)
    shorten_ticks(axes.yaxis)
    axes.set_xlim(left=0)
    axes.set_xlabel(x_label)
