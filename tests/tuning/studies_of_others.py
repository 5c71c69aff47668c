"""A study as `zoo tune` leaves it, for tests to write into as somebody else may."""

from __future__ import annotations

import functools
import sqlite3
from pathlib import Path
from typing import Any

from small_studies import begun

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


def stored(n: int = 1) -> None:
    """Put a study of complete trials there, as `drawn` makes it."""
    if not (STUDY / "study.db").exists():
        STUDY.mkdir(parents=True)
        (STUDY / "study.db").write_bytes(_database(n))


@functools.cache
def _database(n: int) -> bytes:
    STUDY.rmdir()
    drawn(n=n).shared.storage.close()
    return (STUDY / "study.db").read_bytes()


def change(statement: str, *values: object) -> None:
    """Write into the study's database as somebody else may."""
    with sqlite3.connect(STUDY / "study.db") as database:
        assert database.execute(statement, values).rowcount
    database.close()
