"""Compare two sets of runs on each environment: which is better, and with what confidence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zoo.core.notebook import as_html
from zoo.core.printing import decimal, one_line
from zoo.errors import ZooError
from zoo.experiment import statistics
from zoo.plots.curves import CENTERS
from zoo.plots.groups import Group, differences, group_runs
from zoo.plots.runs import Run
from zoo.plots.scores import Interval, normalized_scores, scored

Array = NDArray[np.float64]

SIGNIFICANCE_LEVEL = 0.05
"""A difference is significant if its p-value is at most this."""


@dataclass(frozen=True)
class Sides:
    """The two sets of runs, with their names and their groups by environment."""

    names: tuple[str, str]
    groups: tuple[dict[str, Group], dict[str, Group]]

    @property
    def runs(self) -> tuple[list[Run], list[Run]]:
        first, second = ([run for group in groups.values() for run in group.runs] for groups in self.groups)
        return first, second


@dataclass(frozen=True)
class Verdict:
    """The comparison of ``a`` and ``b`` on one environment, or on all of them together."""

    n_runs: tuple[int, int]
    values: tuple[float, float]
    """Mean or IQM of each."""
    difference: float
    """Value of a minus value of b."""
    ci95: Interval | None
    """The 95 % interval of the difference."""
    probability_of_improvement: float
    """How likely a run of a beats one of b."""
    probability_ci95: Interval | None
    chance_if_equal: float | None
    """The p-value of a two-sided permutation test of the means."""
    ahead: str | None
    """``a`` or ``b``."""
    better: str | None
    """The side that is significantly better over seeds."""


@dataclass(frozen=True, repr=False)
class Comparison:
    """The comparison of two sides."""

    sides: Sides
    verdicts: dict[str, Verdict]
    """By environment, for those on which both have scores."""
    overall: Verdict | None
    """Over all of these environments, of normalised scores; None for one environment."""
    left_out: list[str]
    config_differences: dict[str, tuple[list[Any], list[Any]]]
    text: str = ""
    """All of it in sentences."""

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return as_html(self.text)

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            **dict(zip("ab", self.sides.names, strict=True)),
            "envs": {env: asdict(verdict) for env, verdict in self.verdicts.items()},
            "overall": None if self.overall is None else asdict(self.overall),
            "config_differences": {key: {"a": a, "b": b} for key, (a, b) in self.config_differences.items()},
            "left_out": self.left_out,
        }


def sides_of(paths: Sequence[tuple[str, list[Run]]], by: Sequence[str]) -> Sides:
    """Return two sets of runs, or the two groups of one. Raises `ZooError` if they can't be compared."""
    if len(paths) > 2 or not paths:
        raise ZooError(
            f"{len(paths)} paths were given, and two are compared; a pattern stands for several runs:"
            " zoo compare 'runs/ppo2/*' 'runs/a2c/*'"
        )
    groups = group_runs([run for _, runs in paths for run in runs], by)
    labels = list(dict.fromkeys(group.label for group in groups))
    if len(paths) == 1:
        if len(labels) != 2:
            raise ZooError(f"two groups are compared, and {len(labels)} are here: {'; '.join(labels[:6])}")
        parts = [[group for group in groups if group.label == label] for label in labels]
        names = labels[0], labels[1]
    else:
        first, second = ({str(run.path.resolve()) for run in runs} for _, runs in paths)
        if first & second:
            raise ZooError(f"both sides hold {one_line(min(first & second))}: no run is compared with itself")
        parts = [group_runs(runs, by) for _, runs in paths]
        label_sets = [{group.label for group in part} for part in parts]
        is_named = len(label_sets[0]) == len(label_sets[1]) == 1 and label_sets[0] != label_sets[1]
        names = (label_sets[0].pop(), label_sets[1].pop()) if is_named else (paths[0][0], paths[1][0])
    sides = Sides(names, (_by_env(names[0], parts[0]), _by_env(names[1], parts[1])))
    if not sides.groups[0].keys() & sides.groups[1].keys():
        there = [", ".join(list(groups)[:4]) for groups in sides.groups]
        raise ZooError(f"the two share no environment: {there[0]} and {there[1]}")
    return sides


