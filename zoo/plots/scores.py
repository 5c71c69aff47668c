"""Scores: one number a run, groups of them, and what they say over several environments."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zoo.core.plain_data import parse_yaml
from zoo.core.printing import one_line
from zoo.errors import ZooError
from zoo.experiment import statistics
from zoo.plots.groups import Group
from zoo.plots.runs import Run, Score, finite_number

Array = NDArray[np.float64]
References = dict[str, tuple[float, float]]
"""By environment, the returns that count as 0 and as 1."""

N_THRESHOLDS = 200
"""Points of a performance profile."""

SCORE_NAMES = {
    "final": "mean return of the last evaluation",
    "best": "mean return of the best evaluation",
    "train": "mean return of the last 100 training episodes",
}


@dataclass(frozen=True)
class GroupScore:
    """The scores of a group's complete runs."""

    group: Group
    scores: Array
    left_out: list[str]
    """Runs without a score, each with its reason."""
    steps: float | None
    """Median environment steps of a run."""
    hours: float | None
    """Median hours of a run."""

    @property
    def n_missing(self) -> int:
        """How many runs have no score and are not repeated by one that has."""
        return len(self.group.counted) - len(self.scores)

    @property
    def mean(self) -> float:
        return float(self.scores.mean())

    @property
    def std(self) -> float | None:
        """Sample standard deviation over the runs; None for one run."""
        return float(self.scores.std(ddof=1)) if len(self.scores) > 1 else None

    @property
    def iqm(self) -> float:
        return float(statistics.iqm(self.scores))

    @property
    def ci95(self) -> tuple[float, float] | None:
        """The 95 % bootstrap interval of the interquartile mean; None for one run."""
        return statistics.bootstrap_interval(statistics.pooled_iqm, [self.scores])

    @property
    def best(self) -> float:
        """The score of the best run."""
        return float(self.scores.max())


def scored(groups: Sequence[Group], kind: Score) -> list[GroupScore]:
    """Return the scores of each group, also of one without any. Runs that did not finish have none."""
    return [scored_group(group, kind) for group in groups]


def scored_group(group: Group, kind: Score) -> GroupScore:
    """Return the scores of one group."""
    scores, left_out, steps, seconds = [], [], [], []
    for run in group.runs:
        score = run.score(kind) if run.is_complete else None
        if run.is_complete and run.path in group.repeats:
            left_out.append(f"{run.name}: {group.why_repeated(run)}")
        elif score is None:
            left_out.append(f"{run.name}: {_why_without_score(run, kind)}")
        else:
            scores.append(score)
            steps.append(run.timesteps())
            seconds.append(run.seconds())
        run.clear_cache()
    return GroupScore(
        group,
        np.array(scores, np.float64),
        left_out,
        _median(steps),
        None if (middle := _median(seconds)) is None else middle / 3600,
    )


def _why_without_score(run: Run, kind: Score) -> str:
    if not run.is_complete:
        return run.ending
    if kind == "train":
        return "no episode has ended"
    return "it was not evaluated (score=train takes training episodes)"


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None


@dataclass(frozen=True)
class Methods:
    """Normalised scores by label, for the environments on which all labels have scores."""

    envs: list[str]
    scores: dict[str, list[Array]]
    """For each label an array for each of ``envs``."""
    references: References
    is_found: bool
    """Whether any references are the lowest and highest score of these runs."""
    left_out: list[str]
    """Environments that not all labels have."""


