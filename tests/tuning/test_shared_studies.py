"""A study that several commands and machines share: no trials are mixed, and none is lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import RDBStorage
from small_studies import begun, worker_of

import zoo.tuning.worker as worker_module
from zoo.errors import ZooError
from zoo.tuning.shared_study import SharedStudy
from zoo.tuning.storages import Storage
from zoo.tuning.study import quiet_optuna

HOLDS = """
import sys
from pathlib import Path
from zoo.files.file_lock import FileLock

with FileLock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_study_in_which_a_process_takes_part_is_not_replaced() -> None:
    found = begun("n_trials=1")
    lock = found.shared.storage.workers / "machine-1.lock"
    command = [sys.executable, "-c", HOLDS, str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline()
        with pytest.raises(ZooError, match="`n_timesteps` is 300"):
            begun("n_trials=1", "n_timesteps=300")


def test_process_takes_part_from_its_small_try_on(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = worker_of(begun("n_trials=1"))
    seen: list[Path] = []

    def look(*_: object) -> None:
        seen.extend(worker.shared.storage.workers.glob(f"{worker.name}.lock"))
        raise ZooError("enough")

    monkeypatch.setattr("zoo.tuning.worker.try_small", look)
    with pytest.raises(ZooError, match="enough"):
        worker.work()
    assert len(seen) == 1


@pytest.mark.parametrize("storage", ["null", "journal"])
def test_study_that_was_begun_anew_takes_no_trial_of_the_earlier_command(storage: str) -> None:
    first = begun("n_trials=1", f"storage={storage}")
    second = begun("n_trials=1", f"storage={storage}", "n_timesteps=300")
    with quiet_optuna(), first.shared.joined("one"), pytest.raises(ZooError, match="begun anew"):
        first.shared.claim()
    with pytest.raises(ZooError, match=r"`n_timesteps` is 200 \(the study has 300\)"):
        worker_of(first)
    assert second.shared.trials() == []


class Killed(BaseException):
    """As SIGKILL between two lines."""


def machine(name: str) -> SharedStudy:
    """Return the study as another machine sees it: they share a database with heartbeats, and no files."""
    folder = Path(name)
    folder.mkdir()
    with quiet_optuna():
        server = RDBStorage("sqlite:///shared.db", heartbeat_interval=1, grace_period=2)
        study = optuna.create_study(study_name="shared", storage=server, load_if_exists=True)
    shared = SharedStudy(study, Storage(server, "shared.db", folder, server), 1)
    shared.worker = f"{name}-1"
    return shared


@pytest.mark.parametrize("when", ["before the heartbeat", "before the name"])
def test_trial_of_a_process_killed_while_claiming_is_run_by_another_machine(
    monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    one, other = machine("one"), machine("other")

    def kill(*_: object) -> None:
        raise Killed

    assert one.storage.server is not None
    lines: dict[str, tuple[object, str]] = {
        "before the heartbeat": (one.storage.server, "record_heartbeat"),
        "before the name": (optuna.trial.Trial, "set_user_attr"),
    }
    with monkeypatch.context() as patch, quiet_optuna():
        patch.setattr(*lines[when], kill)
        with pytest.raises(Killed):
            one.claim()
    with quiet_optuna():
        trial = other.claim()
    assert trial is not None
    assert trial.user_attrs["goes_on_from"] == 0


def test_trial_interrupted_while_drawing_keeps_its_queued_values() -> None:
    shared = begun("n_trials=1").shared
    queued = {"first": 0.25, "second": 0.75}
    with quiet_optuna(), shared.joined("one"):
        shared.study.enqueue_trial(queued)
        trial = shared.claim()
        assert trial is not None
        trial.suggest_float("first", 0, 1)
        shared.give_back(trial, "interrupted")
        again = shared.claim()
        assert again is not None
        assert {name: again.suggest_float(name, 0, 1) for name in queued} == queued


def test_trial_that_another_process_took_over_does_not_end_the_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker = worker_of(begun("n_trials=1", "sampler=random"))
    other = begun("n_trials=1", "sampler=random").shared
    trained = worker_module.train
    runs: list[str] = []

    def train(config: Any, **settings: Any) -> Any:
        found = trained(config, **settings)
        if not runs:
            other.fail_of_dead(worker.name, "no heartbeat")
        runs.append(str(found[1]))
        return found

    monkeypatch.setattr("zoo.tuning.worker.train", train)
    with quiet_optuna():
        worker.work()
    assert len(runs) == 1
    assert [trial.state.name for trial in other.trials()] == ["FAIL"]
    assert other.trials()[0].user_attrs["reason"] == "no heartbeat"
    assert "seconds" not in other.trials()[0].user_attrs
