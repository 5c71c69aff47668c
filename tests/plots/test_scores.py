"""Tables and statistics of scores, over seeds and over environments."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic_runs import make_run

from zoo.errors import ZooError
from zoo.plots.curves import CurveOptions, curves_of
from zoo.plots.groups import group_runs
from zoo.plots.runs import Score, find_runs, read_run
from zoo.plots.scores import GroupScore, aggregates, improvements, normalized_scores, read_references, scored
from zoo.plots.tables import aggregate_table, score_table


def scores_in(root: Path, kind: Score = "final") -> list[GroupScore]:
    return scored(group_runs([read_run(path) for path in find_runs([str(root)])]), kind)


def with_scores(root: Path, algo: str, env: str, scores: list[float], **options: Any) -> None:
    for seed, score in enumerate(scores):
        make_run(root, algo, env, seed, evaluations={100: [score + 50] * 2, 200: [score] * 2}, **options)


def test_score_is_of_the_last_evaluation_the_best_or_the_last_episodes(tmp_path: Path) -> None:
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


def test_runs_that_did_not_finish_are_counted_and_not_scored(tmp_path: Path) -> None:
    with_scores(tmp_path, "ppo2", "CartPole-v1", [1.0, 2.0])
    make_run(tmp_path, seed=9, evaluations={1: [99.0]}, status="failed", record={"error": "NaN in the loss"})
    (score,) = scores_in(tmp_path)
    assert score.scores.tolist() == [1.0, 2.0]
    assert len(score.left_out) == 1
    assert "failed: NaN in the loss" in score.left_out[0]
    assert "2 of 3" in score_table([score]).text("md")


def test_markdown_and_latex_show_what_a_file_says_and_obey_none_of_it(tmp_path: Path) -> None:
    with_scores(
        tmp_path, "ppo2", "CartPole-v1", [5.0], config={"env": {"id": r"a|b_<script>$x$\input{/etc/x}"}}
    )
    table = score_table(scores_in(tmp_path))
    assert r"a\|b_&lt;script>$x$\\input{/etc/x}" in table.text("md")
    latex = r"a|b\_\textless{}script\textgreater{}\$x\$\textbackslash{}input\{/etc/x\}"
    assert latex in table.text("tex")


def two_methods(root: Path) -> None:
    for env, scale in (("A-v1", 1.0), ("B-v1", 100.0)):
        with_scores(root, "good", env, [scale * each for each in (0.8, 0.9, 1.0)])
        with_scores(root, "bad", env, [scale * each for each in (0.0, 0.1, 0.85)])
    with_scores(root, "good", "C-v1", [1.0])


def test_statistics_are_of_normalised_scores_of_shared_environments(tmp_path: Path) -> None:
    two_methods(tmp_path)
    methods = normalized_scores(scores_in(tmp_path), {})
    assert (methods.envs, methods.left_out, methods.is_found) == (["A-v1", "B-v1"], ["C-v1"], True)
    by_name = {each.name: each for each in aggregates(methods)["good"]}
    assert by_name["mean"].value == pytest.approx(0.9)
    assert by_name["optimality gap"].value == pytest.approx(0.1)
    assert by_name["IQM"].ci95 is not None
    (pair,) = improvements(methods)
    assert (pair.first, pair.probability) == ("bad", pytest.approx(1 / 9))
    assert "| good | 0.900 [" in aggregate_table(methods).text("md")


def test_given_references_are_the_ends_of_the_scale(tmp_path: Path) -> None:
    two_methods(tmp_path)
    (tmp_path / "returns.yaml").write_text("A-v1: [0, 2]\nB-v1: [-100, 100]\n")
    methods = normalized_scores(scores_in(tmp_path), read_references(str(tmp_path / "returns.yaml")))
    assert not methods.is_found
    assert np.allclose(methods.scores["good"], [[0.4, 0.45, 0.5], [0.9, 0.95, 1.0]])


@pytest.mark.parametrize("reference", [{"A-v1": [1]}, {"A-v1": [1, 1]}, {"A-v1": "x"}, "nowhere.yaml"])
def test_references_that_are_none_are_refused(tmp_path: Path, reference: Any) -> None:
    two_methods(tmp_path)
    with pytest.raises(ZooError, match=r"reference"):
        normalized_scores(scores_in(tmp_path), read_references(reference))


def test_groups_without_a_shared_environment_have_no_statistics(tmp_path: Path) -> None:
    with_scores(tmp_path, "one", "A-v1", [1.0])
    with_scores(tmp_path, "two", "B-v1", [1.0])
    with pytest.raises(ZooError, match="no environment has scores of all 2 groups"):
        normalized_scores(scores_in(tmp_path), {})


def test_seed_that_was_run_twice_counts_once_by_its_newest_finished_run(tmp_path: Path) -> None:
    with_scores(tmp_path, "ppo2", "A-v1", [10, 20])
    for name, score, status, day in (("new", 30, "finished", "02"), ("newest", 99, "failed", "03")):
        record = {"started": f"2026-01-{day}"}
        evaluations = {100: [float(score)] * 3}
        options: dict[str, Any] = {"status": status, "record": record, "evaluations": evaluations}
        make_run(tmp_path, "ppo2", "A-v1", 1, name=name, **options)
    (found,) = scores_in(tmp_path)
    assert sorted(found.scores) == [10.0, 30.0]
    assert len(found.left_out) == 2
    assert any("s1: the same config and seed as" in line and "new, which" in line for line in found.left_out)


def test_reproduced_run_counts_only_without_the_run_that_it_repeats(tmp_path: Path) -> None:
    record = {"reproduces": "somewhere", "started": "2026-02-01"}
    for seed in (0, 2):
        evaluations = {100: [70.0] * 3}
        make_run(tmp_path, "ppo2", "A-v1", seed, name=f"again{seed}", record=record, evaluations=evaluations)
    with_scores(tmp_path, "ppo2", "A-v1", [10, 20])
    (found,) = scores_in(tmp_path)
    assert sorted(found.scores) == [10.0, 20.0, 70.0]
    (curves,) = curves_of([found.group], CurveOptions(y="eval"))
    assert curves.n_runs == 3


def test_repetition_is_no_missing_run_and_each_run_is_named_once(tmp_path: Path) -> None:
    for number, status in enumerate(["finished"] * 4 + ["failed"]):
        record = {"started": f"2026-01-0{number + 1}"}
        evaluations = {100: [1.0] * 3}
        options: dict[str, Any] = {"status": status, "record": record, "evaluations": evaluations}
        make_run(tmp_path, "ppo2", "A-v1", 3, name=f"run{number}", **options)
    (found,) = scores_in(tmp_path)
    assert score_table([found]).values[0][2:4] == [1, 0]
    named = [Path(line.partition(":")[0]).name for line in found.group.repeat_lines]
    assert sorted(named) == ["run0", "run1", "run2"]
    make_run(tmp_path, "ppo2", "A-v1", 4, name="other", status="failed")
    assert score_table(scores_in(tmp_path)).rows[0][2] == "1 of 2"
