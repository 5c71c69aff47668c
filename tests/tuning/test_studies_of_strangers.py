"""Studies that somebody else may have written to: what stands in them is data, checked before it is used."""

from __future__ import annotations

import csv
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from small_studies import begun, plan_of, worker_of

from zoo.errors import ZooError
from zoo.tuning.finals import best_trials, join_finals, values_of
from zoo.tuning.result import result_of, table
from zoo.tuning.study import quiet_optuna
from zoo.tuning.tune import Search

STUDY = Path("runs/tune/a2c/CartPole-v1/default")


def drawn(*more: str, n: int = 1, **told: Any) -> Search:
    """Return a study of complete trials without a training; ``told`` are user attributes of them."""
    found = begun(f"n_trials={n}", "sampler=random", *more)
    with quiet_optuna(), found.shared.joined("somebody"):
        for number in range(n):
            trial = found.shared.claim()
            assert trial is not None
            found.plan.space.suggest(trial, found.plan.base)
            for key, value in told.items():
                trial.set_user_attr(key, value)
            found.shared.finish(trial, [float(number)])
    return found


def change(statement: str, *values: object) -> None:
    """Write into the study's database as somebody else may."""
    with sqlite3.connect(STUDY / "study.db") as database:
        assert database.execute(statement, values).rowcount
    database.close()


def test_values_that_a_trial_claims_get_into_no_config() -> None:
    claimed = {"env.wrappers": [{"_target_": "pydoc.pipepager"}], "algo.gamma": 7}
    found = drawn(values=claimed)
    with quiet_optuna():
        result = result_of(found.plan, found.shared)
        finals = join_finals(plan_of("top_k=1", "n_trials=1"), found.shared)
        assert finals is not None
        values = finals.values_of(0, found.plan)
    assert result.best_file is not None
    for text in (str(values), table(result), result.best_file.read_text(), result.trials_file.read_text()):
        assert "wrappers" not in text
    assert list(values) == list(found.plan.space.dimensions)
    assert 0.9 <= values["algo.gamma"] < 1
    assert f"gamma: {values['algo.gamma']}" in result.best_file.read_text()


OTHER_CHOICES = '{"name": "CategoricalDistribution", "attributes": {"choices": ["evil", {"_target_": 1}, 3]}}'


@pytest.mark.parametrize(
    ("name", "column", "value"),
    [
        ("log2 algo.n_steps", "param_value", 40),
        ("1 - algo.gamma", "param_value", -1.0),
        ("policy.net_arch", "distribution_json", OTHER_CHOICES),
        ("policy.net_arch", "param_name", "env.wrappers"),
    ],
)
def test_trial_with_parameters_that_the_space_can_not_draw_is_no_best_one(
    name: str, column: str, value: Any
) -> None:
    drawn(n=2)
    change(f"UPDATE trial_params SET {column} = ? WHERE param_name = ? AND trial_id = 2", value, name)
    found = begun("n_trials=2", "sampler=random")
    with quiet_optuna():
        assert [trial.number for trial in best_trials(found.plan, found.shared)] == [0]
    with pytest.raises(ZooError, match=f"trial 1 is not of this study: it.* `{name}`"):
        values_of(found.shared.trials()[1], found.plan)


def test_trial_of_another_space_is_told_in_the_table() -> None:
    drawn(n=2)
    change("UPDATE trial_params SET param_value = 9 WHERE param_name = '1 - algo.gamma' AND trial_id = 2")
    found = begun("n_trials=2", "sampler=random")
    result = result_of(found.plan, found.shared)
    assert result.best is not None
    assert result.best.number == 0
    assert "not of this study's space" in table(result).splitlines()[1]
    _, row = csv.DictReader(result.trials_file.open())
    assert row["algo.gamma"] == ""


@pytest.mark.parametrize("value", [1e9, None, [1], float("nan")])
def test_queued_value_that_the_space_can_not_draw_fails_its_trial(value: Any) -> None:
    found = begun("n_trials=1", "sampler=random", "top_k=0")
    worker = worker_of(found)
    with quiet_optuna(), found.shared.joined("somebody"):
        found.shared.study.enqueue_trial({"log2 algo.n_steps": value})
        trial = found.shared.claim()
        assert trial is not None
        worker._run(trial)
        [ended] = found.shared.trials()
    assert ended.state.name == "FAIL"
