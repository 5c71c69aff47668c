"""A study that several commands and machines share: no trials are mixed, and none is lost."""

from __future__ import annotations

import time
from pathlib import Path

import optuna
import pytest
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback
from small_studies import begun, worker_of

from zoo.errors import ZooError
from zoo.tuning.study import SharedStudy, Storage, quiet_optuna, retry_of


@pytest.mark.parametrize("storage", ["null", "journal"])
def test_study_that_was_begun_anew_takes_no_trial_of_the_earlier_command(storage: str) -> None:
    first = begun("n_trials=1", f"storage={storage}")
    second = begun("n_trials=1", f"storage={storage}", "n_timesteps=300")
    with pytest.raises(ZooError, match="`n_timesteps` is 200"):
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

    def killed(trial: optuna.Trial) -> list[float]:
        drawn.append(trial.suggest_float("x", 0, 1))
        raise Killed

    def run(trial: optuna.Trial) -> list[float]:
        drawn.append(trial.suggest_float("x", 0, 1))
        return [1.0]

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
