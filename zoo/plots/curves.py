"""Learning curves: a panel for each environment, a line for each group, a band for how its runs differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zoo.config.schema import PlotSettings
from zoo.core.printing import one_line
from zoo.errors import ZooError, nearest
from zoo.experiment import statistics
from zoo.plots.groups import Group
from zoo.plots.runs import ELAPSED, STEPS, Run, Series, sorted_series

Array = NDArray[np.float64]

Y_AXES = ("train", "eval", "length")

USUAL_WINDOW = 100
"""Episodes of which a training curve shows the mean, or a tenth of them where there are fewer than 1,000."""

N_POINTS = 400
"""Points of a curve that several runs share, and bins into which longer series are put."""

SAME_LENGTH = 0.93
"""Runs are as long as each other where the shortest has this share of the longest."""

N_RESAMPLES = 2_000

CENTERS = {"mean": statistics.mean_of_means, "iqm": statistics.pooled_iqm}
"""How a group's runs become one line, or one value of a comparison."""


@dataclass(frozen=True)
class Curve:
    """The mean or IQM of a group's runs at shared values of x, with an interval; NaN for a single run."""

    group: Group
    x: Array
    center: Array
    low: Array
    high: Array
    n_runs: NDArray[np.int64]
    """How many runs reached each x."""


def series_of(run: Run, x: str, y: str) -> Series | None:
    """Return a run's points, None without any: ``train``, ``eval``, ``length``, or a scalar as y."""
    episodes, evaluations, progress = run.episodes, run.evaluations, run.progress
    if y in ("train", "length") and episodes is not None:
        return sorted_series(episodes.places(x), episodes.returns if y == "train" else episodes.lengths)
    if y == "eval" and evaluations is not None:
        return _at_steps(run, x, evaluations.x, evaluations.y)
    return _at_steps(run, x, progress[STEPS], progress[y]) if {y, STEPS} <= progress.keys() else None


def _at_steps(run: Run, x: str, steps: Array, values: Array) -> Series | None:
    """Return values at environment steps as a series over steps, episodes or hours."""
    if x == "steps":
        return sorted_series(steps, values)
    progress = run.progress
    name = ELAPSED if x == "hours" else "time/episodes"
    if {name, STEPS} <= progress.keys():
        ruler = sorted_series(progress[STEPS], progress[name] / (3600 if x == "hours" else 1))
    else:
        ruler = None if run.episodes is None else Series(run.episodes.ends, run.episodes.places(x))
    return ruler and sorted_series(np.interp(steps, [0.0, *ruler.x], [0.0, *ruler.y]), values)


