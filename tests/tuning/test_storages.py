"""Storages that several commands and machines share, and the passwords of databases."""

from __future__ import annotations

import time
from pathlib import Path

import optuna
import pytest
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback
from small_studies import begin_study, overrides, worker_of

from zoo.cli import status_of
from zoo.errors import ZooError
from zoo.tuning.study import SharedStudy, Storage, quiet_optuna, retry_of


@pytest.mark.parametrize("storage", ["null", "journal"])
def test_study_that_was_begun_anew_takes_no_trial_of_the_earlier_command(storage: str) -> None:
    first = begin_study("n_trials=1", f"storage={storage}")
    second = begin_study("n_trials=1", f"storage={storage}", "n_timesteps=300")
    with pytest.raises(ZooError, match="n_timesteps"):
        worker_of(first)
    assert second.shared.trials() == []


class Killed(BaseException):
    """As SIGKILL between two lines."""


def machine(name: str) -> SharedStudy:
    """Return the study as another machine sees it: they share a database with heartbeats, and no files."""
    folder = Path(name)
    folder.mkdir()
    server = RDBStorage(
        "sqlite:///shared.db",
        heartbeat_interval=1,
        grace_period=2,
        heartbeat_stale_trial_callback=RetryHeartbeatStaleTrialCallback(),
    )
    study = optuna.create_study(study_name="shared", storage=server, load_if_exists=True)
    return SharedStudy(study, Storage(server, "shared.db", folder, is_file=False), 1, name)


def test_trial_without_signs_of_life_in_a_database_is_run_by_another_machine() -> None:
    drawn: list[float] = []

    def killed(trial: optuna.Trial) -> float:
        drawn.append(trial.suggest_float("x", 0, 1))
        raise Killed

    def run(trial: optuna.Trial) -> float:
        drawn.append(trial.suggest_float("x", 0, 1))
        return 1.0

    with quiet_optuna():
        one, other = machine("one"), machine("other")
        with pytest.raises(Killed):
            one.run_next(killed, lambda trial: None)
        assert not other.run_next(run, lambda trial: None), "it may still live"
        deadline = time.monotonic() + 30
        while not other.run_next(run, lambda trial: None):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        dead, again = other.trials()
    assert [dead.state.name, again.state.name] == ["FAIL", "COMPLETE"]
    assert retry_of(again) == dead.number
    assert drawn[0] == drawn[1]


URL = "postgresql+psycopg://me:secret@127.0.0.1:1/none"


def written() -> bytes:
    return b"".join(path.read_bytes() for path in Path().rglob("*") if path.is_file())


def test_sweep_refuses_a_password_before_it_writes_anything(capfd: pytest.CaptureFixture[str]) -> None:
    assert status_of(["tune", "-m", *overrides("worker=range(2)", f"storage='{URL}'")]) == 2
    told = capfd.readouterr().err
    assert "'storage=${oc.env:NAME}'" in told
    assert "secret" not in told
    assert list(Path().iterdir()) == []


def test_password_of_an_environment_variable_is_written_into_no_file_of_a_sweep(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_STORAGE", URL)
    variable = "storage=${oc.env:MY_STORAGE}"
    assert status_of(["tune", "-m", *overrides("worker=range(1)", variable)]) == 2
    told = capfd.readouterr()
    assert "can't reach the storage postgresql+psycopg://me:***@127.0.0.1:1/none" in told.err
    assert "secret" not in told.out + told.err
    assert variable.encode() in written()
    assert b"secret" not in written()
