"""The objectives of a study, and the trainings of a trial whose scores they are."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import optuna

from zoo.algorithms.callback import Callback
from zoo.algorithms.callback import Training as Algorithm
from zoo.errors import ZooError, nearest
from zoo.experiment.callbacks import EvalCallback
from zoo.experiment.evaluation import Evaluation
from zoo.experiment.experiment import Experiment
from zoo.experiment.run_folder import RunFolder
from zoo.experiment.statistics import iqm

STEPS_OF_A_SMOKE_TEST = 200
"""Environment steps after which the smoke test of a study ends if there was no update before."""

LEARNING_STARTS_OF_A_SMOKE_TEST = 20

TRIALS, TOP_RUNS = "trials", "top"
"""Subfolders of a study: the runs of its trials, and those that train the best ones again."""

Direction = Literal["minimize", "maximize"]


class NoSuccessError(ZooError):
    """The environment does not tell whether an episode was a success, so no trial has a success rate."""


@dataclass
class TrainingResult:
    """The evaluations of one training of a trial, so far."""

    n_timesteps: int
    """Steps of the whole training."""
    evaluations: list[tuple[int, Evaluation]] = field(default_factory=list)
    """Each evaluation with its environment step."""
    steps_per_second: float = 0.0

    def add(self, steps: int, evaluation: Evaluation) -> None:
        """Add an evaluation, unless that step has one already."""
        if not self.evaluations or self.evaluations[-1][0] != steps:
            self.evaluations.append((steps, evaluation))


def steps_to(threshold: float, training: TrainingResult) -> float:
    """Return the environment steps to the first evaluation whose mean return is at least ``threshold``.

    A training that never reaches it counts one to two times all its steps: the more, the lower its best mean.
    """
    for steps, evaluation in training.evaluations:
        if evaluation.mean >= threshold:
            return float(steps)
    best = max(evaluation.mean for _, evaluation in training.evaluations)
    missing = (threshold - best) / max(abs(threshold), 1.0)
    return training.n_timesteps * (1 + missing / (1 + missing))


TO_THRESHOLD = "time_to_threshold"
OBJECTIVES = ("mean_return", "iqm", "success_rate", TO_THRESHOLD, "steps_per_second")


class Objective:
    """One or several objectives by name, and the direction in which each is better."""

    def __init__(self, names: str | Sequence[str], threshold: float | None = None) -> None:
        self.names = [names] if isinstance(names, str) else list(names)
        self.threshold = threshold
        for name in self.names:
            if name not in OBJECTIVES:
                hint = nearest(name, OBJECTIVES)
                raise ZooError(f"`objective={name}` is not one of {', '.join(OBJECTIVES)}{hint}")
        if not self.names or len(set(self.names)) < len(self.names):
            raise ZooError(f"`objective={self.names}`: expected one objective, or several different ones")
        if TO_THRESHOLD in self.names and threshold is None:
            raise ZooError(f"objective={TO_THRESHOLD} needs the mean return to reach: threshold=475")
        if TO_THRESHOLD not in self.names and threshold is not None:
            raise ZooError(f"`threshold` is of use with objective={TO_THRESHOLD} only")

    @property
    def is_single(self) -> bool:
        """Whether there is one objective, by which trials can be pruned."""
        return len(self.names) == 1

    @property
    def directions(self) -> list[Direction]:
        """The direction of each objective."""
        return ["minimize" if name == TO_THRESHOLD else "maximize" for name in self.names]

    @property
    def ranks_by_mean(self) -> bool:
        """Whether reevaluated trials are ranked by the mean, else by the interquartile mean."""
        return self.names[0] not in ("mean_return", "iqm")

    def values(self, trainings: Sequence[TrainingResult]) -> list[float]:
        """Return the value of each objective over these trainings. Raises `NoSuccessError`."""
        found = []
        for name in self.names:
            pooled = np.concatenate([self.samples(each, name) for each in trainings])
            found.append(float(iqm(pooled) if name == "iqm" else pooled.mean()))
        return found

    def samples(self, training: TrainingResult, name: str | None = None) -> list[float]:
        """Return what an objective averages over for one training; by default the first objective."""
        name = name or self.names[0]
        if name == TO_THRESHOLD:
            assert self.threshold is not None
            return [steps_to(self.threshold, training)]
        if name == "steps_per_second":
            return [training.steps_per_second]
        last = training.evaluations[-1][1]
        samples = last.successes if name == "success_rate" else last.returns
        if samples is None:
            raise NoSuccessError(
                "objective=success_rate: the environment does not say whether an episode was a success"
                " (`is_success` or `success` in the info of its last step)"
            )
        return [float(each) for each in samples]


class InterruptedTrialError(KeyboardInterrupt):
    """A signal ended a training; Optuna does not count it as a failure of the trial."""


def train(
    config: Mapping[str, Any],
    *,
    keep: bool,
    on_evaluation: Callable[[int, TrainingResult], str | None] | None = None,
    on_start: Callable[[Path], None] | None = None,
) -> tuple[TrainingResult, Path]:
    """Train by a config; return the evaluations and the run's folder, without agents unless ``keep``.

    ``on_start`` is called with the run's folder, ``on_evaluation`` with the step and the evaluations so far;
    it returns a reason to prune the trial, or None. Raises `InterruptedTrialError`, `optuna.TrialPruned`, and
    any error of the training.
    """
    training = TrainingResult(int(config["n_timesteps"]))
    with Experiment(config) as experiment:
        run, algorithm = experiment.run, experiment.algorithm
        evaluation = next(each for each in experiment.callbacks if isinstance(each, EvalCallback))
        pruning = _PruningCallback(evaluation, training, on_evaluation)
        experiment.callbacks.append(pruning)
        if on_start is not None:
            on_start(run.path)
        try:
            result = experiment.run_through()
        finally:
            if not keep:
                for folder in (run.agent, run.best_agent, run.checkpoint):
                    shutil.rmtree(folder, ignore_errors=True)
        if not result.is_complete:
            raise InterruptedTrialError
        if pruning.reason is not None:
            raise optuna.TrialPruned(pruning.reason)
        assert result.evaluation is not None
        training.add(algorithm.num_timesteps, result.evaluation)
        training.steps_per_second = float(run.read_record().get("steps_per_second") or 0.0)
        return training, run.path


class _PruningCallback(Callback):
    """Passes every evaluation on, and ends the training for the reason that comes back."""

    def __init__(
        self,
        evaluation: EvalCallback,
        training: TrainingResult,
        on_evaluation: Callable[[int, TrainingResult], str | None] | None,
    ) -> None:
        self.evaluation, self.training, self.on_evaluation = evaluation, training, on_evaluation
        self.every = evaluation.every
        self.reason: str | None = None

    def on_steps(self, algorithm: Algorithm) -> None:
        latest: Evaluation | None = self.evaluation.last
        if latest is None or self.evaluation.evaluated_at != algorithm.num_timesteps:
            return
        self.training.add(algorithm.num_timesteps, latest)
        is_over = algorithm.num_timesteps >= algorithm.total_timesteps
        if self.on_evaluation is None or is_over or algorithm.stop_reason is not None:
            return
        # Rounded, so that trials with rollouts of other lengths are compared at the same steps.
        self.reason = self.on_evaluation(algorithm.num_timesteps // self.every * self.every, self.training)
        if self.reason is not None:
            algorithm.request_stop(self.reason)


def steps_trained(runs: Sequence[str]) -> int:
    """Return the environment steps of these runs by their records, 0 for a killed one."""
    total = 0
    for run in runs:
        with contextlib.suppress(ZooError):
            steps = RunFolder(Path(run)).read_record().get("timesteps")
            total += steps if isinstance(steps, int) else 0
    return total


def trial_seeds(study_seed: int, number: int, n: int) -> list[int]:
    """Return the seeds of a trial's trainings; no two trials share one."""
    return _spawned_seeds(study_seed, (0, number), n)


def fresh_seeds(study_seed: int, n: int) -> list[int]:
    """Return the seeds on which the best trials are trained again; no trial has them."""
    return _spawned_seeds(study_seed, (1,), n)


def _spawned_seeds(study_seed: int, key: tuple[int, ...], n: int) -> list[int]:
    sequence = np.random.SeedSequence(study_seed, spawn_key=key)
    return [int(number) >> 1 for number in sequence.generate_state(n)]


def smoke_test(config: Mapping[str, Any]) -> None:
    """Train a trial's config up to the first update, so that a mistake shows before any trial runs."""
    algo = dict(config["algo"])
    if "learning_starts" in algo:
        algo["learning_starts"] = min(algo["learning_starts"], LEARNING_STARTS_OF_A_SMOKE_TEST)
    with tempfile.TemporaryDirectory(prefix="zoo-smoke-test-") as folder:
        small = {
            **config,
            "algo": algo,
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
        if algorithm.n_updates or algorithm.num_timesteps >= STEPS_OF_A_SMOKE_TEST:
            algorithm.request_stop("it was a smoke test")
