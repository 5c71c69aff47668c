"""Compare two sets of runs on each environment: which is better, and with what confidence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from zoo.core.printing import decimal, one_line
from zoo.errors import ZooError
from zoo.experiment import statistics
from zoo.plots.groups import Group, differences, group_runs
from zoo.plots.runs import Run, Score
from zoo.plots.scores import GroupScore, Methods, normalized_scores, scored_group

Array = NDArray[np.float64]
Side = Literal["a", "b"]

SIGNIFICANCE_LEVEL = 0.05
"""A difference is significant if two equal methods would differ as much less often than this."""


@dataclass(frozen=True)
class Sides:
    """The two sets of runs, with their names and their groups by environment."""

    names: tuple[str, str]
    groups: tuple[dict[str, Group], dict[str, Group]]

    @property
    def runs(self) -> tuple[list[Run], list[Run]]:
        first, second = ([run for group in each.values() for run in group.runs] for each in self.groups)
        return first, second


@dataclass(frozen=True)
class Verdict:
    """The comparison on one environment, or on all of them together."""

    place: str
    n_runs: tuple[int, int]
    values: tuple[float, float]
    """Mean or IQM of each."""
    basis: Literal["seeds", "episodes"]
    """Whether the interval is over runs with different seeds, or over episodes of single runs."""
    ci95: tuple[float, float] | None = None
    """The 95 % interval of the difference, first minus second."""
    probability: float | None = None
    """How likely a run of the first beats one of the second."""
    probability_ci95: tuple[float, float] | None = None
    p_value: float = 1.0
    """How often two equal methods would differ by as much, with as many runs."""

    @property
    def difference(self) -> float:
        return self.values[0] - self.values[1]

    @property
    def ahead(self) -> Side | None:
        """The side with the higher value."""
        return None if self.difference == 0 else "a" if self.difference > 0 else "b"

    @property
    def lead_ci95(self) -> tuple[float, float] | None:
        """The 95 % interval of the difference, seen from the side that is ahead."""
        if self.ci95 is None or self.ahead != "b":
            return self.ci95
        return -self.ci95[1], -self.ci95[0]

    @property
    def is_clear(self) -> bool:
        """Whether the interval excludes 0."""
        return self.ci95 is not None and (self.ci95[0] > 0 or self.ci95[1] < 0)

    @property
    def better(self) -> Side | None:
        """The side that is significantly better over seeds; None if neither is."""
        is_sure = self.basis == "seeds" and self.is_clear and self.p_value <= SIGNIFICANCE_LEVEL
        return self.ahead if is_sure else None

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            "n_runs": list(self.n_runs),
            "values": list(self.values),
            "difference": self.difference,
            "ci95": None if self.ci95 is None else list(self.ci95),
            "probability_of_improvement": self.probability,
            "probability_ci95": None if self.probability_ci95 is None else list(self.probability_ci95),
            "chance_if_equal": None if self.probability_ci95 is None else self.p_value,
            "basis": self.basis,
            "ahead": self.ahead,
            "better": self.better,
        }


def sides_of(given: Sequence[tuple[str, list[Run]]], by: Sequence[str]) -> Sides:
    """Return the two sides: two sets of runs, or the two groups of one set.

    Raises `ZooError` if there are not two, if one has several groups on an environment, if both have the same
    run, or if they share no environment.
    """
    if len(given) == 1:
        sides = _sides_of_one(given[0][1], by)
    elif len(given) == 2:
        _refuse_shared_runs(given)
        joint = group_runs([run for _, runs in given for run in runs], by)
        names = _names(given, joint)
        sides = Sides(names, (_by_env(*given[0], by), _by_env(*given[1], by)))
    else:
        raise ZooError(
            f"{len(given)} paths were given, and two are compared; a pattern stands for several runs:"
            " zoo compare 'runs/ppo2/*' 'runs/a2c/*'"
        )
    if not sides.groups[0].keys() & sides.groups[1].keys():
        there = [", ".join(list(groups)[:4]) for groups in sides.groups]
        raise ZooError(f"the two share no environment: {there[0]} and {there[1]}")
    return sides


def _sides_of_one(runs: list[Run], by: Sequence[str]) -> Sides:
    groups = group_runs(runs, by)
    labels = list(dict.fromkeys(group.label for group in groups))
    if len(labels) != 2:
        names = "; ".join(labels[:6])
        raise ZooError(
            f"two are compared, and there is {len(labels)} group{'s' * (len(labels) != 1)} here: {names}"
        )
    first, second = ({group.env: group for group in groups if group.label == label} for label in labels)
    return Sides((labels[0], labels[1]), (first, second))


def _refuse_shared_runs(given: Sequence[tuple[str, list[Run]]]) -> None:
    first, second = ({str(run.path.resolve()): run for run in runs} for _, runs in given)
    shared = [first[path].name for path in first if path in second]
    if shared:
        more = f" and {len(shared) - 1} more" if len(shared) > 1 else ""
        raise ZooError(f"both sides hold {shared[0]}{more}: a run can't be compared with itself")


def _names(given: Sequence[tuple[str, list[Run]]], joint: Sequence[Group]) -> tuple[str, str]:
    """Return the labels of the two sides, or their paths where the labels are equal or several."""
    label_of = {id(run): group.label for group in joint for run in group.runs}
    labels = [{label_of[id(run)] for run in runs} for _, runs in given]
    if len(labels[0]) == len(labels[1]) == 1 and labels[0] != labels[1]:
        return labels[0].pop(), labels[1].pop()
    return one_line(given[0][0], 80), one_line(given[1][0], 80)


def _by_env(text: str, runs: list[Run], by: Sequence[str]) -> dict[str, Group]:
    groups: dict[str, Group] = {}
    for group in group_runs(runs, by):
        if group.env in groups:
            labels = [each.label for each in group_runs(runs, by) if each.env == group.env]
            raise ZooError(
                f"{one_line(text, 80)} holds {len(labels)} groups on {group.env} ({'; '.join(labels[:4])}):"
                " name one of them, or put them together by what they share: by=[algo]"
            )
        groups[group.env] = group
    return groups


@dataclass(frozen=True)
class Comparison:
    """The comparison of two sides."""

    sides: Sides
    verdicts: list[Verdict]
    """By environment, for those on which both have scores."""
    overall: Verdict | None
    """Over all of these environments, of normalised scores; None for one environment."""
    left_out: list[str]
    config_differences: dict[str, tuple[list[Any], list[Any]]]

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            "a": self.sides.names[0],
            "b": self.sides.names[1],
            "envs": {verdict.place: verdict.as_json() for verdict in self.verdicts},
            "overall": None if self.overall is None else self.overall.as_json(),
            "config_differences": {
                key: {"a": values[0], "b": values[1]} for key, values in self.config_differences.items()
            },
            "left_out": self.left_out,
        }


def compare_sides(
    sides: Sides, kind: Score, aggregate: Literal["mean", "iqm"], references: Mapping[str, Any]
) -> Comparison:
    """Compare the two. Raises `ZooError` if there is no environment on which both have a score."""
    envs = sorted(sides.groups[0].keys() & sides.groups[1].keys())
    pairs = {
        env: (scored_group(sides.groups[0][env], kind), scored_group(sides.groups[1][env], kind))
        for env in envs
    }
    left_out = [line for pair in pairs.values() for each in pair for line in each.left_out]
    measured = {env: pair for env, pair in pairs.items() if len(pair[0].scores) and len(pair[1].scores)}
    if not measured:
        raise ZooError("there is nothing to compare: " + "; ".join(left_out[:4]))
    verdicts = [_verdict(env, *pair, kind, aggregate) for env, pair in measured.items()]
    overall = _overall(measured, aggregate, references) if len(measured) > 1 else None
    return Comparison(sides, verdicts, overall, left_out, differences(*sides.runs))


def _verdict(env: str, first: GroupScore, second: GroupScore, kind: Score, aggregate: str) -> Verdict:
    n_runs = len(first.scores), len(second.scores)
    if n_runs == (1, 1):
        return _verdict_of_episodes(env, first, second, kind)
    value = statistics.pooled_iqm if aggregate == "iqm" else statistics.mean_of_means
    return _verdict_of_runs(env, n_runs, [first.scores], [second.scores], value)


def _verdict_of_runs(
    place: str,
    n_runs: tuple[int, int],
    first: Sequence[Array],
    second: Sequence[Array],
    value: Callable[[Sequence[Array]], Any],
) -> Verdict:
    values = float(value(first)), float(value(second))
    probability = float(statistics.probability_of_improvement(first, second))
    if min(map(len, [*first, *second])) < 2:
        return Verdict(place, n_runs, values, "seeds", probability=probability)
    difference = statistics.bootstrap_interval(lambda a, b: value(a) - value(b), first, second)
    width = max(map(len, [*first, *second]))
    probability_ci95 = statistics.bootstrap_interval(
        statistics.probability_of_improvement, first, second, width=width
    )
    # By means even for aggregate=iqm: permutations of few runs have too few distinct interquartile means.
    p_value = statistics.chance_of_difference(statistics.mean_of_means, first, second)
    return Verdict(place, n_runs, values, "seeds", difference, probability, probability_ci95, p_value)


def _verdict_of_episodes(env: str, first: GroupScore, second: GroupScore, kind: Score) -> Verdict:
    """Compare two agents by the episodes of their evaluations."""
    values = float(first.scores[0]), float(second.scores[0])
    episodes = [_episodes_of(each, kind) for each in (first, second)]
    ci95 = None
    if all(returns is not None and len(returns) > 1 for returns in episodes):
        ci95 = statistics.bootstrap_interval(
            lambda a, b: statistics.mean_of_means(a) - statistics.mean_of_means(b),
            *([returns] for returns in episodes if returns is not None),
        )
    return Verdict(env, (1, 1), values, "episodes", ci95)


def _episodes_of(each: GroupScore, kind: Score) -> Array | None:
    run = next(run for run in each.group.counted if run.is_complete and run.score(kind) is not None)
    return run.scored_returns(kind)


def _overall(
    measured: Mapping[str, tuple[GroupScore, GroupScore]], aggregate: str, references: Mapping[str, Any]
) -> Verdict:
    renamed = [
        GroupScore(Group(name, env, each.group.runs), each.scores, [], None, None)
        for env, pair in measured.items()
        for name, each in zip(("a", "b"), pair, strict=True)
    ]
    methods: Methods = normalized_scores(renamed, references)
    first, second = methods.scores["a"], methods.scores["b"]
    value = statistics.pooled_iqm if aggregate == "iqm" else statistics.mean_of_means
    n_runs = sum(map(len, first)), sum(map(len, second))
    return _verdict_of_runs(
        f"{len(methods.envs)} environments together, normalised", n_runs, first, second, value
    )


def sentence(verdict: Verdict, names: tuple[str, str]) -> str:
    """Return a verdict as a sentence."""
    if verdict.basis == "episodes":
        return f"{verdict.place}: {_single_run_text(verdict, names)}"
    values = _values_text(verdict, names)
    if verdict.ahead is None:
        return f"{verdict.place}: no difference, {values}."
    ahead, by = names[verdict.ahead == "b"], decimal(abs(verdict.difference))
    if verdict.lead_ci95 is None:
        alone = [name for name, n in zip(names, verdict.n_runs, strict=True) if n == 1]
        single = f"of {alone[0]} there is a single run" if alone else "on some there is a single run of one"
        text = f"{ahead} is ahead by {by}, but {single}: how much of that is luck of the seed is not known"
        return f"{verdict.place}: {text}. {values}."
    span = f"{decimal(verdict.lead_ci95[0])} to {decimal(verdict.lead_ci95[1])}"
    one_in = max(1, round(1 / verdict.p_value))
    if_equal = f"two equal methods would differ as much in 1 of {one_in:,} such comparisons"
    probability = _probability_text(verdict, names)
    if verdict.better is not None:
        text = f"{ahead} is better, by {by} (95 % interval {span}); {probability}, and {if_equal}"
    elif verdict.is_clear:
        text = (
            f"{ahead} is ahead by {by} (95 % interval {span}), but so few seeds can't decide it: {if_equal}"
        )
    else:
        interval = f"the 95 % interval of the difference, {span}, holds 0"
        text = f"not decided. {ahead} is ahead by {by}, but {interval}; {probability}"
    return f"{verdict.place}: {text}. {values}."


def _single_run_text(verdict: Verdict, names: tuple[str, str]) -> str:
    start = f"one run each, so nothing can be said about {names[0]} and {names[1]} beyond evaluation noise; "
    if verdict.lead_ci95 is None or verdict.ahead is None:
        return f"{start}of these two agents {_values_text(verdict, names, 'agent')}."
    ahead = names[verdict.ahead == "b"]
    by = decimal(abs(verdict.difference))
    span = f"95 % interval of its lead {decimal(verdict.lead_ci95[0])} to {decimal(verdict.lead_ci95[1])}"
    if not verdict.is_clear:
        return f"{start}even of these two agents {ahead}'s is ahead by no more than that: by {by} ({span})."
    return f"{start}of these two agents {ahead}'s is better, by {by} ({span}). Train more seeds."


def _probability_text(verdict: Verdict, names: tuple[str, str]) -> str:
    assert verdict.probability is not None
    is_second = verdict.ahead == "b"
    probability = 1 - verdict.probability if is_second else verdict.probability
    odds = f"a run of it beats one of {names[not is_second]} in {probability:.0%} of the pairs"
    if verdict.probability_ci95 is None:
        return odds
    low, high = verdict.probability_ci95
    low, high = (1 - high, 1 - low) if is_second else (low, high)
    return f"{odds} ({low:.0%} to {high:.0%})"


def _values_text(verdict: Verdict, names: tuple[str, str], noun: str = "run") -> str:
    parts = [
        f"{name} {decimal(value)} ({n} {noun}{'s' * (n != 1)})"
        for name, value, n in zip(names, verdict.values, verdict.n_runs, strict=True)
    ]
    return ", ".join(parts)
