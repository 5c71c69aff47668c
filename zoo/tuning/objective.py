"""The objective of a study, and the trainings of a trial whose score it is."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import optuna

from zoo.algorithms.callback import Callback
from zoo.algorithms.callback import Training as Algorithm
from zoo.errors import ZooError
from zoo.experiment.callbacks import EvalCallback
from zoo.experiment.evaluation import Evaluation
from zoo.experiment.experiment import Experiment
from zoo.experiment.statistics import iqm

SMOKE_TEST_STEPS = 200
"""Environment steps after which the smoke test of a study ends if there was no update before."""

TRIALS, TOP_RUNS = "trials", "top"
"""Subfolders of a study: the runs of its trials, and those that train the best ones again."""

OnEvaluation = Callable[[int, Evaluation], str | None]
"""Is called with the step and the evaluation; returns a reason to prune the trial, or None."""


def samples_of(objective: str, evaluation: Evaluation) -> list[float]:
    """Return the values that the objective averages: returns or successes of all episodes."""
    samples = evaluation.successes if objective == "success_rate" else evaluation.returns
    if samples is None:
        raise ZooError(
            "objective=success_rate: the environment does not say whether an episode was a success"
            " (`is_success` or `success` in the info of its last step)"
        )
    return [float(sample) for sample in samples]


def value_of(objective: str, evaluations: Sequence[Evaluation]) -> float:
    """Return the objective's value for the last evaluations of a trial's trainings."""
    pooled = np.concatenate([samples_of(objective, evaluation) for evaluation in evaluations])
    return float(iqm(pooled) if objective == "iqm" else pooled.mean())


def train(
    config: Mapping[str, Any],
    *,
    keep: bool,
    on_evaluation: OnEvaluation | None = None,
    on_start: Callable[[Path], None] | None = None,
) -> tuple[Evaluation, Path]:
    """Train by a config; return the last evaluation and the run's folder, without agents unless ``keep``.

    ``on_start`` gets that folder. Raises `KeyboardInterrupt`, `optuna.TrialPruned`, and what training raises.
    """
    with Experiment(config) as experiment:
        run = experiment.run
        evaluation = next(callback for callback in experiment.callbacks if isinstance(callback, EvalCallback))
        if on_evaluation is not None:
            experiment.callbacks.append(_PruningCallback(evaluation, on_evaluation))
        if on_start is not None:
            on_start(run.path)
        try:
            result = experiment.run_through()
        finally:
            if not keep:
                for folder in (run.agent, run.best_agent, run.checkpoint):
                    shutil.rmtree(folder, ignore_errors=True)
        if not result.is_complete:
            raise KeyboardInterrupt
        if str(reason := result.algorithm.stop_reason).startswith("pruned "):
            raise optuna.TrialPruned(reason)
        assert result.evaluation is not None
        return result.evaluation, run.path


class _PruningCallback(Callback):
    """Passes every evaluation but the last on, and ends the training for the reason that comes back."""

    def __init__(self, evaluation: EvalCallback, on_evaluation: OnEvaluation) -> None:
        self.evaluation, self.on_evaluation = evaluation, on_evaluation
        self.every = evaluation.every

    def on_steps(self, algorithm: Algorithm) -> None:
        steps, latest = algorithm.num_timesteps, self.evaluation.last
        if latest is None or steps >= algorithm.total_timesteps or algorithm.stop_reason is not None:
            return
        # Rounded, so that trials with rollouts of other lengths are compared at the same steps.
        reason = self.on_evaluation(steps // self.every * self.every, latest)
        if reason is not None:
            algorithm.request_stop(reason)


TRIAL_SEEDS, FRESH_SEEDS = 0, 1
"""Families of a study's seeds: of its trials, and those on which the best ones are trained again."""


def spawned_seeds(study_seed: int, n: int, *family: int) -> list[int]:
    """Return ``n`` seeds of one family; no two families, and no two trials, share one."""
    sequence = np.random.SeedSequence(study_seed, spawn_key=family)
    return [int(number) >> 1 for number in sequence.generate_state(n)]


def smoke_test(config: Mapping[str, Any]) -> None:
    """Train a trial's config up to the first update, so that an error shows before any trial runs."""
    algo = config["algo"]
    starts = {"learning_starts": min(algo["learning_starts"], 20)} if "learning_starts" in algo else {}
    with tempfile.TemporaryDirectory(prefix="zoo-smoke-test-") as folder:
        small = {
            **config,
            "algo": {**algo, **starts},
            "compile": False,
            "callbacks": dict.fromkeys(config["callbacks"]),
            "logger": dict.fromkeys(config["logger"]) | {"console": False, "csv": False},
            "runs_dir": folder,
        }
        with Experiment(small) as experiment:
            experiment.callbacks.append(_StopAtFirstUpdate())
            experiment.learn()


class _StopAtFirstUpdate(Callback):
    every = 1

    def on_steps(self, algorithm: Algorithm) -> None:
        if algorithm.n_updates or algorithm.num_timesteps >= SMOKE_TEST_STEPS:
            algorithm.request_stop("it was a smoke test")
