"""Means and sizes that on-policy updates depend on: written out with NumPy, and by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from zoo.algorithms.on_policy import batch_mean, counted, standardized

N_STEPS, N_ENVS = 8, 2


@pytest.mark.parametrize("weights", [None, [[1.0, 0.0, 1.0, 1.0], [1.0, 1.0, 0.0, 1.0]]])
def test_two_workers_standardise_by_the_mean_and_deviation_of_all_their_steps(
    weights: list[list[float]] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both sums of what the other worker has are put in where the mean over workers is taken."""
    both = np.random.default_rng(0).normal(3.0, 2.0, (2, 4))
    counts = np.ones((2, 4)) if weights is None else np.array(weights)
    chosen = both[counts > 0]

    def averaged(sums: Tensor) -> Tensor:
        other, count = both[1], counts[1]
        others = [count.sum(), (count * other).sum(), (count * other**2).sum()]
        return (sums + torch.tensor(others)) / 2

    monkeypatch.setattr("zoo.algorithms.on_policy.workers.count", lambda: 2)
    monkeypatch.setattr("zoo.algorithms.on_policy.workers.average", averaged)
    batch = {} if weights is None else {"weights": torch.tensor(counts[0])}
    found = standardized(torch.tensor(both[0]), batch)
    expected = (both[0] - chosen.mean()) / chosen.std(ddof=1)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)


def test_steps_that_merely_reset_are_no_part_of_a_mean() -> None:
    column, weights = torch.tensor([3.0, 100.0, 5.0, 10.0]), torch.tensor([1.0, 0.0, 1.0, 1.0])
    batch = {"weights": weights}
    assert counted(batch)["n_counted"] == 3
    assert batch_mean(column, batch) == batch_mean(column, counted(batch)) == 6
    assert batch_mean(column, {}) == batch_mean(column, counted({})) == 29.5


def test_mean_over_workers_is_that_of_all_their_steps_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other worker has one step that counts, so a mean over both divides each sum by 2."""
    monkeypatch.setattr("zoo.algorithms.on_policy.workers.average", lambda own: (own + 1) / 2)
    column, weights = torch.tensor([3.0, 100.0, 5.0, 10.0]), torch.tensor([1.0, 0.0, 1.0, 1.0])
    assert batch_mean(column, counted({"weights": weights})) == 18 / 2


@pytest.mark.parametrize("weights", [None, [1.0, 0.0, 1.0, 1.0, 0.0, 1.0]])
def test_one_worker_standardises_by_the_steps_that_count(weights: list[float] | None) -> None:
    advantages = np.random.default_rng(0).normal(3.0, 2.0, 6)
    chosen = advantages if weights is None else advantages[np.array(weights) > 0]
    batch = {} if weights is None else {"weights": torch.tensor(weights, dtype=torch.float64)}
    found = standardized(torch.tensor(advantages), batch)
    np.testing.assert_allclose(found.numpy(), (advantages - chosen.mean()) / chosen.std(ddof=1), rtol=1e-6)


def test_one_step_that_counts_alone_is_no_deviation_at_all() -> None:
    batch = {"weights": torch.tensor([0.0, 1.0])}
    found = standardized(torch.tensor([7.0, 5.0]), batch)
    assert found[1] == 0
    assert found.isfinite().all()