def smoothed(series: Series, smooth: int | str, y: str) -> Series:
    """Return each y as the mean of ``smooth`` points; ``auto``: `USUAL_WINDOW`, for episodes alone."""
    if smooth == "auto":
        is_episodes = y in ("train", "length")
        smooth = max(1, min(USUAL_WINDOW, len(series.y) // 10)) if is_episodes else 1
    return Series(series.x, rolling_mean(series.y, int(smooth)))


def rolling_mean(values: Array, window: int) -> Array:
    """Return the mean of the ``window`` values around each: a trailing mean would shift the curve."""
    rows, level = np.arange(len(values)), values.mean()
    first = np.maximum(rows - (window - 1) // 2, 0)
    end = np.minimum(rows + window // 2 + 1, len(values))
    sums = np.concatenate([[0.0], np.cumsum(values - level, dtype=np.float64)])  # kept small by the level
    return np.asarray(level + (sums[end] - sums[first]) / (end - first)) if window > 1 else values


def binned(series: Series) -> Series:
    """Return at most `N_POINTS` points: the means of x and of y in bins of equal width."""
    if len(series.x) <= N_POINTS:
        return series
    counts, edges = np.histogram(series.x, N_POINTS)
    x, y = (np.histogram(series.x, edges, weights=axis)[0] for axis in (series.x, series.y))
    return Series(x[counts > 0] / counts[counts > 0], y[counts > 0] / counts[counts > 0])


def curves_of(groups: Sequence[Group], settings: PlotSettings) -> list[Curve]:
    """Return the curve of each group that has one. Raises `ZooError` if none has."""
    x, y, curves = settings.x, settings.y, []
    for group in groups:
        series = [points for run in group.runs if (points := series_of(run, x, y)) is not None]
        if lines := [binned(smoothed(points, settings.smooth, y)) for points in series]:
            curves.append(curve(group, lines, settings.aggregate, settings.interval))
    if not curves:
        runs = [run for group in groups for run in group.runs]
        scalars = sorted({*Y_AXES, *(name for run in runs for name in run.progress)})
        missing = dict.fromkeys(("train", "length"), "no episode has ended (y=eval shows evaluations)")
        missing["eval"] = "none was evaluated (y=train shows the training episodes)"
        why = missing.get(y, f"none has logged {one_line(y)}{nearest(y, scalars)}")
        raise ZooError(f"nothing to draw from {len(runs)} runs: {why}")
    return curves


def curve(group: Group, all_series: Sequence[Series], aggregate: str, interval: str) -> Curve:
    """Mean or IQM over runs with its interval, on a shared grid of x.

    The grid starts where the last run starts; each x uses the runs that reach it. No extrapolation.
    """
    start = max(series.x[0] for series in all_series)
    ends = [series.x[-1] for series in all_series]
    # Runs of equal steps differ by the end of their last episode.
    end = max(start, min(ends) if min(ends) >= SAME_LENGTH * max(ends) else max(ends))
    grid = np.unique(np.concatenate([series.x for series in all_series]))
    grid = grid[(grid >= start) & (grid <= end)]
    if len(grid) > N_POINTS:
        grid = np.linspace(start, end, N_POINTS)
    values = np.array([np.interp(grid, series.x, series.y, right=np.nan) for series in all_series])
    present = [point[np.isfinite(point)] for point in values.T]
    statistic = CENTERS[aggregate]
    center = np.array([statistic([point]) for point in present])
    low, high = np.array([_band(point, statistic, interval) for point in present], np.float64).T
    return Curve(group, grid, center, low, high, np.array(list(map(len, present))))


def _band(
    values: Array, statistic: Callable[[statistics.Strata], Any], interval: str
) -> tuple[float, float] | None:
    """Return the lower and upper end of the interval at one point, for the values of all runs there."""
    if interval == "none" or len(values) < 2:
        return np.nan, np.nan
    if interval == "std":
        center, std = float(statistic([values])), float(values.std(ddof=1))
        return center - std, center + std
    # Whole runs are resampled: the same seed at each point draws the same runs.
    return statistics.bootstrap_interval(statistic, [values], n_resamples=N_RESAMPLES)


def caption(drawn: Sequence[Curve], options: PlotSettings) -> str:
    """Return the figure's caption: what lines and bands are."""
    parts = []
    if any(len(curve.group.runs) > 1 for curve in drawn):
        parts.append(f"Line: {'interquartile mean' if options.aggregate == 'iqm' else 'mean'} of the runs")
        bands = {"ci": "95 % bootstrap interval over the runs", "std": "± one standard deviation of the runs"}
        if options.interval in bands:
            parts.append(f"band: {bands[options.interval]}")
    if any(curve.n_runs[-1] < curve.n_runs.max() for curve in drawn):
        parts.append("dotted: some runs have ended")
    if options.smooth != "auto":
        parts.append(f"rolling mean over {options.smooth} points")
    elif options.y in ("train", "length"):
        parts.append("rolling mean over 100 episodes (a tenth of shorter runs)")
    n_left = sum(not run.is_complete for curve in drawn for run in curve.group.runs)
    if n_left:
        parts.append(f"{n_left} of the runs did not finish: drawn as far as they came")
    return "; ".join(parts)
