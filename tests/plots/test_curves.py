"""Learning curves: points of a run, means over runs, and what the choices change."""

from __future__ import annotations

import timeit
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic_runs import learning, make_run, write_monitor

from zoo.config.compose import ConfigLoader
from zoo.plots.curves import Curve, caption, curve, curves_of, rolling_mean, series_of
from zoo.plots.figures import short_numbers
from zoo.plots.groups import Group, group_runs
from zoo.plots.runs import Series, find_runs, read_run


def line(*points: tuple[float, float]) -> Series:
    x, y = zip(*points, strict=True)
    return Series(np.array(x, float), np.array(y, float))


def curve_of(*lines: Series, aggregate: str = "mean", interval: str = "std") -> Curve:
    return curve(Group("group", "E-v1", []), lines, aggregate, interval)


@pytest.mark.parametrize("window", [1, 2, 5, 6, 50])
def test_rolling_mean_is_centred(window: int) -> None:
    values = np.random.default_rng(0).normal(1e6, 1, 40)
    expected = [
        values[max(0, i - (window - 1) // 2) : i + window // 2 + 1].mean() for i in range(len(values))
    ]
    assert np.allclose(rolling_mean(values, window), expected, rtol=0, atol=1e-8)


def test_rolling_mean_takes_as_long_with_any_window() -> None:
    values = np.random.default_rng(0).normal(1e6, 1, 200_000)

    def seconds(window: int) -> float:
        return min(timeit.repeat(lambda: rolling_mean(values, window), number=1, repeat=3))

    assert seconds(20_000) < 10 * seconds(20)


def test_curve_is_mean_over_interpolated_runs() -> None:
    found = curve_of(line((0, 0), (10, 10)), line((0, 0), (5, 10), (10, 0)))
    assert found.x.tolist() == [0, 5, 10]
    assert found.center.tolist() == [0, 7.5, 5]


def test_curve_of_longest_run_has_no_interval() -> None:
    found = curve_of(line((0, 0), (10, 0), (20, 8)), line((0, 2), (10, 2)))
    assert found.n_runs.tolist() == [2, 2, 1]
    assert found.center.tolist() == [1, 1, 8]
    assert np.allclose(found.low, [1 - 2**0.5, 1 - 2**0.5, np.nan], equal_nan=True)


def test_runs_of_nearly_equal_length_end_together() -> None:
    found = curve_of(line((0, 0), (980, 1)), line((0, 0), (1000, 1)))
    assert (found.x[-1], found.n_runs[-1]) == (980, 2)


def test_curve_interval_matches_pointwise_bootstrap() -> None:
    found = curve_of(*[line((0, float(value))) for value in range(8)], interval="ci")
    means = np.random.default_rng(1).integers(8, size=(20_000, 8)).mean(axis=1)
    assert np.allclose([found.low[0], found.high[0]], np.percentile(means, [2.5, 97.5]), atol=0.2)


def test_episode_steps_count_all_envs(tmp_path: Path) -> None:
    path = make_run(tmp_path, returns=[1, 2], lengths=[10, 30], config={"n_envs": 2})
    write_monitor(path / "monitor" / "1.monitor.csv", [5], [15], "CartPole-v1")
    series = series_of(read_run(path), "steps", "train")
    assert series is not None
    assert (series.x.tolist(), series.y.tolist()) == ([20, 30, 80], [1, 5, 2])


def test_evaluations_and_scalars_plot_by_hour_episode(tmp_path: Path) -> None:
    progress = {
        "time/total_timesteps": [100, 200],
        "time/time_elapsed": [3600, 10800],
        "time/episodes": [10, 30],
        "train/loss": [2, 1],
    }
    run = read_run(make_run(tmp_path, evaluations={150: [1.0]}, progress=progress))
    hours, episodes = series_of(run, "hours", "eval"), series_of(run, "episodes", "train/loss")
    assert hours is not None
    assert episodes is not None
    assert (hours.x.tolist(), episodes.x.tolist()) == ([2], [10, 30])


def test_curve_options_change_plot_and_caption() -> None:
    for seed in range(4):
        noise = np.random.default_rng(seed).normal(0, 20, 300)
        progress = {"time/total_timesteps": [10, 3000], "time/time_elapsed": [1, 9], "train/loss": [seed, 1]}
        given = {"evaluations": learning(seed), "progress": progress, "lengths": [9 + seed] * 300}
        make_run(Path("runs"), seed=seed, returns=list(noise), **given)  # type: ignore[arg-type]
    default = ConfigLoader("plot").settings([])
    choices: list[dict[str, Any]] = [
        *({}, {"x": "episodes"}, {"x": "hours"}, {"y": "eval"}, {"y": "length"}, {"y": "train/loss"}),
        *({"smooth": 1}, {"smooth": 200}, {"aggregate": "iqm"}, {"interval": "std"}, {"interval": "none"}),
    ]
    groups = group_runs([read_run(path) for path in find_runs(["runs"])])
    curves = [curves_of(groups, replace(default, **choice))[0] for choice in choices]
    assert len({str((each.x, each.center, each.low)) for each in curves}) == len(choices)
    make_run(Path("runs"), seed=9, returns=[1.0] * 20, status="failed")
    groups = group_runs([read_run(path) for path in find_runs(["runs"])])
    text = caption(curves_of(groups, default), default)
    for words in (
        "mean of the runs",
        "95 % bootstrap",
        "rolling mean over 100",
        "1 of the runs did not finish",
    ):
        assert words in text


def test_axes_show_thousands_and_millions_shortly() -> None:
    assert [short_numbers()(each) for each in (0, 0.5, 950, 1500, 1e6, 2.5e6, -3e9)] == [
        *("0", "0.5", "950", "1.5k", "1M", "2.5M", "−3G")
    ]
