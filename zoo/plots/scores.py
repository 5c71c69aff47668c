"""Scores: one number a run, groups of them, and what they say over several environments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zoo.core.plain_data import parse_yaml
from zoo.core.printing import one_line
from zoo.errors import ZooError
from zoo.experiment import statistics
from zoo.plots.groups import Group

Array = NDArray[np.float64]
Interval = tuple[float, float]

SCORE_NAMES = {
    "final": "mean return of the last evaluation",
    "best": "mean return of the best evaluation",
    "train": "mean return of the last 100 training episodes",
}

NO_SCORE = "no run has a score: none has finished and was evaluated (score=train takes training episodes)"


@dataclass(frozen=True)
class GroupScore:
    """The scores of a group's complete runs."""

    group: Group
    scores: Array
    left_out: list[str]
    """Runs without a score, each with its reason."""
    steps: float | None
    seconds: float | None
    """Medians over the runs; steps are the environment's."""

    @property
    def std(self) -> float | None:
        """Sample standard deviation over the runs; None for one run."""
        return float(self.scores.std(ddof=1)) if len(self.scores) > 1 else None

    @property
    def iqm(self) -> float:
        return float(statistics.iqm(self.scores))

    @property
    def ci95(self) -> Interval | None:
        """The 95 % bootstrap interval of the interquartile mean; None for one run."""
        return statistics.bootstrap_interval(statistics.pooled_iqm, [self.scores])


def scored(groups: Sequence[Group], kind: str) -> list[GroupScore]:
    """Return the scores of each group, also of one without any. Runs that did not finish have none."""
    why, group_scores = "no episode has ended" if kind == "train" else "it was not evaluated", []
    for group in groups:
        scores = {run: run.score(kind) for run in group.runs if run.is_complete}
        counted = [run for run in scores if scores[run] is not None]
        rest = [run for run in group.runs if run not in counted]
        left_out = [f"{run.name}: {why if run.is_complete else run.ending}" for run in rest]
        steps, seconds = _median(run.timesteps for run in counted), _median(run.seconds for run in counted)
        values = np.array([scores[run] for run in counted])
        group_scores.append(GroupScore(group, values, left_out, steps, seconds))
    return group_scores


def _median(values: Iterable[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return float(np.median(numbers)) if numbers else None


@dataclass(frozen=True)
class Methods:
    """Normalised scores by label, for the environments on which all labels have scores."""

    envs: list[str]
    scores: dict[str, list[Array]]
    """For each label an array for each of ``envs``."""
    is_found: bool
    """Whether any scale is that of the lowest and highest score of these runs."""
    left_out: list[str]
    """Environments that not all labels have."""

    def profile(self, label: str, points: Array) -> tuple[Array, Array, Array]:
        """Return the share of runs above each score, mean over environments, and its 95 % band."""

        def shares(strata: statistics.Strata) -> Any:
            return np.mean([(scores[..., None] > points).mean(axis=-2) for scores in strata], axis=0)

        strata = self.scores[label]
        drawn = statistics.bootstrapped(shares, strata, n_resamples=2_000, width=len(points))
        low, high = np.percentile(drawn, (2.5, 97.5), axis=0)
        return shares(strata), low, high


def normalized_scores(
    scores: Mapping[str, Mapping[str, Array]], references: str | Mapping[str, Any] | None
) -> Methods:
    """Return scores by label and environment, each return between two of its environment as 0 and 1.

    ``references`` names these, as a mapping or a YAML file of one; by default they are the lowest and the
    highest score. Raises `ZooError` if no environment is shared, or for a reference that is none.
    """
    if isinstance(references, str):
        try:
            references = parse_yaml(Path(references).expanduser().read_bytes())
        except (OSError, ValueError) as error:
            form = f"{one_line(references)} (YAML: CartPole-v1: [0, 500])"
            raise ZooError(f"can't read the references in {form}: {one_line(error)}") from error
    scales = references or {}
    if not scores:
        raise ZooError(NO_SCORE)
    shared = set.intersection(*map(set, scores.values()))
    if not shared:
        raise ZooError(
            f"no environment has scores of all {len(scores)} groups ({', '.join(list(scores)[:6])}):"
            " name fewer, or by=[algo] puts all of an algorithm together"
        )
    normalized: dict[str, list[Array]] = {label: [] for label in scores}
    for env in sorted(shared):
        everybody = np.concatenate([by_env[env] for by_env in scores.values()])
        scale = scales.get(env, [everybody.min() - (np.ptp(everybody) == 0), everybody.max()])
        if not isinstance(scale, list | tuple) or len(scale) != 2 or scale[0] == scale[1]:
            raise ZooError(f"reference of {env}: {scale} is not [low, high], two different returns")
        low, high = map(float, scale)
        for label, by_env in scores.items():
            normalized[label].append((by_env[env] - low) / (high - low))
    left_out = sorted(set().union(*scores.values()) - shared)
    return Methods(sorted(shared), normalized, not shared <= scales.keys(), left_out)


def scores_by_label(group_scores: Sequence[GroupScore]) -> dict[str, dict[str, Array]]:
    """Return the scores by label and environment, of groups that have any."""
    by_label: dict[str, dict[str, Array]] = {}
    for score in group_scores:
        if len(score.scores):
            by_label.setdefault(score.group.label, {})[score.group.env] = score.scores
    return by_label


AGGREGATES = {
    "median": statistics.median_of_means,
    "IQM": statistics.pooled_iqm,
    "mean": statistics.mean_of_means,
    "optimality gap": statistics.optimality_gap,
}


def aggregates(methods: Methods) -> dict[str, dict[str, tuple[float, Interval | None]]]:
    """Return by label median, interquartile mean, mean and optimality gap with their 95 % intervals."""
    return {
        label: {
            name: (float(statistic(strata)), statistics.bootstrap_interval(statistic, strata))
            for name, statistic in AGGREGATES.items()
        }
        for label, strata in methods.scores.items()
    }
