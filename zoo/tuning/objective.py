"""What a trial is worth: its trainings, watched by a pruner, and a number for each objective from them."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

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

if TYPE_CHECKING:
    from zoo.tuning.plan import Plan

STEPS_OF_A_TRY = 200
"""Environment steps after which the small try ends, if there was an update by then."""

FIRST_RANDOM_STEPS = 20

TRIALS, TOP_RUNS = "trials", "top"
"""Folders, below the study's, of the runs of trials and of those that train the best ones again."""

Begun = Callable[[Path], None]
"""Takes the folder of a training's run as soon as there is one."""

Direction = Literal["minimize", "maximize"]


class NoSuccessError(ZooError):
    """The environment does not say whether an episode was a success: no trial can have a success rate."""


@dataclass
class Training:
    """What one training of a trial has shown so far."""

    n_timesteps: int
    """Steps that it would take to its end."""
    evaluations: list[tuple[int, Evaluation]] = field(default_factory=list)
    """Each evaluation, after so many environment steps."""
    steps_per_second: float = 0.0

    def add(self, steps: int, evaluation: Evaluation) -> None:
        """Take in an evaluation, unless it is the latest once more."""
        if not self.evaluations or self.evaluations[-1][0] != steps:
            self.evaluations.append((steps, evaluation))

    @property
    def last(self) -> Evaluation:
        """The latest evaluation."""
        return self.evaluations[-1][1]


Trainings = Sequence[Training]

Report = Callable[[int, Training], str | None]
"""Takes the steps of a training so far and what it has shown; returns why it should end, if it should."""


def steps_to(threshold: float, training: Training) -> float:
    """Return the environment steps to the first evaluation whose mean return is at least ``threshold``.

    One that does not come there gets more than all its steps, the more the farther its best stays away, and
    never more than twice as many.
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
        """Whether there is one objective, by which a trial can be ended early."""
        return len(self.names) == 1

    @property
    def directions(self) -> list[Direction]:
        """Whether more or less is better, for each."""
        return ["minimize" if name == TO_THRESHOLD else "maximize" for name in self.names]

    def values(self, trainings: Trainings) -> list[float]:
        """Return what these trainings are worth. Raises `NoSuccessError`."""
        found = []
        for name in self.names:
            pooled = np.concatenate([self._samples(name, each) for each in trainings])
            found.append(float(iqm(pooled) if name == "iqm" else pooled.mean()))
        return found

    def samples(self, training: Training) -> list[float]:
        """Return the numbers of one training by whose middle its values are ranked on fresh seeds."""
        return self._samples(self.names[0], training)

    @property
    def ranks_by_mean(self) -> bool:
        """Whether fresh seeds are compared by the mean of their samples, else by the interquartile mean."""
        return self.names[0] not in ("mean_return", "iqm")

    def _samples(self, name: str, training: Training) -> list[float]:
        if name == TO_THRESHOLD:
            assert self.threshold is not None
            return [steps_to(self.threshold, training)]
        if name == "steps_per_second":
            return [training.steps_per_second]
        shown = training.last.successes if name == "success_rate" else training.last.returns
        if shown is None:
            raise NoSuccessError(
                "objective=success_rate: the environment does not say whether an episode was a success"
                " (`is_success` or `success` in the info of its last step)"
            )
        return [float(each) for each in shown]


# -- trainings ------------------------------------------------------------------------------------------


class InterruptedTrialError(KeyboardInterrupt):
    """A signal ended a training before its end; none of Optuna's failures."""


