"""Every choice about curves changes them, and the figure says in words what it shows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from synthetic_runs import learning, make_run

from zoo.plots.curves import CurveOptions, GroupCurve, caption, curves_of
from zoo.plots.figures import short_number
from zoo.plots.groups import group_runs
from zoo.plots.runs import find_runs, read_run


def drawn(choices: CurveOptions, by: tuple[str, ...] = ()) -> list[GroupCurve]:
    return curves_of(group_runs([read_run(path) for path in find_runs(["runs"])], by), choices)


def four_seeds() -> None:
    for seed in range(4):
        noise = np.random.default_rng(seed).normal(0, 20, 300)
        progress = {"time/total_timesteps": [10, 3000], "time/time_elapsed": [1, 9], "train/loss": [seed, 1]}
        lengths = [9 + seed] * 300
        make_run(
            Path("runs"),
            seed=seed,
            returns=list(noise),
            lengths=lengths,
            evaluations=learning(seed),
            progress=progress,
        )


def test_every_choice_makes_another_curve() -> None:
    four_seeds()
    choices = [
        CurveOptions(),
        CurveOptions(x="episodes"),
        CurveOptions(x="hours"),
        CurveOptions(y="eval"),
        CurveOptions(y="length"),
        CurveOptions(y="train/loss"),
        CurveOptions(smooth=1),
        CurveOptions(smooth=200),
        CurveOptions(aggregate="iqm"),
        CurveOptions(interval="std"),
        CurveOptions(interval="minmax"),
        CurveOptions(interval="none"),
    ]
    curves = {str((each.x, each.center, each.low)) for (one,) in map(drawn, choices) for each in [one.curve]}
    assert len(curves) == len(choices)
    assert [each.group.label for each in drawn(CurveOptions(), ("seed",))] == [
        f"seed={seed}" for seed in range(4)
    ]


def test_figure_says_what_its_lines_and_bands_are() -> None:
    four_seeds()
    make_run(Path("runs"), seed=9, returns=[1.0] * 20, status="failed")
    text = caption(drawn(CurveOptions()), CurveOptions())
    for words in (
        "Line: mean of the runs",
        "95 % bootstrap interval",
        "dotted: some runs have ended",
        "rolling mean over 100 episodes",
        "1 of the runs did not finish",
    ):
        assert words in text


def test_axes_show_thousands_and_millions_shortly() -> None:
    assert [short_number(each) for each in (0, 0.5, 950, 1500, 1e6, 2.5e6, -3e9)] == [
        *("0", "0.5", "950", "1.5k", "1M", "2.5M", "-3G")
    ]
