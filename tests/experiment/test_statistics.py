"""Robust statistics agree with SciPy's, with `rliable`'s numbers, and with slow and obvious references."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from zoo.experiment import statistics

RNG = np.random.default_rng(0)
FIVE_ENVS = [RNG.normal(0.5, 0.3, 7) for _ in range(5)]
FIVE_OTHERS = [RNG.normal(0.6, 0.3, 7) for _ in range(5)]


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8, 9, 100])
def test_iqm_is_scipys_trimmed_mean(n: int) -> None:
    values = RNG.normal(size=n)
    assert statistics.iqm(values) == pytest.approx(stats.trim_mean(values, 0.25))


def test_batched_statistics_match_single_resamples() -> None:
    resamples = [scores[RNG.integers(7, size=(4, 7))] for scores in FIVE_ENVS]
    each = [[scores[row] for scores in resamples] for row in range(4)]
    for statistic in (
        statistics.pooled_iqm,
        statistics.mean_of_means,
        statistics.median_of_means,
        statistics.optimality_gap,
    ):
        assert np.allclose(statistic(resamples), [statistic(strata) for strata in each])
    others = [scores[RNG.integers(7, size=(4, 7))] for scores in FIVE_OTHERS]
    others[0][:, :3] = resamples[0][:, 1:4]  # some of them draw
    together = statistics.probability_of_improvement(resamples, others)
    apart = [statistics.probability_of_improvement(each[row], [o[row] for o in others]) for row in range(4)]
    assert np.allclose(together, apart)


def test_optimality_gap_clips_scores_at_target() -> None:
    assert statistics.optimality_gap([np.array([0.5, 2.0]), np.array([1.0, 0.0])]) == pytest.approx(1.5 / 4)


def slow_probability(first: NDArray[Any], second: NDArray[Any]) -> float:
    wins = [1.0 if a > b else 0.5 if a == b else 0.0 for a in first for b in second]
    return sum(wins) / len(wins)


def test_probability_of_improvement_counts_ties_half() -> None:
    first, second = np.array([1.0, 2.0, 2.0, 5.0]), np.array([2.0, 0.0, 7.0])
    assert statistics.probability_of_improvement([first], [second]) == slow_probability(first, second)
    both = [np.array([1.0, 1.0]), np.array([3.0])], [np.array([1.0]), np.array([2.0, 4.0])]
    expected = np.mean([slow_probability(a, b) for a, b in zip(*both, strict=True)])
    assert statistics.probability_of_improvement(*both) == expected


def test_probability_of_improvement_is_mann_whitney_u() -> None:
    u = stats.mannwhitneyu(FIVE_ENVS[0], FIVE_OTHERS[0]).statistic
    assert statistics.probability_of_improvement(FIVE_ENVS[:1], FIVE_OTHERS[:1]) == pytest.approx(u / 49)


def test_bootstrap_of_two_runs_matches_all_draws() -> None:
    scores = np.array([0.0, 1.0])
    resamples = statistics.bootstrapped(statistics.mean_of_means, [scores], n_resamples=40_000)
    exact = [np.mean(draw) for draw in itertools.product(scores, repeat=2)]
    for value in (0.0, 0.5, 1.0):
        assert np.mean(resamples == value) == pytest.approx(np.mean(np.array(exact) == value), abs=0.01)


def test_bootstrap_resamples_within_each_env() -> None:
    strata = [np.full(3, 1.0), np.full(5, 10.0)]
    resamples = statistics.bootstrapped(lambda s: np.stack([s[0].sum(-1), s[1].sum(-1)], -1), strata)
    assert np.unique(resamples, axis=0).tolist() == [[3.0, 50.0]]


def test_bootstrap_interval_of_mean_matches_scipy() -> None:
    scores = np.random.default_rng(1).normal(size=40)
    ours = statistics.bootstrap_interval(statistics.mean_of_means, [scores], n_resamples=20_000)
    theirs = stats.bootstrap((scores,), np.mean, n_resamples=20_000, method="percentile", rng=1)
    assert ours is not None
    assert np.allclose(ours, theirs.confidence_interval, atol=0.02)


def test_statistics_match_rliable() -> None:
    """What `rliable` 1.2.0 made of these matrices; its bootstrap can't be imported with pandas 3."""
    first = [np.array([((run * 7 + env * 3) % 11) / 10 for run in range(7)]) for env in range(5)]
    second = [np.array([((run * 5 + env * 4 + 2) % 13) / 10 for run in range(7)]) for env in range(5)]
    assert statistics.pooled_iqm(first) == pytest.approx(0.5)
    assert statistics.mean_of_means(first) == pytest.approx(0.5)
    assert statistics.median_of_means(first) == pytest.approx(0.5)
    assert statistics.optimality_gap(second) == pytest.approx(0.41714285714285704)
    assert statistics.probability_of_improvement(first, second) == pytest.approx(0.41836734693877553)


def test_p_value_matches_all_permutations() -> None:
    first, second = np.array([1.0, 4.0, 5.0]), np.array([2.0, 0.0, 3.0, 1.5])
    pooled = np.concatenate([first, second])
    there = abs(first.mean() - second.mean())
    ways = list(itertools.combinations(range(7), 3))
    larger = [abs(pooled[list(way)].mean() - np.delete(pooled, way).mean()) >= there - 1e-12 for way in ways]
    found = statistics.chance_of_difference(statistics.mean_of_means, [first], [second])
    assert found == pytest.approx(np.mean(larger), abs=0.01)


def test_equal_methods_are_rarely_called_different() -> None:
    rng = np.random.default_rng(0)
    chances = [
        statistics.chance_of_difference(
            statistics.pooled_iqm, [rng.normal(size=5)], [rng.normal(size=5)], n_draws=400
        )
        for _ in range(400)
    ]
    assert np.mean(np.array(chances) <= 0.05) < 0.08


def test_p_value_is_never_zero() -> None:
    first, second = np.arange(10.0), np.arange(10.0) + 100
    found = statistics.chance_of_difference(statistics.mean_of_means, [first], [second], n_draws=99, seed=1)
    assert found == pytest.approx(1 / 100)


def test_interval_needs_env_with_two_runs_per_method() -> None:
    once, twice = [np.array([1.0]), np.array([2.0])], [np.array([1.0]), np.array([2.0, 3.0])]

    def found(*methods: list[NDArray[Any]]) -> Any:
        def statistic(*each: Any) -> Any:
            return sum(statistics.mean_of_means(strata) for strata in each)

        return statistics.bootstrap_interval(statistic, *methods, n_resamples=200)

    assert found(once) is None
    assert found(once, twice) is None
    assert found(twice, once) is None
    low, high = found(twice)
    assert (low, high) == (pytest.approx(1.5), pytest.approx(2.0))
    assert found(twice, twice) is not None
