"""Studies that somebody else may have written to: what stands in them is data, checked before it is used."""

from __future__ import annotations

import csv
import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from small_studies import begun, plan_of, worker_of
from studies_of_others import STUDY, change, drawn, stored

from zoo.errors import ZooError
from zoo.tuning.finals import best_trials, join_finals, values_of
from zoo.tuning.result import _as_csv, result_of, table
from zoo.tuning.storages import open_storage
from zoo.tuning.study import quiet_optuna


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
        ("algo.n_steps", "param_value", 4000),
        ("1 - algo.gamma", "param_value", -1.0),
        ("policy.net_arch", "distribution_json", OTHER_CHOICES),
        ("policy.net_arch", "param_name", "env.wrappers"),
    ],
)
def test_trial_with_parameters_that_the_space_can_not_draw_is_no_best_one(
    name: str, column: str, value: Any
) -> None:
    stored(n=2)
    change(f"UPDATE trial_params SET {column} = ? WHERE param_name = ? AND trial_id = 2", value, name)
    found = begun("n_trials=2", "sampler=random")
    with quiet_optuna():
        assert [trial.number for trial in best_trials(found.plan, found.shared)] == [0]
    with pytest.raises(ZooError, match=f"trial 1 is not of this study: it.* `{name}`"):
        values_of(found.shared.trials()[1], found.plan)


def test_trial_of_another_space_is_told_in_the_table() -> None:
    stored(n=2)
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
        found.shared.study.enqueue_trial({"algo.n_steps": value})
        trial = found.shared.claim()
        assert trial is not None
        worker._run(trial)
        [ended] = found.shared.trials()
    assert ended.state.name == "FAIL"


BEGUN = {"op_code": 0, "worker_id": "a", "study_name": "x", "directions": [2]}
DAY = "2026-01-01T00:00:00.000000"
COMPLETE = {
    "op_code": 4,
    "worker_id": "a",
    "study_id": 0,
    "state": 1,
    "value": 1.0,
    "values": None,
    "datetime_start": DAY,
    "datetime_complete": DAY,
    "distributions": {},
    "params": {},
    "user_attrs": {},
    "system_attrs": {},
    "intermediate_values": {},
}


@pytest.mark.parametrize(
    "line",
    [
        [],
        1,
        {**BEGUN, "op_code": 99},
        {**BEGUN, "op_code": "x"},
        {**BEGUN, "directions": "zz"},
        {**COMPLETE, "datetime_start": 5},
        {**COMPLETE, "values": []},
        {**COMPLETE, "value": None},
        {**COMPLETE, "value": "abc"},
        {**COMPLETE, "value": float("inf")},
        {**COMPLETE, "value": 10**400},
        {**COMPLETE, "distributions": 5},
        {**COMPLETE, "params": {"x": 1}},
        {"op_code": 8, "worker_id": "a", "trial_id": 0, "user_attr": {}},
        "deep",
        "bytes",
    ],
    ids=str,
)
def test_warm_start_of_a_journal_that_is_none_is_told_in_one_line(line: Any) -> None:
    running = {**COMPLETE, "state": 0, "value": None}
    last = {"deep": b"[" * 100_000, "bytes": b"\xff\xfe"}.get(str(line)) or json.dumps(line).encode()
    lines = [json.dumps(BEGUN).encode(), json.dumps(running).encode(), last, json.dumps(COMPLETE).encode()]
    Path("theirs.journal").write_bytes(b"".join(each + b"\n" for each in lines))
    with pytest.raises(ZooError, match=r"theirs\.journal") as raised:
        begun("warm_start=theirs.journal")
    assert len(str(raised.value).splitlines()) == 1
    assert len(str(raised.value)) < 400
    assert not STUDY.with_suffix(".db").exists()


ENDLESS = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT n AS study_id FROM c"


