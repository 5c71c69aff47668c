"""Reevaluation: the best trials are trained again on fresh seeds, as the best of many scores was lucky too.

It is a second Optuna study in the same storage, with one trial for each training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, Trial, TrialState

from zoo.experiment.statistics import interval, iqm
from zoo.tuning.objective import Objective, TrainingResult, fresh_seeds
from zoo.tuning.plan import Plan
from zoo.tuning.space import Values
from zoo.tuning.study import TOP, SharedStudy, counted, existing_study, quiet_optuna, seed_of

TRIAL, SEED, SAMPLES, RUN = "trial", "seed", "samples", "run"

N_RESAMPLES = 2_000


@dataclass
class Reevaluation:
    """The second study; each of its trials has the number of a trial of ``search`` and a seed."""

    shared: SharedStudy
    search: SharedStudy
    n_new: int
    """Trainings that were not asked for before."""

    def number_and_seed(self, trial: Trial | FrozenTrial) -> tuple[int, int]:
        """Return the number of the trial that is trained again, and the seed."""
        return int(trial.user_attrs[TRIAL]), int(trial.user_attrs[SEED])

    def values_of(self, number: int) -> Values:
        """Return the hyperparameters of a trial of the search."""
        return values_of(self.search.trials()[number])

    def record(self, trial: Trial, training: TrainingResult, run: Path, objective: Objective) -> None:
        """Store the result of a training with its trial."""
        trial.set_user_attr(SAMPLES, objective.samples(training))
        trial.set_user_attr(RUN, str(run))


@dataclass
class RankedTrial:
    """A trial of the search with its scores on fresh seeds: ``samples`` has those of each seed."""

    number: int
    samples: list[list[float]] = field(default_factory=list)
    n_failed: int = 0
    score: float = float("nan")
    interval: tuple[float, float] | None = None
    """The 95 % interval of the score; None with a single seed."""
    runs: list[str] = field(default_factory=list)


def join_reevaluation(plan: Plan, search: SharedStudy) -> Reevaluation | None:
    """Queue the trainings of the best trials that are not queued yet; None if no trial is complete."""
    with quiet_optuna(), search.lock():
        candidates = [trial.number for trial in best_trials(plan, search)]
        if not candidates:
            return None
        name = plan.full_name + TOP
        study = existing_study(name, search.storage) or optuna.create_study(
            study_name=name, storage=search.storage.optuna, directions=plan.objective.directions
        )
        keys = _values_keys(search)
        queued = {
            (keys.get(trial.user_attrs.get(TRIAL)), trial.user_attrs.get(SEED))
            for trial in study.get_trials(deepcopy=False)
        }
        new = [
            (number, seed)
            for seed in fresh_seeds(seed_of(search.study), plan.config["top_seeds"])
            for number in candidates
            if (keys[number], seed) not in queued
        ]
        for number, seed in new:
            study.enqueue_trial({}, user_attrs={TRIAL: number, SEED: seed})
        trials = study.get_trials(deepcopy=False)
        n_waiting = sum(trial.state == TrialState.WAITING for trial in trials)
        shared = SharedStudy(study, search.storage, len(counted(trials)) + n_waiting)
        return Reevaluation(shared, search, len(new))


def best_trials(plan: Plan, search: SharedStudy) -> list[FrozenTrial]:
    """Return the ``top_k`` best complete trials, the best first, and one of those with the same values.

    With several objectives they are of the Pareto front, in the order of the first objective.
    """
    if plan.objective.is_single:
        complete = [trial for trial in search.trials() if trial.state == TrialState.COMPLETE]
    else:
        complete = search.study.best_trials
    descending = search.study.directions[0] == StudyDirection.MAXIMIZE
    keys, distinct = _values_keys(search), dict[str, FrozenTrial]()
    for trial in sorted(complete, key=lambda trial: trial.values[0], reverse=descending):
        distinct.setdefault(keys[trial.number], trial)
    return list(distinct.values())[: max(1, plan.config["top_k"])]


def _values_keys(search: SharedStudy) -> dict[Any, str]:
    """Return a text for each trial's number that is equal for trials with equal values."""
    trials = [trial for trial in search.trials() if "values" in trial.user_attrs]
    return {trial.number: repr(sorted(values_of(trial).items())) for trial in trials}


def values_of(trial: FrozenTrial) -> Values:
    """Return the hyperparameters of a trial by their path in the config."""
    values: Values = trial.user_attrs["values"]
    return values


def ranking(plan: Plan, search: SharedStudy) -> list[RankedTrial]:
    """Return the best trials by their scores on fresh seeds, the best first; those that failed there last."""
    with quiet_optuna():
        study = existing_study(plan.full_name + TOP, search.storage)
    if study is None or not plan.config["top_k"]:
        return []
    seeds = fresh_seeds(seed_of(search.study), plan.config["top_seeds"])
    keys = _values_keys(search)
    found = {keys[trial.number]: RankedTrial(trial.number) for trial in best_trials(plan, search)}
    done = set()
    for trial in counted(study.get_trials(deepcopy=False)):
        key, seed = keys.get(trial.user_attrs.get(TRIAL)), trial.user_attrs.get(SEED)
        if key not in found or seed not in seeds or (key, seed) in done:
            continue
        if trial.state == TrialState.COMPLETE:
            done.add((key, seed))
            found[key].samples.append([float(each) for each in trial.user_attrs[SAMPLES]])
            found[key].runs.append(str(trial.user_attrs[RUN]))
        elif trial.state == TrialState.FAIL:
            found[key].n_failed += 1
    ranked = [each for each in found.values() if each.samples]
    for each in ranked:
        each.score, each.interval = score_of(each.samples, plan.objective)
    sign = -1 if study.directions[0] == StudyDirection.MAXIMIZE else 1
    return sorted(ranked, key=lambda each: (each.n_failed, sign * each.score))


def score_of(
    samples: Sequence[Sequence[float]], objective: Objective
) -> tuple[float, tuple[float, float] | None]:
    """Return the score of the samples of each seed, and its 95 % interval if there are several seeds."""

    def score(samples: Sequence[Any]) -> float:
        pooled = np.concatenate([np.asarray(each, np.float64) for each in samples])
        return float(pooled.mean() if objective.ranks_by_mean else iqm(pooled))

    if len(samples) == 1:
        return score(samples), None
    rng, scores = np.random.default_rng(0), []
    for _ in range(N_RESAMPLES):
        seeds = [np.asarray(samples[index]) for index in rng.integers(len(samples), size=len(samples))]
        scores.append(score([each[rng.integers(len(each), size=len(each))] for each in seeds]))
    low, high = interval(np.array(scores))
    return score(samples), (float(low), float(high))