def _by_env(name: str, groups: Sequence[Group]) -> dict[str, Group]:
    by_env = {group.env: group for group in groups}
    for group in groups:
        if by_env[group.env] is not group:
            labels = f"{by_env[group.env].label}; {group.label}"
            raise ZooError(
                f"{one_line(name, 80)} holds several groups on {group.env} ({labels}): name one"
                " of them, or merge them by the keys that they share: by=[algo]"
            )
    return by_env


def compare_sides(
    sides: Sides, kind: str, aggregate: str, references: str | Mapping[str, Any] | None
) -> Comparison:
    """Compare the two. Raises `ZooError` if there is no environment on which both have a score."""
    envs = sorted(sides.groups[0].keys() & sides.groups[1].keys())
    pairs = {env: scored([groups[env] for groups in sides.groups], kind) for env in envs}
    both = [side for pair in pairs.values() for side in pair]
    left_out = [line for side in both for line in [*side.left_out, *side.group.repeat_lines]]
    measured = {env: pair for env, pair in pairs.items() if all(len(side.scores) for side in pair)}
    if not measured:
        raise ZooError("there is nothing to compare: " + "; ".join(left_out[:4]))
    verdicts = {env: _verdict([a.scores], [b.scores], aggregate) for env, (a, b) in measured.items()}
    overall = None
    if len(measured) > 1:
        by_side = [{env: pair[side].scores for env, pair in measured.items()} for side in (0, 1)]
        normalized = normalized_scores(dict(zip("ab", by_side, strict=True)), references).scores
        overall = _verdict(normalized["a"], normalized["b"], aggregate)
    return Comparison(sides, verdicts, overall, left_out, differences(*sides.runs))


def _verdict(first: Sequence[Array], second: Sequence[Array], aggregate: str) -> Verdict:
    value = CENTERS[aggregate]
    values = float(value(first)), float(value(second))
    n_runs = sum(map(len, first)), sum(map(len, second))
    wins = statistics.probability_of_improvement
    probability, difference = float(wins(first, second)), values[0] - values[1]
    ahead = None if difference == 0 else "a" if difference > 0 else "b"
    if min(map(len, [*first, *second])) < 2:
        return Verdict(n_runs, values, difference, None, probability, None, None, ahead, None)
    ci95 = statistics.bootstrap_interval(lambda a, b: value(a) - value(b), first, second)
    width = max(map(len, [*first, *second]))
    wins_ci95 = statistics.bootstrap_interval(wins, first, second, width=width)
    # By means even for aggregate=iqm: permutations of few runs have too few distinct interquartile means.
    chance = statistics.chance_of_difference(statistics.mean_of_means, first, second)
    assert ci95 is not None
    better = ahead if ci95[0] * ci95[1] > 0 and chance <= SIGNIFICANCE_LEVEL else None
    return Verdict(n_runs, values, difference, ci95, probability, wins_ci95, chance, ahead, better)


def sentence(place: str, verdict: Verdict, names: tuple[str, str]) -> str:
    """Return a verdict as a sentence; differences and intervals are given from the leading side's view."""
    values = ", ".join(
        f"{name} {decimal(value)} ({n} run{'s' * (n != 1)})"
        for name, value, n in zip(names, verdict.values, verdict.n_runs, strict=True)
    )
    if verdict.ahead is None:
        return f"{place}: no difference. {values}."
    ahead, other = names if verdict.ahead == "a" else names[::-1]
    sign = 1 if verdict.ahead == "a" else -1
    outcome = "is better" if verdict.better else "is ahead"
    parts = [f"{ahead} {outcome}, by {decimal(abs(verdict.difference))}"]
    if verdict.ci95 is not None:
        low, high = sorted(sign * end for end in verdict.ci95)
        parts[0] += f" (95 % interval {decimal(low)} to {decimal(high)})"
    if verdict.chance_if_equal is None:
        parts.append("but with a single run nothing is known of what is luck of the seed")
    else:
        wins = verdict.probability_of_improvement
        parts.append(f"a run of it beats one of {other} in {wins if sign > 0 else 1 - wins:.0%} of the pairs")
        one_in = max(1, round(1 / verdict.chance_if_equal))
        parts.append(f"two equal methods would differ as much in 1 of {one_in:,} such comparisons")
        first, second = verdict.n_runs
        if (1 + (first == second)) / math.comb(first + second, first) > SIGNIFICANCE_LEVEL:
            parts.append(f"{first} against {second} runs can't decide, four of each can")
    return f"{place}: {'' if verdict.better else 'not decided: '}{'; '.join(parts)}. {values}."
