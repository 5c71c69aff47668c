"""Learning curves: a panel for each environment, a line for each group, a band for how its runs differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zoo.core.printing import one_line
from zoo.errors import ZooError, nearest
from zoo.experiment import statistics
from zoo.plots.groups import Group
from zoo.plots.runs import ELAPSED, STEPS, Run

Array = NDArray[np.float64]

Y_AXES = ("train", "eval", "length")

USUAL_WINDOW = 100
"""Episodes of which a training curve shows the mean, or a tenth of them where there are fewer than 1,000."""
N_POINTS = 400
"""Points of a curve that several runs share, and bins into which longer series are put."""

SAME_LENGTH = 0.93
"""Runs are as long as each other where the shortest has this share of the longest."""

N_RESAMPLES = 2_000


@dataclass(frozen=True)
class Series:
    """Points in the order of x."""

    x: Array
    y: Array


@dataclass(frozen=True)
class Curve:
    """The mean or IQM of several runs at shared values of x, with an interval."""

    x: Array
    center: Array
    low: Array | None
    high: Array | None
    n_runs: NDArray[np.int64]
    """How many runs reached each x."""


def series_of(run: Run, x: str, y: str) -> Series | None:
    """Return the points of one run: y is ``train``, ``eval``, ``length``, or a scalar of ``progress.csv``.

    None where the run has no such points.
    """
    if y in ("train", "length"):
        return _episodes(run, x, y)
    if y == "eval":
        evaluations = run.evaluations()
        return None if evaluations is None else _at_steps(run, x, evaluations.timesteps, evaluations.means)
    progress = run.progress()
    if y not in progress or STEPS not in progress:
        return None
    return _at_steps(run, x, progress[STEPS], progress[y])


def _episodes(run: Run, x: str, y: str) -> Series | None:
    episodes = run.episodes()
    if episodes is None:
        return None
    values = episodes.returns if y == "train" else episodes.lengths
    if x == "episodes":
        return Series(np.arange(1.0, len(values) + 1), values)
    return _sorted_series(episodes.ends if x == "steps" else episodes.seconds / 3600, values)


def _at_steps(run: Run, x: str, steps: Array, values: Array) -> Series | None:
    """Return values at environment steps as a series over steps, episodes or hours."""
    if x == "steps":
        return _sorted_series(steps, values)
    ruler = _steps_to_x(run, x)
    if ruler is None:
        return None
    return _sorted_series(np.interp(steps, *ruler), values)


def _steps_to_x(run: Run, x: str) -> tuple[Array, Array] | None:
    """Return environment steps, and the episodes or hours at each."""
    progress = run.progress()
    name, unit = (ELAPSED, 3600.0) if x == "hours" else ("time/episodes", 1.0)
    if name in progress and STEPS in progress:
        known = np.isfinite(progress[name]) & np.isfinite(progress[STEPS])
        steps, gone_by = progress[STEPS][known], progress[name][known] / unit
    else:
        episodes = run.episodes()
        if episodes is None:
            return None
        steps = episodes.ends
        gone_by = episodes.seconds / 3600 if x == "hours" else np.arange(1.0, len(steps) + 1)
    if not len(steps):
        return None
    order = np.argsort(steps, kind="stable")
    return np.concatenate([[0.0], steps[order]]), np.concatenate([[0.0], gone_by[order]])


def _sorted_series(x: Array, y: Array) -> Series | None:
    known = np.isfinite(x) & np.isfinite(y)
    x, y = x[known], y[known]
    if not len(x):
        return None
    order = np.argsort(x, kind="stable")
    return Series(x[order], y[order])


def known_scalars(runs: Sequence[Run]) -> list[str]:
    """Return the names of all scalars that these runs have logged."""
    return sorted({name for run in runs for name in run.progress()})


def refuse_unknown_scalar(y: str, runs: Sequence[Run]) -> None:
    """Raise `ZooError` if no run has logged a scalar of this name."""
    if y in Y_AXES:
        return
    names = known_scalars(runs)
    if y not in names:
        there = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
        raise ZooError(
            f"y={one_line(y)}: no run has logged that{nearest(y, [*Y_AXES, *names])} (train, eval, length"
            f"{', or a scalar such as ' + there if names else ''})"
        )


def smoothed(series: Series, smooth: int | str, y: str) -> Series:
    """Return the series with each y the mean of the ``smooth`` points around it.

    ``auto``: `USUAL_WINDOW` for episodes, nothing for evaluations and scalars.
    """
    if smooth == "auto":
        is_episodes = y in ("train", "length")
        smooth = max(1, min(USUAL_WINDOW, len(series.y) // 10)) if is_episodes else 1
    return Series(series.x, rolling_mean(series.y, int(smooth)))


def rolling_mean(values: Array, window: int) -> Array:
    """Return the mean of the ``window`` values around each; at the ends, of fewer.

    It is centred: a trailing mean would shift the curve.
    """
    if window <= 1 or len(values) < 2:
        return values
    middle = values.mean()
    sums = np.concatenate([[0.0], np.cumsum(values - middle)])
    places = np.arange(len(values))
    first = np.maximum(places - (window - 1) // 2, 0)
    last = np.minimum(places + window // 2 + 1, len(values))
    means: Array = middle + (sums[last] - sums[first]) / (last - first)
    return means


def binned(series: Series, n_bins: int = N_POINTS) -> Series:
    """Return at most ``n_bins`` points: the means of x and of y in bins of equal width."""
    if len(series.x) <= n_bins:
        return series
    places, counts = _bins(series.x, n_bins)
    filled = counts > 0
    x = np.bincount(places, series.x, n_bins)[filled] / counts[filled]
    y = np.bincount(places, series.y, n_bins)[filled] / counts[filled]
    return Series(x, y)


def binned_range(series: Series, n_bins: int = N_POINTS) -> tuple[Array, Array, Array]:
    """Return x, lowest and highest y in at most ``n_bins`` bins of equal width."""
    if len(series.x) <= n_bins:
        return series.x, series.y, series.y
    places, counts = _bins(series.x, n_bins)
    low, high = np.full(n_bins, np.inf), np.full(n_bins, -np.inf)
    np.minimum.at(low, places, series.y)
    np.maximum.at(high, places, series.y)
    filled = counts > 0
    x = np.bincount(places, series.x, n_bins)[filled] / counts[filled]
    return x, low[filled], high[filled]


def _bins(x: Array, n_bins: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    width = max(x[-1] - x[0], np.finfo(float).tiny)
    places = np.minimum(((x - x[0]) / width * n_bins).astype(np.int64), n_bins - 1)
    return places, np.bincount(places, minlength=n_bins)


def curve(all_series: Sequence[Series], aggregate: str, interval: str) -> Curve:
    """Return the mean or IQM over runs with its interval, on a grid of x that all share.

    The grid begins where every run has begun, and each x has the runs that have got there. Between their own
    points runs are interpolated, never beyond them. A single run has no interval.
    """
    thinned = [binned(series) for series in all_series]
    start = max(series.x[0] for series in thinned)
    end = max(start, _end([series.x[-1] for series in thinned]))
    points = np.unique(np.concatenate([series.x for series in thinned]))
    if len(points) <= N_POINTS:
        grid = points[(points >= start) & (points <= end)]
    else:
        grid = np.linspace(start, end, N_POINTS) if end > start else np.array([start])
    values = np.array([np.interp(grid, each.x, each.y, right=np.nan) for each in thinned])
    return _aggregated(grid, values, aggregate, interval)


def _end(last: Sequence[float]) -> float:
    """Return where the grid ends: with the longest run, or the shortest if all are about as long.

    Runs of equal steps differ by the end of the last episode.
    """
    return min(last) if min(last) >= SAME_LENGTH * max(last) else max(last)


def _aggregated(grid: Array, values: Array, aggregate: str, interval: str) -> Curve:
    """Return the curve of values (n_runs, n_points), NaN beyond the end of a run."""
    n_runs = np.isfinite(values).sum(axis=0)
    grid, values, n_runs = grid[n_runs > 0], values[:, n_runs > 0], n_runs[n_runs > 0]
    present = [point[np.isfinite(point)] for point in values.T]
    center = np.array([_center(point, aggregate) for point in present])
    if interval == "none" or n_runs.max() == 1:
        return Curve(grid, center, None, None, n_runs)
    bands = [_band(point, aggregate, interval) if len(point) > 1 else (np.nan, np.nan) for point in present]
    low, high = np.array(bands, np.float64).T
    return Curve(grid, center, low, high, n_runs)


def _center(values: Array, aggregate: str) -> Any:
    """Return mean or IQM over the last axis."""
    return statistics.iqm(values) if aggregate == "iqm" else values.mean(axis=-1)


def _band(values: Array, aggregate: str, interval: str) -> tuple[float, float]:
    """Return the lower and upper end of the interval at one point, for the values of all runs there."""
    if interval == "minmax":
        return values.min(), values.max()
    if interval == "std":
        center, std = _center(values, aggregate), values.std(ddof=1)
        return center - std, center + std
    # Whole runs are resampled: the same seed at each point draws the same runs.
    drawn = np.random.default_rng(0).integers(len(values), size=(N_RESAMPLES, len(values)))
    low, high = statistics.interval(_center(values[drawn], aggregate))
    return low, high


@dataclass(frozen=True)
class CurveOptions:
    """The axes of curves, and how runs become one line; see ``conf/plot.yaml``."""

    x: str = "steps"
    y: str = "train"
    smooth: int | str = "auto"
    aggregate: str = "mean"
    interval: str = "ci"


@dataclass(frozen=True)
class GroupCurve:
    """A group with its curve, and how many of its runs are in it."""

    group: Group
    curve: Curve
    n_runs: int


def curves_of(groups: Sequence[Group], choices: CurveOptions) -> list[GroupCurve]:
    """Return the curve of each group that has one. Raises `ZooError` if none has."""
    drawn = []
    for group in groups:
        found = []
        for run in group.counted:
            series = series_of(run, choices.x, choices.y)
            if series is not None:
                found.append(binned(smoothed(series, choices.smooth, choices.y)))
            run.clear_cache()
        if found:
            drawn.append(GroupCurve(group, curve(found, choices.aggregate, choices.interval), len(found)))
    if not drawn:
        missing = {"train": "no episode has ended in them", "length": "no episode has ended in them"}
        missing["eval"] = "none was evaluated (y=train shows the training episodes)"
        why = missing.get(choices.y, f"none has logged {one_line(choices.y)}")
        raise ZooError(f"nothing to draw from {sum(len(group.runs) for group in groups)} runs: {why}")
    return drawn


def caption(drawn: Sequence[GroupCurve], choices: CurveOptions) -> str:
    """Return the figure's caption: what lines and bands are."""
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
    n_left = sum(not run.is_complete for each in drawn for run in each.group.counted)
    if n_left:
        parts.append(f"{n_left} of the runs did not finish: drawn as far as they came")
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _window(choices: CurveOptions) -> str:
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
