"""`zoo compare` says as much as the runs do, and no more."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic_runs import make_run

from zoo.cli import status_of


def runs_of(algo: str, scores: list[float], *, env: str = "CartPole-v1", **options: Any) -> None:
    for seed, score in enumerate(scores):
        noise = np.random.default_rng(seed).normal(0, 1, 20)
        noise -= noise.mean()
        make_run(Path("runs"), algo, env, seed, evaluations={200: list(score + noise)}, **options)


def compared(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, dict[str, Any]]:
    capsys.readouterr()
    assert status_of(["compare", *(arguments or ("runs/ppo2", "runs/a2c"))]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    return "\n".join(lines), json.loads(last)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert status_of(["compare", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


def test_clear_difference_of_five_seeds_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    runs_of("ppo2", [90, 95, 100, 105, 110])
    runs_of("a2c", [10, 15, 20, 25, 30])
    text, said = compared(capsys)
    found = said["envs"]["CartPole-v1"]
    assert (said["a"], said["b"], found["better"], found["basis"]) == ("ppo2", "a2c", "a", "seeds")
    assert (found["difference"], found["probability_of_improvement"]) == (pytest.approx(80), 1.0)
    assert found["ci95"][0] < 80 < found["ci95"][1]
    assert "ppo2 is better, by 80.00" in text
    _, turned = compared(capsys, "runs/a2c", "runs/ppo2")
    assert turned["envs"]["CartPole-v1"]["better"] == "b"


def test_overlapping_groups_are_not_decided(capsys: pytest.CaptureFixture[str]) -> None:
    runs_of("ppo2", [10, 50, 90, 130, 170])
    runs_of("a2c", [20, 45, 95, 120, 160])
    text, said = compared(capsys)
    assert said["envs"]["CartPole-v1"]["better"] is None
    assert "not decided" in text


def test_two_seeds_each_are_too_few_however_clear_they_look(capsys: pytest.CaptureFixture[str]) -> None:
    runs_of("ppo2", [100, 101])
    runs_of("a2c", [1, 2])
    text, said = compared(capsys)
    found = said["envs"]["CartPole-v1"]
    assert (found["ahead"], found["better"]) == ("a", None)
    assert "would differ as much in 1 of 3" in text


def test_one_seed_each_says_nothing_beyond_evaluation_noise(capsys: pytest.CaptureFixture[str]) -> None:
    runs_of("ppo2", [100])
    runs_of("a2c", [1])
    text, said = compared(capsys)
    found = said["envs"]["CartPole-v1"]
    assert (found["basis"], found["better"], found["probability_of_improvement"]) == ("episodes", None, None)
    assert found["ci95"] is not None
    assert "nothing can be said about ppo2 and a2c beyond evaluation noise" in text


def test_single_run_against_a_group_has_no_interval(capsys: pytest.CaptureFixture[str]) -> None:
    runs_of("ppo2", [100, 101, 102, 103])
    runs_of("a2c", [1])
    text, said = compared(capsys)
    found = said["envs"]["CartPole-v1"]
    assert (found["ci95"], found["better"]) == (None, None)
    assert "of a2c there is a single run" in text


def test_what_differs_in_the_configs_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    runs_of("ppo2", [1, 2])
    runs_of("a2c", [1, 2], config={"n_envs": 8})
    text, said = compared(capsys)
    assert "n_envs: 1 | 8" in text
    assert said["config_differences"] == {
        "algo.name": {"a": ["ppo2"], "b": ["a2c"]},
        "n_envs": {"a": [1], "b": [8]},
    }


def test_environments_are_compared_each_and_together(capsys: pytest.CaptureFixture[str]) -> None:
    for env in ("A-v1", "B-v1"):
        runs_of("ppo2", [90, 95, 100], env=env)
        runs_of("a2c", [10, 15, 20], env=env)
    _, said = compared(capsys)
    assert list(said["envs"]) == ["A-v1", "B-v1"]
    overall = said["overall"]
    assert (overall["better"], overall["n_runs"], overall["probability_of_improvement"]) == ("a", [6, 6], 1.0)
    assert 0.8 < overall["difference"] < 1


def test_the_two_groups_of_one_sweep_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    runs_of("ppo2", [1, 2])
    runs_of("a2c", [3, 4])
    _, said = compared(capsys, "runs")
    assert (said["a"], said["b"]) == ("a2c", "ppo2")


def test_failed_runs_are_told_and_not_compared(capsys: pytest.CaptureFixture[str]) -> None:
    runs_of("ppo2", [1, 2])
    runs_of("a2c", [3, 4])
    make_run(Path("runs"), "a2c", seed=9, evaluations={1: [999.0]}, status="failed")
    text, said = compared(capsys)
    assert said["envs"]["CartPole-v1"]["n_runs"] == [2, 2]
    assert "left out: 1" in text
    assert "runs/a2c/CartPole-v1/s9" in said["left_out"][0]


def test_what_can_not_be_compared_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert "which runs?" in refused(capsys)
    runs_of("ppo2", [1, 2])
    runs_of("a2c", [3], env="Acrobot-v1")
    assert "share no environment" in refused(capsys, "runs/ppo2", "runs/a2c")
    assert "3 paths were given" in refused(capsys, "runs/ppo2", "runs/a2c", "runs")
    assert "both sides hold" in refused(capsys, "runs/ppo2", "runs")
    assert "there is 1 group here: ppo2" in refused(capsys, "runs/ppo2")
    assert "nothing at nowhere" in refused(capsys, "runs/ppo2", "nowhere")
    runs_of("dqn", [3], config={"gamma": 0.9})
    make_run(Path("runs"), "dqn", seed=5, evaluations={1: [1.0]}, config={"gamma": 0.5})
    assert "holds 2 groups on CartPole-v1" in refused(capsys, "runs/ppo2", "runs/dqn")


def test_last_line_is_json_whatever_stands_in_the_files(capsys: pytest.CaptureFixture[str]) -> None:
    runs_of("ppo2", [1, 2], config={"n_envs": math.nan})
    runs_of("a2c", [3, 4], config={"n_envs": math.inf})
    capsys.readouterr()
    assert status_of(["compare", "runs/ppo2", "runs/a2c"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert "NaN" not in last
    assert "Infinity" not in last
    assert "n_envs" in json.loads(last)["config_differences"]


@pytest.mark.parametrize("aggregate", ["iqm", "mean"])
def test_four_seeds_each_decide_where_no_run_of_one_beats_any_of_the_other(
    capsys: pytest.CaptureFixture[str], aggregate: str
) -> None:
    runs_of("ppo2", [400, 410, 420, 430])
    runs_of("a2c", [100, 110, 120, 130])
    _, said = compared(capsys, "runs/ppo2", "runs/a2c", f"aggregate={aggregate}")
    found = said["envs"]["CartPole-v1"]
    assert (found["better"], found["chance_if_equal"]) == ("a", pytest.approx(2 / 70, abs=0.005))
