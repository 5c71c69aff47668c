"""Monitors, logs and evaluations are read as they are, and nothing of a stranger's file is run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from synthetic_runs import learning, make_run, npz

from zoo.plots.runs import parse_evaluations, parse_monitor, parse_progress, read_run

HEAD = b'#{"t_start": 5.0, "env_id": "CartPole-v1"}\nr,l,t\n'


def test_monitor_is_read_by_its_columns() -> None:
    monitor = parse_monitor(b'#{"t_start": 5, "env_id": "E"}\nl,note,r,t\n7,"a,b",1.5,0.1\n9,,2.5,0.2\n')
    assert (monitor.returns.tolist(), monitor.lengths.tolist()) == ([1.5, 2.5], [7, 9])
    assert (monitor.t_start, monitor.env_id, monitor.n_damaged) == (5.0, "E", 0)


def test_row_that_is_being_written_is_left_out() -> None:
    assert parse_monitor(HEAD + b"1,2,3\n4,5,6").returns.tolist() == [1.0]


def test_damaged_rows_are_counted_and_left_out() -> None:
    rows = b"1,2,3\nx,y,z\n1,2\n1,2,3,4\n\xff,2,3\nnan,2,3\n5,-1,3\n5,6,7\n"
    monitor = parse_monitor(HEAD + rows)
    assert (monitor.returns.tolist(), monitor.n_damaged) == ([1.0, 5.0], 6)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "no column r, l, t"),
        (b"\x00\x01\n" * 9, "no column"),
        (b"#{oops\nr,l,t\n", "Expecting"),
        (b"r,t\n1,2\n", "no column l"),
    ],
)
def test_what_is_no_monitor_is_refused_in_one_line(content: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as raised:
        parse_monitor(content)
    assert "\n" not in str(raised.value)


def test_progress_keeps_gaps_and_skips_damaged_rows() -> None:
    columns, n_damaged = parse_progress(b"time/total_timesteps,train/loss\n1,0.5\n2,\n3\n4,x\n5,0.1")
    assert np.array_equal(columns["train/loss"], [0.5, np.nan, np.nan], equal_nan=True)
    assert n_damaged == 1


def test_evaluations_are_sorted_and_those_not_finite_left_out() -> None:
    read = parse_evaluations(npz({300: [3.0, 5.0], 100: [1.0, 1.0], 200: [np.nan, 1.0]}))
    assert (read.timesteps.tolist(), read.means.tolist()) == ([100, 300], [1.0, 4.0])


@pytest.mark.parametrize("content", [b"", b"no zip", npz({100: [1.0, 2.0]})[:-50]])
def test_what_are_no_evaluations_is_refused_in_one_line(content: bytes) -> None:
    with pytest.raises(ValueError, match=r".") as raised:
        parse_evaluations(content)
    assert "\n" not in str(raised.value)


def test_damaged_files_are_named_and_the_rest_is_read(tmp_path: Path) -> None:
    path = make_run(tmp_path, evaluations=learning(1), progress={"time/total_timesteps": [1, 2]})
    (path / "evaluations.npz").write_bytes(b"damaged")
    (path / "config.yaml").write_text("a: [")
    run = read_run(path)
    assert run.evaluations() is None
    assert run.episodes() is not None
    assert set(run.problems) == {"evaluations.npz", "config.yaml"}
    assert (run.algo, run.env) == ("ppo2", "CartPole-v1")
