"""Statistics of few runs: robust means, probabilities, and intervals by stratified bootstrap.

The measures are those of Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical
Precipice" (2021). Scores come as strata: one array for each environment, with the score of each run. A
statistic takes strata whose last axis is the runs' and returns its value for each of the axes before, so that
thousands of resamples are one call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Strata = Sequence[Array]  # scores of a method: for each environment an array (…, n_runs)

N_RESAMPLES = 10_000
CONFIDENCE = 0.95
_BATCH_ELEMENTS = 1_000_000  # scores that are resampled at a time


def iqm(values: NDArray[Any]) -> Any:
    """Return the interquartile mean over the last axis: that of the middle half."""
    cut = values.shape[-1] // 4
    return np.sort(values, axis=-1)[..., cut : values.shape[-1] - cut].mean(axis=-1)


def pooled_iqm(strata: Strata) -> Any:
    """Return the interquartile mean of all runs on all environments."""
    return iqm(np.concatenate(list(strata), axis=-1))


def mean_of_means(strata: Strata) -> Any:
    """Return the mean over environments of the mean over runs."""
    return np.mean([scores.mean(axis=-1) for scores in strata], axis=0)


def median_of_means(strata: Strata) -> Any:
    """Return the median over environments of the mean over runs."""
    return np.median([scores.mean(axis=-1) for scores in strata], axis=0)


def optimality_gap(strata: Strata, target: float = 1.0) -> Any:
    """Return the mean over environments of how far runs stay below ``target``."""
    return target - np.mean([np.minimum(scores, target).mean(axis=-1) for scores in strata], axis=0)


def probability_of_improvement(first: Strata, second: Strata) -> Any:
    """Return how likely a run of ``first`` beats one of ``second`` on an environment drawn at random.

    This is the Mann-Whitney statistic over the number of pairs, averaged over environments; a draw is half.
    """
    pairs = zip(first, second, strict=True)
    signs = (np.sign(a[..., :, None] - b[..., None, :]).mean(axis=(-1, -2)) for a, b in pairs)
    return np.mean([(1 + sign) / 2 for sign in signs], axis=0)


def bootstrapped(
    statistic: Callable[..., Any], *methods: Strata, n_resamples: int = N_RESAMPLES, width: int = 1
) -> Array:
    """Return ``statistic(*methods)`` for resamples (n_resamples, …) of the runs.

    Runs are drawn with replacement, as many on each environment as there are (stratified). ``width`` is how
    many numbers the statistic makes of a score.
    """
    rng, results = np.random.default_rng(0), []
    for n in _batches(n_resamples, width * sum(len(scores) for strata in methods for scores in strata)):
        drawn = (
            [scores[rng.integers(len(scores), size=(n, len(scores)))] for scores in strata]
            for strata in methods
        )
        results.append(np.asarray(statistic(*drawn)))
    return np.concatenate(results)


def _batches(n_rows: int, row: int) -> list[int]:
    """Return the sizes of batches of ``n_rows`` rows with so many elements each."""
    most = max(1, _BATCH_ELEMENTS // max(1, row))
    return [min(most, n_rows - start) for start in range(0, n_rows, most)]


def interval(resamples: NDArray[Any]) -> tuple[float, float]:
    """Return the two ends of the percentile interval."""
    outside = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(resamples, (outside, 100 - outside)).tolist()
    return low, high


def bootstrap_interval(
    statistic: Callable[..., Any], *methods: Strata, n_resamples: int = N_RESAMPLES, width: int = 1
) -> tuple[float, float] | None:
    """Return the bootstrap interval of a statistic, None if no environment has two runs of a method."""
    if any(all(len(scores) < 2 for scores in strata) for strata in methods):
        return None
    return interval(bootstrapped(statistic, *methods, n_resamples=n_resamples, width=width))


def chance_of_difference(
    statistic: Callable[[Strata], Any], first: Strata, second: Strata, *, n_draws: int = 20_000, seed: int = 0
) -> float:
    """Return the p-value of a two-sided permutation test: how often equal methods would differ as much.

    The runs of each environment are dealt to the two at random, as many to each as it has.
    """
    rng, as_large, there = np.random.default_rng(seed), 0, abs(statistic(first) - statistic(second))
    pairs = list(zip(first, second, strict=True))
    for n in _batches(n_draws, sum(len(a) + len(b) for a, b in pairs)):
        dealt = [rng.permuted(np.tile(np.concatenate([a, b]), (n, 1)), axis=1) for a, b in pairs]
        first_scores = [scores[:, : len(a)] for scores, (a, _) in zip(dealt, pairs, strict=True)]
        second_scores = [scores[:, len(a) :] for scores, (a, _) in zip(dealt, pairs, strict=True)]
        differences = np.abs(statistic(first_scores) - statistic(second_scores))
        as_large += int((differences >= there * (1 - 1e-9)).sum())
    return (as_large + 1) / (n_draws + 1)
