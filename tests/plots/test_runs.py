"""Finding runs, reading their files, and grouping them."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic_runs import learning, make_run, npz, write_monitor

from zoo.errors import ZooError
from zoo.plots.groups import Group, differences, group_runs, keys_of
from zoo.plots.runs import find_runs, parse_evaluations, parse_monitor, parse_progress, read_run

HEAD = b'#{"t_start": 5.0, "env_id": "CartPole-v1"}\nr,l,t\n'


def test_monitor_is_read_by_its_columns() -> None:
    monitor = parse_monitor(b'#{"t_start": 5, "env_id": "E"}\nl,note,r,t\n7,"a,b",1.5,0.1\n9,,2.5,0.2\n1,')
    assert (monitor.episodes.returns.tolist(), monitor.episodes.lengths.tolist()) == ([1.5, 2.5], [7, 9])
    assert (monitor.t_start, monitor.env_id, monitor.n_damaged) == (5.0, "E", 0)


def test_damaged_rows_are_counted_and_left_out() -> None:
    rows = b"1,2,3\nx,y,z\n1,2\n1,2,3,4\n\xff,2,3\nnan,2,3\n5,-1,3\n5,6,7\n"
    monitor = parse_monitor(HEAD + rows)
    assert (monitor.episodes.returns.tolist(), monitor.n_damaged) == ([1.0, 5.0], 6)


@pytest.mark.parametrize("row", [b"nan,200,2", b"inf,200,2", b"-inf,200,2", b"1,200,nan"])
def test_rows_that_are_not_finite_keep_their_steps(row: bytes) -> None:
    monitor = parse_monitor(HEAD + b"1,900,1\n" + row + b"\n5,900,3\n")
    assert (monitor.episodes.ends.tolist(), monitor.n_damaged) == ([900, 2000], 1)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "no column"),
        (b"\x00\x01\n" * 9, "no column"),
        (b"#{oops\nr,l,t\n", "Expecting"),
        (b"r,t\n1,2\n", "no column"),
    ],
)
def test_what_is_no_monitor_is_refused_in_one_line(content: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as raised:
        parse_monitor(content)
    assert "\n" not in str(raised.value)


def test_progress_keeps_gaps_and_skips_damaged_rows() -> None:
    columns = parse_progress(b"time/total_timesteps,train/loss\n1,0.5\n2,\n3\n4,x\n5,0.1")
    assert np.array_equal(columns["train/loss"], [0.5, np.nan, np.nan], equal_nan=True)


def test_parsing_progress_needs_little_memory() -> None:
    content = b"a,b,c,d\n" + b"1.25,2.5,3.125,1000000.0625\n" * 50_000
    tracemalloc.start()
    columns = parse_progress(content)
    assert tracemalloc.get_traced_memory()[1] < 5 * sum(map(np.size, columns.values())) * 8
    tracemalloc.stop()
    assert columns["d"][-1] == 1000000.0625


def test_evaluations_are_sorted_without_nonfinite_ones() -> None:
    read = parse_evaluations(npz({300: [3.0, 5.0], 100: [1.0, 1.0], 200: [np.nan, 1.0]}))
    assert read is not None
    assert (read.x.tolist(), read.y.tolist()) == ([100, 300], [1.0, 4.0])


@pytest.mark.parametrize("content", [b"", b"no zip", npz({100: [1.0, 2.0]})[:-50]])
def test_what_are_no_evaluations_is_told_in_one_line(content: bytes, tmp_path: Path) -> None:
    path = make_run(tmp_path, evaluations=learning(1))
    (path / "evaluations.npz").write_bytes(content)
    run = read_run(path)
    assert run.evaluations is None
    assert run.problems.keys() == {"evaluations.npz"}
    assert run.problems["evaluations.npz"]
    assert "\n" not in run.problems["evaluations.npz"]


def test_damaged_files_are_named_and_the_rest_is_read(tmp_path: Path) -> None:
    path = make_run(tmp_path, evaluations=learning(1), progress={"time/total_timesteps": [1, 2]})
    (path / "evaluations.npz").write_bytes(b"damaged")
    (path / "config.yaml").write_text("a: [")
    run = read_run(path)
    assert run.evaluations is None
    assert run.episodes is not None
    assert set(run.problems) == {"evaluations.npz", "config.yaml"}
    assert (run.algo, run.env) == ("ppo2", "CartPole-v1")


def groups_in(root: Path, by: str | None = None) -> list[Group]:
    return group_runs([read_run(path) for path in find_runs([str(root)])], keys_of(by))


def labels(groups: list[Group]) -> list[tuple[str, str, int]]:
    return [(group.label, group.env, len(group.runs)) for group in groups]


def with_rate(rate: float) -> dict[str, Any]:
    return {"algo": {"name": "ppo2", "learning_rate": rate, "gamma": 0.99}}


def test_seed_and_logger_do_not_split_groups(tmp_path: Path) -> None:
    for seed in range(3):
        make_run(tmp_path, seed=seed, config={"logger": {"csv": seed > 0}, "job": f"night_{seed}"})
    assert labels(groups_in(tmp_path)) == [("ppo2", "CartPole-v1", 3)]


def test_groups_are_labelled_by_differing_settings(tmp_path: Path) -> None:
    for seed in (1, 2):
        make_run(tmp_path, seed=seed, name=f"a{seed}", config=with_rate(0.001))
        make_run(tmp_path, seed=seed, name=f"b{seed}", config=with_rate(0.01))
    make_run(tmp_path, "a2c")
    make_run(tmp_path, env="ALE/Pong-v5")
    assert labels(groups_in(tmp_path)) == [
        ("ppo2", "ALE/Pong-v5", 1),
        ("a2c", "CartPole-v1", 1),
        ("ppo2, learning_rate=0.001", "CartPole-v1", 2),
        ("ppo2, learning_rate=0.01", "CartPole-v1", 2),
    ]


def test_by_puts_together_what_shares_the_named_keys(tmp_path: Path) -> None:
    make_run(tmp_path, name="a", config=with_rate(0.001))
    make_run(tmp_path, name="b", config=with_rate(0.01), seed=2)
    assert labels(groups_in(tmp_path, "algo")) == [("ppo2", "CartPole-v1", 2)]
    assert [label for label, *_ in labels(groups_in(tmp_path, "algo, algo.learning_rate"))] == [
        "ppo2, learning_rate=0.001",
        "ppo2, learning_rate=0.01",
    ]
    with pytest.raises(ZooError, match=r"did you mean 'algo.learning_rate'"):
        groups_in(tmp_path, "algo.learning_rat")


def test_runs_of_other_libraries_are_grouped_by_folder(tmp_path: Path) -> None:
    for seed in (0, 1):
        (tmp_path / "ppo" / f"CartPole-v1_{seed}").mkdir(parents=True)
        write_monitor(tmp_path / "ppo" / f"CartPole-v1_{seed}" / "0.monitor.csv", [1], [1], "CartPole-v1")
        (tmp_path / f"sb3_dqn_seed{seed}").mkdir()
        (tmp_path / f"sb3_dqn_seed{seed}" / "evaluations.npz").write_bytes(npz(learning(seed)))
    make_run(tmp_path / "runs")
    assert labels(groups_in(tmp_path)) == [
        ("ppo", "CartPole-v1", 2),
        ("ppo2", "CartPole-v1", 1),
        ("sb3_dqn", "CartPole-v1", 2),
    ]


def test_differences_name_every_key_and_both_sides(tmp_path: Path) -> None:
    first = read_run(make_run(tmp_path, name="a", config=with_rate(0.001)))
    second = read_run(make_run(tmp_path, name="b", seed=7, config={**with_rate(0.01), "n_envs": 8}))
    assert differences([first], [second]) == {"algo.learning_rate": ([0.001], [0.01]), "n_envs": ([1], [8])}


def test_find_runs_takes_folders_and_patterns(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / "sweep" / name, seed=1) for name in ("a", "b")]
    assert find_runs([str(tmp_path)]) == runs
    assert find_runs([str(tmp_path / "sweep" / "*")]) == runs
    assert find_runs([str(runs[0]), str(runs[0])]) == runs[:1]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["sweeep"], r"nothing at sweeep; did you mean 'sweep'\?"),
        (["sweep"], "there is no run in sweep"),
        (["*.none"], "nothing at"),
        (["note.txt"], "there is no run in note.txt"),
    ],
)
def test_paths_that_lead_to_no_run_are_told(given: list[str], message: str, working_folder: Path) -> None:
    (working_folder / "sweep").mkdir()
    (working_folder / "note.txt").touch()
    with pytest.raises(ZooError, match=message):
        find_runs(given)


def test_find_runs_skips_unnamed_trials(tmp_path: Path) -> None:
    """The best of many were lucky too: what counts are those that were trained again."""
    study = tmp_path / "tune" / "ppo2" / "CartPole-v1" / "default"
    trial = make_run(study / "trials", seed=5)
    again = make_run(study / "top", seed=6)
    (study / "trials.csv").write_text("trial,state\n")
    assert find_runs([str(tmp_path)]) == [again]
    assert find_runs([str(study / "trials")]) == [trial]
