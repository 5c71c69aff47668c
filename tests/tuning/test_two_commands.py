"""Several commands on one study, of which one fails before the first trial."""

from __future__ import annotations

import pytest
from small_studies import begun, worker_of

from zoo.errors import ZooError
from zoo.tuning.pool import Pool
from zoo.tuning.study import quiet_optuna


def fail(pool: Pool) -> None:
    raise ZooError("this machine lacks a package")


def test_study_in_which_another_command_takes_part_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = begun("n_trials=1"), begun("n_trials=1")
    monkeypatch.setattr(Pool, "run", fail)
    with pytest.raises(ZooError, match="lacks a package"):
        first.run()
    with quiet_optuna():
        worker_of(second).work()
    assert len(second.shared.trials()) == 1


def test_study_of_one_command_alone_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    only = begun("n_trials=1")
    monkeypatch.setattr(Pool, "run", fail)
    with pytest.raises(ZooError, match="lacks a package"):
        only.run()
    assert not only.plan.folder.exists()
