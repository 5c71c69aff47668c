"""Figures of scores: by environment, aggregated over environments, as profiles, and pair by pair."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from zoo.errors import ZooError
from zoo.files.printing import one_line
from zoo.plots.drawing import COLORS, GREY, caption, look, new_figure, shorten_ticks, title
from zoo.plots.scores import (
    AGGREGATES,
    N_THRESHOLDS,
    SCORE_NAMES,
    GroupScore,
    Methods,
    aggregates,
    improvements,
    profile_thresholds,
)
from zoo.training import statistics

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROWS_LIMIT = 60


def scores_figure(group_scores: Sequence[GroupScore], kind: str, heading: str | None = None) -> Figure:
    """Draw each group's runs as dots, with mean and IQM interval, a panel an environment."""
    shown = [each for each in group_scores if len(each.scores)]
    if not shown:
        raise ZooError(
            "no run has a score: none has finished and was evaluated (score=train takes training episodes)"
        )
    envs = list(dict.fromkeys(each.group.env for each in shown))
    labels = list(dict.fromkeys(each.group.label for each in shown))
    _refuse_too_many(len(envs) * len(labels))
    n_columns = min(3, len(envs))
    n_rows = math.ceil(len(envs) / n_columns)
    height = max(1.6, 0.32 * len(labels) + 0.9)
    figure = new_figure(max(6.4, 3.7 * n_columns), height * n_rows + 0.6)
    panels = figure.subplots(n_rows, n_columns, squeeze=False)
    for axes, env in zip(panels.flat, envs, strict=False):
        title(axes, env)
        _dots(axes, [each for each in shown if each.group.env == env], labels)
        axes.set_xlabel("return")
        shorten_ticks(axes.xaxis)
    for axes in panels.flat[len(envs) :]:
        axes.set_axis_off()
    _head(figure, heading)
    caption(
        figure,
        f"Dot: a run's score, the {SCORE_NAMES[kind]}; diamond: interquartile mean, bar: its 95 % bootstrap"
        " interval.",
    )
    return figure


def _dots(axes: Axes, here: Sequence[GroupScore], labels: Sequence[str]) -> None:
    for each in here:
        place = labels.index(each.group.label)
        color = look(place)["color"]
        _interval(axes, place, each.iqm, each.ci95, color)
        axes.plot(
            each.scores,
            np.full(len(each.scores), place),
            "o",
            color=color,
            alpha=0.35,
            markersize=4,
            mec="none",
        )
    _name_rows(axes, labels)


def _interval(axes: Axes, place: int, value: float, ci95: tuple[float, float] | None, color: str) -> None:
    if ci95 is not None:
        axes.barh(place, ci95[1] - ci95[0], left=ci95[0], height=0.5, color=color, alpha=0.35, linewidth=0)
    axes.plot([value], [place], "D", color=color, markersize=5)


def _name_rows(axes: Axes, labels: Sequence[str]) -> None:
    axes.set_yticks(range(len(labels)), [one_line(label, 50) for label in labels])
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)


def aggregates_figure(methods: Methods, kind: str, heading: str | None = None) -> Figure:
    """Draw median, IQM, mean and optimality gap of the normalised scores, with their intervals."""
    labels = list(methods.scores)
    _refuse_too_many(len(labels))
    found = aggregates(methods)
    figure = new_figure(9.5, max(1.3, 0.3 * len(labels) + 0.8) + 0.7)
    panels = figure.subplots(1, len(AGGREGATES), sharey=True, squeeze=False)
    for column, (axes, name) in enumerate(zip(panels.flat, AGGREGATES, strict=True)):
        title(
            axes, {"median": "Median", "IQM": "IQM", "mean": "Mean", "optimality gap": "Optimality gap"}[name]
        )
        for place, label in enumerate(labels):
            each = found[label][column]
            _interval(axes, place, each.value, each.ci95, look(place)["color"])
        _name_rows(axes, labels)
        shorten_ticks(axes.xaxis)
    _head(figure, heading)
    gap = "The gap is how far runs stay below 1: less is better. Bars: 95 % stratified bootstrap intervals."
    caption(figure, f"{normalisation(methods, kind)} {gap}")
    return figure