@pytest.mark.parametrize("setting", ["warm_start", "storage"])
@pytest.mark.parametrize(
    "statement",
    [
        f"CREATE VIEW studies AS {ENDLESS}",
        "CREATE TRIGGER more AFTER INSERT ON trials BEGIN DELETE FROM trials; END",
        "CREATE TABLE more (a, b AS (a || a))",
        "CREATE VIRTUAL TABLE more USING fts5(a)",
    ],
    ids=["view", "trigger", "generated", "virtual"],
)
def test_database_that_computes_is_refused(setting: str, statement: str) -> None:
    stored()
    with sqlite3.connect(STUDY / "study.db") as database:
        database.execute("ALTER TABLE studies RENAME TO others")
        database.execute(statement)
    database.close()
    name = "study=other" if setting == "warm_start" else "study=default"
    with pytest.raises(ZooError, match=r"study\.db is no study: its `\w+` is no plain table"):
        begun(f"{setting}={STUDY / 'study.db'}", name)


def test_warm_start_writes_nothing_into_the_other_study() -> None:
    stored()
    other = STUDY / "study.db"
    other.chmod(0o400)
    before = other.read_bytes(), sorted(STUDY.iterdir())
    found = begun(f"warm_start={other}", "study=second")
    assert found.remarks == [f"first trial with the values of the best in {other}"]
    assert (other.read_bytes(), sorted(STUDY.iterdir())) == before


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("runs", 5), ("goes_on_from", [1]), ("worker", 3), ("reason", []), ("seconds", "long")),
        *(("deaths", "many"), ("samples", [[]]), ("runs", [None])),
    ],
)
def test_trial_that_says_what_no_trial_says_is_told_in_one_line(key: str, value: Any) -> None:
    stored()
    told = key, json.dumps(value)
    change("INSERT OR REPLACE INTO trial_user_attributes (trial_id, key, value_json) VALUES (1, ?, ?)", *told)
    with pytest.raises(ZooError, match=f"trial 0 is damaged: its `{key}` is"):
        begun("n_trials=1", "sampler=random")


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("UPDATE trial_values SET value = 'high'", "trial 0 is damaged|can't be read"),
        ("DELETE FROM trial_values", "trial 0 is damaged: its scores are"),
        ("UPDATE trial_params SET param_value = 99 WHERE param_name = 'policy.net_arch'", "can't be read"),
        ("UPDATE trials SET datetime_start = 'x'", "can't be read"),
        ("UPDATE trials SET state = 'DONE'", "can't be read"),
        ("UPDATE study_user_attributes SET value_json = '[]' WHERE key = 'settings'", "not made by zoo tune"),
        ("UPDATE study_user_attributes SET value_json = '\"x\"' WHERE key = 'seed'", "not made by zoo tune"),
    ],
)
def test_study_that_is_damaged_is_told_in_one_line(statement: str, message: str) -> None:
    stored()
    change(statement)
    with pytest.raises(ZooError, match=message) as raised:
        begun("n_trials=1", "sampler=random")
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize("runs", [5, ["=1+1"], {"a": 1}])
def test_table_of_trials_holds_nothing_that_a_spreadsheet_computes(runs: Any) -> None:
    stored()
    found = begun("n_trials=1", "sampler=random")
    [trial] = found.shared.trials()
    trial.user_attrs |= {"reason": "=1+1", "origin": "@SUM(1)", "runs": runs}
    [row] = csv.DictReader(_as_csv(found.plan, [trial], []).splitlines())
    assert (row["reason"], row["origin"]) == ("'=1+1", "'@SUM(1)")
    assert not row["runs"].startswith("=")
    assert float(row["algo.gamma"]) < 1


@pytest.mark.parametrize("kind", ["link", "pipe"])
@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("study.db", None),
        ("study.db-journal", None),
        ("study.journal", "journal"),
        ("trials", None),
        ("study.db.workers", None),
        ("other.db", "other.db"),
        ("other.journal", "other.journal"),
    ],
)
def test_study_is_not_written_through_links_nor_pipes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, setting: str | None, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "study"
    folder.mkdir()
    (tmp_path / "private").mkdir()
    place = tmp_path / name if name.startswith("other") else folder / name
    if kind == "pipe":
        os.mkfifo(place)
    else:
        place.symlink_to(tmp_path / "private" / "file")
    with pytest.raises(ZooError, match=r"is a (link|named pipe)"):
        open_storage(setting, folder, 60)
    assert not list((tmp_path / "private").iterdir())