def train(
    config: Mapping[str, Any], *, keep: bool, report: Report | None = None, begun: Begun | None = None
) -> tuple[Training, Path]:
    """Train by a config; return what the training has shown, and its run's folder.

    Without ``keep`` the agents are removed. Raises `InterruptedTrialError`, `optuna.TrialPruned`, and
    whatever goes wrong.
    """
    shown = Training(int(config["n_timesteps"]))
    with Experiment(config) as experiment:
        run, algorithm = experiment.run, experiment.algorithm
        evaluation = next(each for each in experiment.callbacks if isinstance(each, EvalCallback))
        watch = _Watch(evaluation, shown, report)
        experiment.callbacks.append(watch)
        if begun is not None:
            begun(run.path)
        try:
            result = experiment.run_through()
        finally:
            if not keep:
                for folder in (run.agent, run.best_agent, run.checkpoint):
                    shutil.rmtree(folder, ignore_errors=True)
        if not result.is_complete:
            raise InterruptedTrialError
        if watch.reason is not None:
            raise optuna.TrialPruned(watch.reason)
        assert result.evaluation is not None
        shown.add(algorithm.num_timesteps, result.evaluation)
        shown.steps_per_second = float(run.read_record().get("steps_per_second") or 0.0)
        return shown, run.path


def steps_trained(runs: Sequence[str]) -> int:
    """Return the environment steps of these runs, by their records; of one that was killed none are known."""
    total = 0
    for run in runs:
        with contextlib.suppress(ZooError):
            steps = RunFolder(Path(run)).read_record().get("timesteps")
            total += steps if isinstance(steps, int) else 0
    return total


def seeds(study_seed: int, number: int, n: int) -> list[int]:
    """Return the seeds of a trial's trainings: those of no other trial."""
    return _drawn(study_seed, (0, number), n)


def fresh_seeds(study_seed: int, n: int) -> list[int]:
    """Return the seeds on which the best trials are trained again: those of no trial."""
    return _drawn(study_seed, (1,), n)


def _drawn(study_seed: int, key: tuple[int, ...], n: int) -> list[int]:
    sequence = np.random.SeedSequence(study_seed, spawn_key=key)
    return [int(number) >> 1 for number in sequence.generate_state(n)]


def try_small(plan: Plan, seed: int) -> None:
    """Train for a moment as trials will, so that a mistake in the environment or the config shows at once."""
    with tempfile.TemporaryDirectory(prefix="zoo-try-") as folder:
        _try_small(plan.config_of_trial({}, seed, Path(folder)))


def _try_small(config: Mapping[str, Any]) -> None:
    algo = dict(config["algo"])
    if "learning_starts" in algo:
        algo["learning_starts"] = min(algo["learning_starts"], FIRST_RANDOM_STEPS)
    unlogged = dict.fromkeys(config["logger"]) | {"console": False, "csv": False}
    small = {
        **config,
        "algo": algo,
        "compile": False,
        "callbacks": dict.fromkeys(config["callbacks"]),
        "logger": unlogged,
    }
    with Experiment(small) as experiment:
        experiment.callbacks.append(_EndSoon())
        experiment.learn()


class _EndSoon(Callback):
    every = 1

    def on_steps(self, algorithm: Algorithm) -> None:
        if algorithm.n_updates or algorithm.num_timesteps >= STEPS_OF_A_TRY:
            algorithm.request_stop("it was only a try")


class _Watch(Callback):
    """Reports every evaluation, and ends the training for the reason that the answer gives."""

    def __init__(self, evaluation: EvalCallback, shown: Training, report: Report | None) -> None:
        self.evaluation, self.shown, self.report = evaluation, shown, report
        self.every = evaluation.every
        self.reason: str | None = None

    def on_steps(self, algorithm: Algorithm) -> None:
        latest: Evaluation | None = self.evaluation.last
        if latest is None or self.evaluation.evaluated_at != algorithm.num_timesteps:
            return
        self.shown.add(algorithm.num_timesteps, latest)
        # Trials are compared at the same steps, whatever the length of their rollouts.
        steps = algorithm.num_timesteps // self.every * self.every
        is_over = algorithm.num_timesteps >= algorithm.total_timesteps
        if self.report is None or is_over or algorithm.stop_reason is not None:
            return
        self.reason = self.report(steps, self.shown)
        if self.reason is not None:
            algorithm.request_stop(self.reason)