def profiles_figure(methods: Methods, kind: str, heading: str | None = None) -> Figure:
    """Draw for each method the share of its runs whose normalised score is above each threshold."""
    labels = list(methods.scores)
    _refuse_too_many(len(labels))
    thresholds = profile_thresholds(methods)
    figure = new_figure(6.4, 4.2)
    axes = figure.subplots()
    for number, label in enumerate(labels):
        strata, style = methods.scores[label], look(number)
        axes.plot(thresholds, statistics.performance_profile(strata, thresholds), label=label, **style)
        if any(len(scores) > 1 for scores in strata):
            resamples = statistics.bootstrapped(
                lambda strata: statistics.performance_profile(strata, thresholds),
                strata,
                n_resamples=2_000,
                width=N_THRESHOLDS,
            )
            low, high = statistics.interval(resamples)
            axes.fill_between(thresholds, low, high, color=style["color"], alpha=0.15, linewidth=0)
    axes.set_xlabel("normalised score τ")
    axes.set_ylabel("share of runs above τ")
    axes.set_ylim(-0.02, 1.02)
    axes.set_xlim(thresholds[0], thresholds[-1])
    title(
        axes, f"Performance profiles, {len(methods.envs)} environment{'' if len(methods.envs) == 1 else 's'}"
    )
    figure.legend(loc="outside upper left", ncols=2 if len(labels) > 4 else 1)
    _head(figure, heading)
    caption(
        figure,
        f"{normalisation(methods, kind)} Higher is better. Bands: 95 % stratified bootstrap intervals.",
    )
    return figure


def improvement_figure(methods: Methods, kind: str, heading: str | None = None) -> Figure:
    """Draw how likely a run of one method beats one of another, for every pair."""
    pairs = improvements(methods)
    n_envs = len(methods.envs)
    over = f", mean over {n_envs} environments" if n_envs > 1 else f" on {methods.envs[0]}"
    if not pairs:
        raise ZooError("figure=improvement compares groups, and there is one only")
    _refuse_too_many(len(pairs))
    figure = new_figure(7.2, max(1.4, 0.36 * len(pairs) + 0.9) + 0.6)
    axes = figure.subplots()
    for place, pair in enumerate(pairs):
        _interval(axes, place, pair.probability, pair.ci95, COLORS[0])
    axes.axvline(0.5, color=GREY, linewidth=1, linestyle=(0, (4, 3)))
    _name_rows(axes, [f"{one_line(pair.first, 30)}  >  {one_line(pair.second, 30)}" for pair in pairs])
    axes.set_xlim(-0.02, 1.02)
    axes.set_xlabel("probability of improvement")
    _head(figure, heading)
    caption(
        figure,
        f"How likely a run of the first beats one of the second{over};"
        f" score: {SCORE_NAMES[kind]}. Bars: 95 % stratified bootstrap intervals; one"
        " across 0.5 decides nothing.",
    )
    return figure


def normalisation(methods: Methods, kind: str) -> str:
    """Return in words what 0 and 1 of the normalised scores are."""
    how = "the lowest run here, 1 the highest" if methods.is_found else "the lower reference, 1 the higher"
    return f"Score: {SCORE_NAMES[kind]}, normalised for each environment: 0 is {how}."


def _head(figure: Figure, heading: str | None) -> None:
    if heading:
        figure.suptitle(one_line(heading, 100), x=0.01, ha="left", fontsize=12, fontweight="bold")


def _refuse_too_many(n_rows: int) -> None:
    if n_rows > ROWS_LIMIT * 4:
        raise ZooError(
            f"{n_rows} rows don't fit into one figure; by=[algo] puts all of an algorithm together"
        )
