"""Running one trial: its trainings one after the other, watched by a pruner."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from zoo.algorithms.callback import Callback
from zoo.algorithms.callback import Training as Algorithm
from zoo.errors import ZooError
from zoo.training.eval_callback import EvalCallback
from zoo.training.evaluation import Evaluation
from zoo.training.experiment import Experiment
from zoo.training.run_folder import RunFolder
from zoo.tuning.objective import Training
from zoo.tuning.plan import Plan

STEPS_OF_A_TRY = 200
"""Environment steps after which the small try ends, if there was an update by then."""

FIRST_RANDOM_STEPS = 20

TRIALS, TOP_RUNS = "trials", "top"
"""Folders, below the study's, of the runs of trials and of those that train the best ones again."""

Begun = Callable[[Path], None]
"""Takes the folder of a training's run as soon as there is one."""

Report = Callable[[int, Training], str | None]
"""Takes the steps of a training so far and what it has shown; returns why it should end, if it should."""


class InterruptedTrialError(Exception):
    """A signal ended a training before its end."""


class PrunedTrialError(Exception):
    """The pruner ended a trial."""


def train(
    config: Mapping[str, Any], *, keep: bool, report: Report | None = None, begun: Begun | None = None
) -> tuple[Training, Path]:
    """Train by a config; return what the training has shown, and its run's folder.

    Without ``keep`` the agents are removed. Raises `InterruptedTrialError`, `PrunedTrialError`, and whatever
    goes wrong.
    """
    shown = Training(int(config["n_timesteps"]))
    with Experiment(config) as experiment:
        run, algorithm = experiment.run, experiment.algorithm
        watch = _Watch(_evaluation_of(experiment), shown, report)
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
            raise PrunedTrialError(watch.reason)
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


def try_small(plan: Plan, seed: int, folder: Path) -> None:
    """Train for a moment as trials will, so that a mistake in the environment or the config shows at once."""
    config = plan.config_of_trial({}, seed, folder)
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
    try:
        with Experiment(small) as experiment:
            experiment.callbacks.append(_EndSoon())
            experiment.learn()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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


def _evaluation_of(experiment: Experiment) -> EvalCallback:
    found = next((each for each in experiment.callbacks if isinstance(each, EvalCallback)), None)
    if found is None:
        raise ZooError("`callbacks.eval` is switched off: without evaluations no trial has a score")
    return found
