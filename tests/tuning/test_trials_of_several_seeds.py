"""When a trial of several trainings is ended early: only its scores are given here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from small_studies import worked

from zoo.experiment.evaluation import Evaluation
from zoo.tuning.objective import TrainingResult

Report = Callable[[int, TrainingResult], str | None]

GOOD = [300.0, 450.0, 490.0, 500.0]
BAD = [0.0, 0.0, 0.0, 0.0]


def states_of(
    monkeypatch: pytest.MonkeyPatch, pruner: str, scores_of_trials: list[list[list[float]]]
) -> list[str]:
    """Return how trials end whose trainings have these evaluations, the last of each at its end."""
    trainings = iter([scores for each in scores_of_trials for scores in each])
    every = 50

    def train(
        config: Any, *, keep: bool, on_evaluation: Report | None = None, **more: Any
    ) -> tuple[TrainingResult, Path]:
        scores, shown = next(trainings), TrainingResult(200)
        for steps, score in zip(range(every, 201, every), scores, strict=True):
            shown.add(steps, Evaluation(np.full(2, score), np.ones(2, np.int64)))
            reason = on_evaluation(steps, shown) if on_evaluation is not None and steps < 200 else None
            if reason is not None:
                raise optuna.TrialPruned(reason)
        return shown, Path("run")

    monkeypatch.setattr("zoo.tuning.worker.train", train)
    settings = (f"n_trials={len(scores_of_trials)}", f"n_seeds={len(scores_of_trials[0])}", "n_evaluations=4")
    found = worked(*settings, *pruner.split(), "pruner.n_startup_trials=1", "sampler=random")
    return [trial.state.name for trial in found.shared.trials()]


def test_trial_whose_next_training_begins_low_again_is_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = [500.0, 500.0, 500.0, 500.0]
    patient = "pruner=patient pruner.patience=1"
    assert states_of(monkeypatch, patient, [[at_once, at_once], [GOOD, GOOD]]) == ["COMPLETE"] * 2


def test_trial_whose_second_training_is_bad_is_ended_before_the_third(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lucky = [600.0, 600.0, 600.0, 600.0]
    trials = [[GOOD, GOOD, GOOD], [lucky, BAD, GOOD]]
    assert states_of(monkeypatch, "pruner=median", trials) == ["COMPLETE", "PRUNED"]
