"""Scores of groups, statistics over environments, and `zoo compare`."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic_runs import make_run

from zoo.cli import status_of
from zoo.errors import ZooError
from zoo.plots.groups import group_runs
from zoo.plots.runs import find_runs, read_run
from zoo.plots.scores import GroupScore, Methods, aggregates, normalized_scores, scored, scores_by_label
from zoo.plots.tables import aggregate_table, score_table


def scores_in(root: Path, kind: str = "final") -> list[GroupScore]:
    return scored(group_runs([read_run(path) for path in find_runs([str(root)])]), kind)


def with_scores(root: Path, algo: str, env: str, scores: list[float], **options: Any) -> None:
    for seed, score in enumerate(scores):
        make_run(root, algo, env, seed, evaluations={100: [score + 50] * 2, 200: [score] * 2}, **options)


def test_score_kinds_are_final_best_and_train(tmp_path: Path) -> None:
    make_run(tmp_path, returns=[0.0] * 50 + [7.0] * 100, evaluations={1: [9.0, 9.0], 2: [3.0, 5.0]})
    assert [scores_in(tmp_path, kind)[0].scores.tolist() for kind in ("final", "best", "train")] == [
        [4.0],
        [9.0],
        [7.0],
    ]


def test_table_has_mean_std_iqm_best_steps_and_time(tmp_path: Path) -> None:
    with_scores(tmp_path, "ppo2", "CartPole-v1", [1.0, 2.0, 3.0, 10.0])
    text = score_table(scores_in(tmp_path)).text("csv")
    (row,) = csv.DictReader(io.StringIO(text))
    assert (row["algo"], row["env"], row["runs"], row["runs_left_out"]) == ("ppo2", "CartPole-v1", "4", "0")
    assert float(row["mean"]) == 4
    assert float(row["std"]) == pytest.approx(np.std([1, 2, 3, 10], ddof=1))
    assert float(row["iqm"]) == 2.5
    assert float(row["iqm_low"]) < 2.5 < float(row["iqm_high"])
    assert (float(row["best"]), float(row["steps"])) == (10, 40)
    assert float(row["hours"]) == pytest.approx(0.4 / 3600)


def test_unfinished_runs_are_counted_but_not_scored(tmp_path: Path) -> None:
    with_scores(tmp_path, "ppo2", "CartPole-v1", [1.0, 2.0])
    make_run(tmp_path, seed=9, evaluations={1: [99.0]}, status="failed", record={"error": "NaN in the loss"})
    (score,) = scores_in(tmp_path)
    assert score.scores.tolist() == [1.0, 2.0]
    assert len(score.left_out) == 1
    assert "failed: NaN in the loss" in score.left_out[0]
    assert "2 of 3" in score_table([score]).text("md")


def test_markdown_table_escapes_env_id(tmp_path: Path) -> None:
    with_scores(tmp_path, "ppo2", "CartPole-v1", [5.0], config={"env": {"id": r"a|b_<script>"}})
    assert r"a\|b_&lt;script>" in score_table(scores_in(tmp_path)).text("md")


def two_methods(root: Path) -> None:
    for env, scale in (("A-v1", 1.0), ("B-v1", 100.0)):
        with_scores(root, "good", env, [scale * each for each in (0.8, 0.9, 1.0)])
        with_scores(root, "bad", env, [scale * each for each in (0.0, 0.1, 0.85)])
    with_scores(root, "good", "C-v1", [1.0])


def methods_in(root: Path, references: Any = None) -> Methods:
    return normalized_scores(scores_by_label(scores_in(root)), references)


def test_statistics_normalise_scores_of_shared_envs(tmp_path: Path) -> None:
    two_methods(tmp_path)
    methods = methods_in(tmp_path)
    assert (methods.envs, methods.left_out, methods.is_found) == (["A-v1", "B-v1"], ["C-v1"], True)
    found = aggregates(methods)["good"]
    assert found["mean"][0] == pytest.approx(0.9)
    assert found["optimality gap"][0] == pytest.approx(0.1)
    assert found["IQM"][1] is not None
    assert "| good | 0.900 [" in aggregate_table(methods).text("md")


def test_profile_is_the_share_of_runs_above_each_score(tmp_path: Path) -> None:
    two_methods(tmp_path)
    share, low, high = methods_in(tmp_path).profile("bad", np.array([-0.1, 0.0, 0.5, 0.85, 1.0]))
    assert np.allclose(share, [1, 2 / 3, 1 / 3, 0, 0])
    assert np.all((low <= share) & (share <= high))
    assert low[2] < share[2] < high[2]


def test_environments_count_alike_with_unequal_seeds(tmp_path: Path) -> None:
    for env, scores in (("A-v1", [0.0, 0.0, 0.0, 1.0]), ("B-v1", [0.0, 1.0])):
        with_scores(tmp_path, "ppo2", env, scores)
    methods = methods_in(tmp_path)
    found = aggregates(methods)["ppo2"]
    assert (found["mean"][0], found["optimality gap"][0]) == (0.375, 0.625)
    assert methods.profile("ppo2", np.array([0.5]))[0] == [0.375]


def test_given_references_are_the_ends_of_the_scale(tmp_path: Path) -> None:
    two_methods(tmp_path)
    (tmp_path / "returns.yaml").write_text("A-v1: [0, 2]\nB-v1: [-100, 100]\n")
    methods = methods_in(tmp_path, str(tmp_path / "returns.yaml"))
    assert not methods.is_found
    assert np.allclose(methods.scores["good"], [[0.4, 0.45, 0.5], [0.9, 0.95, 1.0]])


@pytest.mark.parametrize("reference", [{"A-v1": [1]}, {"A-v1": [1, 1]}, {"A-v1": "x"}, "nowhere.yaml"])
def test_references_that_are_none_are_refused(tmp_path: Path, reference: Any) -> None:
    two_methods(tmp_path)
    with pytest.raises(ZooError, match=r"reference"):
        methods_in(tmp_path, reference)


def test_groups_without_shared_env_are_refused(tmp_path: Path) -> None:
    with_scores(tmp_path, "one", "A-v1", [1.0])
    with_scores(tmp_path, "two", "B-v1", [1.0])
    with pytest.raises(ZooError, match="no environment has scores of all 2 groups"):
        methods_in(tmp_path)


def test_repeated_seed_counts_newest_finished_run_only(tmp_path: Path) -> None:
    with_scores(tmp_path, "ppo2", "A-v1", [10, 20])
    for name, score, status, day in (("new", 30, "finished", "02"), ("newest", 99, "failed", "03")):
        record = {"started": f"2026-01-{day}"}
        evaluations = {100: [float(score)] * 3}
        options: dict[str, Any] = {"status": status, "record": record, "evaluations": evaluations}
        make_run(tmp_path, "ppo2", "A-v1", 1, name=name, **options)
    (found,) = scores_in(tmp_path)
    assert sorted(found.scores) == [10.0, 30.0]
    assert score_table([found]).values[0][2:4] == [2, 0]
    assert [Path(line.partition(":")[0]).name for line in found.group.repeat_lines] == ["s1"]


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


@pytest.mark.parametrize("aggregate", ["iqm", "mean"])
@pytest.mark.parametrize(
    ("first", "second", "better", "words"),
    [
        ([90, 95, 100, 105, 110], [10, 15, 20, 25, 30], "a", "ppo2 is better, by 80.00"),
        ([10, 50, 90, 130, 170], [20, 45, 95, 120, 160], None, "not decided"),
        ([100, 101], [1, 2], None, "would differ as much in 1 of 3"),  # clear, but too few
        ([400, 410, 420], [1, 2, 3], None, "3 against 3 runs can't decide, four of each can"),
        ([400, 410, 420, 430], [100, 110, 120, 130], "a", "in 1 of 3"),  # of 70 ways to deal them, two are so
        ([100], [1], None, "single run"),
        ([100, 101, 102, 103], [1], None, "single run"),
    ],
)
def test_compare_needs_difference_and_enough_seeds(
    first: list[float],
    second: list[float],
    better: str | None,
    words: str,
    aggregate: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    runs_of("ppo2", first)
    runs_of("a2c", second)
    text, said = compared(capsys, "runs/ppo2", "runs/a2c", f"aggregate={aggregate}")
    found = said["envs"]["CartPole-v1"]
    assert (said["a"], said["b"], found["better"]) == ("ppo2", "a2c", better)
    assert words in text
    low, high = found["ci95"] or (found["difference"],) * 2
    assert low <= found["difference"] <= high
    _, turned = compared(capsys, "runs/a2c", "runs/ppo2", f"aggregate={aggregate}")
    assert turned["envs"]["CartPole-v1"]["better"] == (better and "b")


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
    assert "1 are here: ppo2" in refused(capsys, "runs/ppo2")
    assert "nothing at nowhere" in refused(capsys, "runs/ppo2", "nowhere")
    runs_of("dqn", [3], config={"gamma": 0.9})
    make_run(Path("runs"), "dqn", seed=5, evaluations={1: [1.0]}, config={"gamma": 0.5})
    assert "holds several groups on CartPole-v1" in refused(capsys, "runs/ppo2", "runs/dqn")


def test_compare_prints_valid_json_of_nonfinite_config(capsys: pytest.CaptureFixture[str]) -> None:
    runs_of("ppo2", [1, 2], config={"n_envs": math.nan})
    runs_of("a2c", [3, 4], config={"n_envs": math.inf})
    capsys.readouterr()
    assert status_of(["compare", "runs/ppo2", "runs/a2c"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert "NaN" not in last
    assert "Infinity" not in last
    assert "n_envs" in json.loads(last)["config_differences"]
