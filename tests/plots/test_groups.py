"""Runs that differ in their seed alone are one group, whoever trained them; labels say what differs else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from synthetic_runs import learning, make_run, npz, write_monitor

from zoo.errors import ZooError
from zoo.plots.groups import Group, differences, group_runs, keys_of
from zoo.plots.runs import find_runs, read_run


def groups_in(root: Path, by: str | None = None) -> list[Group]:
    return group_runs([read_run(path) for path in find_runs([str(root)])], keys_of(by))


def labels(groups: list[Group]) -> list[tuple[str, str, int]]:
    return [(group.label, group.env, len(group.runs)) for group in groups]


def with_rate(rate: float) -> dict[str, Any]:
    return {"algo": {"name": "ppo2", "learning_rate": rate, "gamma": 0.99}}


def test_runs_that_differ_in_seed_and_what_is_only_shown_are_one_group(tmp_path: Path) -> None:
    for seed in range(3):
        make_run(tmp_path, seed=seed, config={"logger": {"csv": seed > 0}, "job": f"night_{seed}"})
    assert labels(groups_in(tmp_path)) == [("ppo2", "CartPole-v1", 3)]


def test_groups_of_an_algorithm_are_called_after_what_differs(tmp_path: Path) -> None:
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


def test_peers_runs_are_grouped_and_called_by_their_folders(tmp_path: Path) -> None:
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
    assert differences([first], [second]) == {
        "algo.learning_rate": ([0.001], [0.01]),
        "n_envs": ([1], [8]),
    }


def test_runs_are_found_below_folders_by_patterns_and_by_what_is_in_them(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / "sweep" / name, seed=1) for name in ("a", "b")]
    agent = runs[0] / "best_agent"
    agent.mkdir()
    (agent / "policy.safetensors").touch()
    assert find_runs([str(tmp_path)]) == runs
    assert find_runs([str(tmp_path / "sweep" / "*")]) == runs
    assert find_runs([str(agent), str(runs[0]), str(runs[0] / "run.json")]) == runs[:1]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["sweeep"], r"nothing at sweeep; did you mean 'sweep'\?"),
        (["sweep"], "there is no run in sweep"),
        (["*.none"], "no path is like"),
        (["note.txt"], "is no run"),
    ],
)
def test_paths_that_lead_to_no_run_are_told(given: list[str], message: str, working_folder: Path) -> None:
    (working_folder / "sweep").mkdir()
    (working_folder / "note.txt").touch()
    with pytest.raises(ZooError, match=message):
        find_runs(given)


def test_trials_of_a_study_are_left_out_unless_they_are_named(tmp_path: Path) -> None:
    """The best of many were lucky too: what counts are those that were trained again."""
    study = tmp_path / "tune" / "ppo2" / "CartPole-v1" / "default"
    trial = make_run(study / "trials", seed=5)
    again = make_run(study / "top", seed=6)
    (study / "trials.csv").write_text("trial,state\n")
    assert find_runs([str(tmp_path)]) == [again]
    assert find_runs([str(study / "trials")]) == [trial]


def test_values_that_mean_the_same_are_one_group(tmp_path: Path) -> None:
    spelled_out = {"type": "linear", "start": 0.001, "end": 0}
    for seed, rate in enumerate(["lin_1e-3", "lin_0.001", "linear_0.0010", spelled_out]):
        config = {"algo": {"name": "ppo2", "learning_rate": rate, "gamma": 1.0 if seed else 1}}
        make_run(tmp_path, seed=seed, name=f"a{seed}", config=config)
    assert labels(groups_in(tmp_path)) == [("ppo2", "CartPole-v1", 4)]
    (group,) = groups_in(tmp_path)
    assert not differences(group.runs[:1], group.runs[1:])
    make_run(tmp_path, seed=9, name="b", config={"algo": {"name": "ppo2", "learning_rate": "cos_1e-3"}})
    assert len(groups_in(tmp_path)) == 2
