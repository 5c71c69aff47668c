"""The best trials once more, on fresh seeds: a score that was the best of many was lucky too."""

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
from zoo.tuning.objective import Objective, Training, fresh_seeds
from zoo.tuning.plan import Plan
from zoo.tuning.space import Values
from zoo.tuning.study import TOP, SharedStudy, counted, existing_study, quiet_optuna, seed_of

TRIAL, SEED, SAMPLES, RUN = "trial", "seed", "samples", "run"

RESAMPLES = 2_000


@dataclass
class Reevaluation:
    """The second study; ``candidates`` are the numbers of the trials that are trained again."""

    shared: SharedStudy
    search: SharedStudy
    candidates: list[int]
    n_new: int = 0
    """Trainings that were not asked for before."""

    def what_to_train(self, trial: Trial | FrozenTrial) -> tuple[int, int]:
        """Return the number of the trial that is trained again, and the seed."""
        return int(trial.user_attrs[TRIAL]), int(trial.user_attrs[SEED])

    def values_of(self, number: int) -> Values:
        """Return the hyperparameters of a trial."""
        return values_of(self.search.trials()[number])

    def record(self, trial: Trial, training: Training, run: Path, objective: Objective) -> None:
        """Keep what a training has shown."""
        trial.set_user_attr(SAMPLES, objective.samples(training))
        trial.set_user_attr(RUN, str(run))


@dataclass
class Ranked:
    """How a trial did on fresh seeds. ``samples`` are those of each seed."""

    number: int
    samples: list[list[float]] = field(default_factory=list)
    n_failed: int = 0
    score: float = float("nan")
    interval: tuple[float, float] | None = None
    """None with one seed, which does not say how much seeds differ."""
    runs: list[str] = field(default_factory=list)


def join_reevaluation(plan: Plan, search: SharedStudy) -> Reevaluation | None:
    """Let the best trials be trained again, unless they are already; None if no trial is complete."""
    with quiet_optuna(), search.turn():
        candidates = [trial.number for trial in best_trials(plan, search)]
        if not candidates:
            return None
        name = plan.full_name + TOP
        study = existing_study(name, search.storage) or _begin(name, plan, search)
        trials, alike = study.get_trials(deepcopy=False), _by_values(search)
        known = {(alike.get(trial.user_attrs.get(TRIAL)), trial.user_attrs.get(SEED)) for trial in trials}
        seeds = fresh_seeds(seed_of(search.study), plan.config["top_seeds"])
        wanted = [
            (number, seed) for seed in seeds for number in candidates if (alike[number], seed) not in known
        ]
        for number, seed in wanted:
            study.enqueue_trial({}, user_attrs={TRIAL: number, SEED: seed})
        trials = study.get_trials(deepcopy=False)
        n_waiting = sum(trial.state == TrialState.WAITING for trial in trials)
        shared = SharedStudy(study, search.storage, len(counted(trials)) + n_waiting)
        return Reevaluation(shared, search, candidates, len(wanted))


def best_trials(plan: Plan, search: SharedStudy) -> list[FrozenTrial]:
    """Return the best complete trials, the best first; of several objectives the first one decides.

    Of trials with equal values, which would be equal trainings on the same fresh seeds, the best is one of
    them.
    """
    if plan.objective.is_single:
        complete = [trial for trial in search.trials() if trial.state == TrialState.COMPLETE]
    else:
        complete = search.study.best_trials
    descending = search.study.directions[0] == StudyDirection.MAXIMIZE
    alike, distinct = _by_values(search), dict[str, FrozenTrial]()
    for trial in sorted(complete, key=lambda trial: trial.values[0], reverse=descending):
        distinct.setdefault(alike[trial.number], trial)
    return list(distinct.values())[: max(1, plan.config["top_k"])]


def _by_values(search: SharedStudy) -> dict[Any, str]:
    """Return, by the numbers of the search's trials, a text that is equal for those of equal values."""
    own = [trial for trial in search.trials() if "values" in trial.user_attrs]
    return {trial.number: repr(sorted(values_of(trial).items())) for trial in own}


def values_of(trial: FrozenTrial) -> Values:
    """Return the hyperparameters of a trial by their place in the config."""
    values: Values = trial.user_attrs["values"]
    return values


def ranking(plan: Plan, search: SharedStudy) -> list[Ranked]:
    """Return the best trials by how they did on fresh seeds, the best first; those that failed there last."""
    with quiet_optuna():
        study = existing_study(plan.full_name + TOP, search.storage)
    if study is None or not plan.config["top_k"]:
        return []
    candidates = [trial.number for trial in best_trials(plan, search)]
    seeds = fresh_seeds(seed_of(search.study), plan.config["top_seeds"])
    alike = _by_values(search)
    found, done = {alike[number]: Ranked(number) for number in candidates}, set()
    for trial in counted(study.get_trials(deepcopy=False)):
        values, seed = alike.get(trial.user_attrs.get(TRIAL)), trial.user_attrs.get(SEED)
        if values in found and seed in seeds and (values, seed) not in done:
            _take_in(found[values], trial)
            if trial.state == TrialState.COMPLETE:
                done.add((values, seed))
    for each in found.values():
        _score(each, plan.objective)
    sign = -1 if study.directions[0] == StudyDirection.MAXIMIZE else 1
    tried = [each for each in found.values() if each.samples]
    return sorted(tried, key=lambda each: (each.n_failed, sign * each.score))


def _begin(name: str, plan: Plan, search: SharedStudy) -> optuna.Study:
    return optuna.create_study(
        study_name=name, storage=search.storage.optuna, directions=plan.objective.directions
    )


def _take_in(ranked: Ranked, trial: FrozenTrial) -> None:
    if trial.state == TrialState.COMPLETE:
        ranked.samples.append([float(each) for each in trial.user_attrs[SAMPLES]])
        ranked.runs.append(str(trial.user_attrs[RUN]))
    elif trial.state == TrialState.FAIL:
        ranked.n_failed += 1


def _score(ranked: Ranked, objective: Objective) -> None:
    if not ranked.samples:
        return
    ranked.score = _middle(ranked.samples, objective)
    if len(ranked.samples) > 1:
        ranked.interval = _bootstrap_interval(ranked.samples, objective)


def _middle(samples: Sequence[Any], objective: Objective) -> float:
    pooled = np.concatenate([np.asarray(each, np.float64) for each in samples])
    return float(pooled.mean() if objective.ranks_by_mean else iqm(pooled))


def _bootstrap_interval(samples: Sequence[Sequence[float]], objective: Objective) -> tuple[float, float]:
    """Return the 95 % interval, from resamples of the seeds and of what each of them gave."""
    rng = np.random.default_rng(0)
    middles = []
    for _ in range(RESAMPLES):
        drawn = [np.asarray(samples[index]) for index in rng.integers(len(samples), size=len(samples))]
        middles.append(_middle([each[rng.integers(len(each), size=len(each))] for each in drawn], objective))
    low, high = interval(np.array(middles))
    return float(low), float(high)
