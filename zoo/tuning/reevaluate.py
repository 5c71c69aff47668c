"""Reevaluation: the best trials are trained again on fresh seeds, as the best of many scores was lucky too.

It is a second Optuna study in the same storage, whose trials have the number of a trial and a seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import optuna
from optuna.trial import FrozenTrial, TrialState

from zoo.experiment.statistics import Strata, bootstrap_interval, iqm
from zoo.tuning.objective import FRESH_SEEDS, spawned_seeds
from zoo.tuning.space import Values
from zoo.tuning.study import Plan, SharedStudy, counted, existing_study, quiet_optuna, seed_of

TOP = "/top"
"""Suffix of the name of the second study."""

TRIAL, SEED = "trial", "seed"
"""Parameters of the second study's trials."""

SAMPLES, RUN = "samples", "run"
"""Attributes of its trials: returns of the last evaluation's episodes, and the run's folder."""


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


def join_reevaluation(plan: Plan, search: SharedStudy) -> SharedStudy | None:
    """Queue the trainings of the best trials that are not queued yet; None if no trial is complete."""
    with quiet_optuna(), search.storage.lock():
        candidates = best_trials(search, plan.config["top_k"])
        if not candidates:
            return None
        study = optuna.create_study(
            study_name=plan.full_name + TOP,
            storage=search.storage.optuna,
            direction="maximize",
            load_if_exists=True,
        )
        for seed in spawned_seeds(seed_of(search.study), plan.config["top_seeds"], FRESH_SEEDS):
            for trial in candidates:
                study.enqueue_trial({TRIAL: trial.number, SEED: seed}, skip_if_exists=True)
        trials = study.get_trials(deepcopy=False)
        n_waiting = sum(trial.state == TrialState.WAITING for trial in trials)
        return SharedStudy(study, search.storage, len(counted(trials)) + n_waiting, search.process)


def values_of(trial: FrozenTrial) -> Values:
    """Return the hyperparameters of a trial by their path in the config."""
    values: Values = trial.user_attrs["values"]
    return values


def best_trials(search: SharedStudy, n: int) -> list[FrozenTrial]:
    """Return the ``n`` best complete trials, the best first, and one of those with the same values."""
    complete = [trial for trial in search.trials() if trial.state == TrialState.COMPLETE]
    distinct: dict[str, FrozenTrial] = {}
    for trial in sorted(complete, key=lambda trial: -float(trial.values[0])):
        distinct.setdefault(repr(sorted(values_of(trial).items())), trial)
    return list(distinct.values())[:n]


def ranking(plan: Plan, search: SharedStudy) -> list[RankedTrial]:
    """Return the best trials by their scores on fresh seeds, the best first; those that failed there last."""
    with quiet_optuna():
        study = existing_study(plan.full_name + TOP, search.storage)
    if study is None:
        return []
    seeds = spawned_seeds(seed_of(search.study), plan.config["top_seeds"], FRESH_SEEDS)
    best = best_trials(search, plan.config["top_k"])
    by_number = {trial.number: RankedTrial(trial.number) for trial in best}
    for trial in counted(study.get_trials(deepcopy=False)):
        ranked = by_number.get(trial.params.get(TRIAL, -1))
        if ranked is None or trial.params.get(SEED) not in seeds:
            continue
        if trial.state == TrialState.COMPLETE:
            ranked.samples.append(trial.user_attrs[SAMPLES])
            ranked.runs.append(trial.user_attrs[RUN])
        ranked.n_failed += trial.state == TrialState.FAIL
    trained = [ranked for ranked in by_number.values() if ranked.samples]
    for ranked in trained:
        ranked.score, ranked.interval = score_of(ranked.samples, plan.objective)
    return sorted(trained, key=lambda ranked: (ranked.n_failed, -ranked.score))


def score_of(samples: Sequence[Sequence[float]], objective: str) -> tuple[float, tuple[float, float] | None]:
    """Return the IQM of all returns, or the share of successes, and its 95 % interval over seeds."""

    def score(strata: Strata) -> Any:
        pooled = strata[0].reshape(*strata[0].shape[:-2], -1)
        return pooled.mean(axis=-1) if objective == "success_rate" else iqm(pooled)

    seeds = [np.array(samples, np.float64)]
    return float(score(seeds)), bootstrap_interval(score, seeds, width=len(samples[0]))