def normalized_scores(group_scores: Sequence[GroupScore], given: Mapping[str, Any]) -> Methods:
    """Return the scores by method, each return normalised by the references of its environment.

    Raises `ZooError` if no environment is shared, or for a reference that is none.
    """
    by_label: dict[str, dict[str, Array]] = {}
    for each in group_scores:
        if len(each.scores):
            by_label.setdefault(each.group.label, {})[each.group.env] = each.scores
    if not by_label:
        raise ZooError(
            "no run has a score: none has finished and was evaluated (score=train takes training episodes)"
        )
    every = sorted({env for scores in by_label.values() for env in scores})
    envs = [env for env in every if all(env in scores for scores in by_label.values())]
    if not envs:
        raise ZooError(
            f"no environment has scores of all {len(by_label)} groups ({', '.join(list(by_label)[:6])}):"
            " by=[algo] puts all of an algorithm together"
        )
    references, is_found = _references(envs, by_label, given)
    scores = {
        label: [_normalized(found[env], *references[env]) for env in envs]
        for label, found in by_label.items()
    }
    return Methods(envs, scores, references, is_found, [env for env in every if env not in envs])


def _normalized(scores: Array, low: float, high: float) -> Array:
    return (scores - low) / (high - low)


def _references(
    envs: Sequence[str], by_label: Mapping[str, Mapping[str, Array]], given: Mapping[str, Any]
) -> tuple[References, bool]:
    references: References = {}
    is_found = False
    for env in envs:
        if env in given:
            references[env] = _checked_reference(env, given[env])
            continue
        is_found = True
        there = np.concatenate([scores[env] for scores in by_label.values()])
        low, high = float(there.min()), float(there.max())
        references[env] = (low, high) if high > low else (low - 1.0, low)
    return references, is_found


def _checked_reference(env: str, value: Any) -> tuple[float, float]:
    match [finite_number(each) for each in value] if isinstance(value, list | tuple) else None:
        case [float(low), float(high)] if low != high:
            return low, high
    raise ZooError(
        f"reference of {one_line(env)}: {one_line(value, 60)} is not [low, high], two different returns"
    )


def read_references(given: str | Mapping[str, Any] | None) -> dict[str, Any]:
    """Return references by environment, from a mapping or a YAML file of one. Raises `ZooError`."""
    if given is None:
        return {}
    if isinstance(given, Mapping):
        return dict(given)
    try:
        return parse_yaml(Path(given).expanduser().read_bytes())
    except (OSError, ValueError) as error:
        raise ZooError(
            f"can't read the references in {one_line(given)} (YAML: CartPole-v1: [0, 500]): {one_line(error)}"
        ) from error


class Aggregate(NamedTuple):
    """One statistic of one method over all environments."""

    name: str
    value: float
    ci95: tuple[float, float] | None


AGGREGATES = {
    "median": statistics.median_of_means,
    "IQM": statistics.pooled_iqm,
    "mean": statistics.mean_of_means,
    "optimality gap": statistics.optimality_gap,
}


def aggregates(methods: Methods) -> dict[str, list[Aggregate]]:
    """Return by label median, interquartile mean, mean and optimality gap with their 95 % intervals."""
    return {
        label: [
            Aggregate(name, float(statistic(strata)), statistics.bootstrap_interval(statistic, strata))
            for name, statistic in AGGREGATES.items()
        ]
        for label, strata in methods.scores.items()
    }


class Improvement(NamedTuple):
    """How likely a run of the first method beats one of the second."""

    first: str
    second: str
    probability: float
    ci95: tuple[float, float] | None


def improvements(methods: Methods) -> list[Improvement]:
    """Return the probability of improvement of every pair of methods, with its 95 % interval."""
    found = []
    for first, second in itertools.combinations(methods.scores, 2):
        a, b = methods.scores[first], methods.scores[second]
        statistic, width = statistics.probability_of_improvement, max(map(len, [*a, *b]))
        ci95 = statistics.bootstrap_interval(statistic, a, b, n_resamples=2_000, width=width)
        found.append(Improvement(first, second, float(statistic(a, b)), ci95))
    return found


def profile_thresholds(methods: Methods) -> Array:
    """Return the thresholds of a profile: from a little below the lowest score to the highest."""
    every = np.concatenate([scores for strata in methods.scores.values() for scores in strata])
    low, high = min(0.0, float(every.min())), max(1.0, float(every.max()))
    thresholds: Array = np.linspace(low - 0.02 * (high - low), high + 0.02 * (high - low), N_THRESHOLDS)
    return thresholds
