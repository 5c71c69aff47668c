"""The quantile Huber loss against numbers worked out by hand, loops, and the quantiles that it is to find."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.algorithms.qrdqn import quantile_huber

each_example = settings(deadline=None, derandomize=True, max_examples=50)


@pytest.mark.parametrize(
    ("quantiles", "targets", "summed"), [([0.0, 1.0], [2.0], 0.75), ([0.0, 1.0, 2.0], [2.0, -1.0], 1.0417)]
)
def test_known_losses(quantiles: list[float], targets: list[float], summed: float) -> None:
    """Summed over the quantiles as for QR-DQN; the mean, as for TQC, is less by their number."""
    losses = quantile_huber(torch.tensor([quantiles]), torch.tensor([targets]))
    assert losses.shape == (1, len(quantiles), len(targets))
    assert losses.sum(-2).mean(-1).tolist() == [pytest.approx(summed, abs=1e-4)]
    assert losses.mean((-2, -1)).tolist() == [pytest.approx(summed / len(quantiles), abs=1e-4)]


def plain_loss(quantiles: np.ndarray, targets: np.ndarray) -> np.ndarray:
    found = np.zeros((len(quantiles), len(targets)))
    for i, quantile in enumerate(quantiles):
        for j, target in enumerate(targets):
            error = target - quantile
            huber = 0.5 * error**2 if abs(error) <= 1 else abs(error) - 0.5
            level = (i + 0.5) / len(quantiles)
            found[i, j] = (level if error >= 0 else 1 - level) * huber
    return found


@given(n=st.integers(1, 5), m=st.integers(1, 5), seed=st.integers(0, 2**16))
@each_example
def test_losses_and_gradients_are_those_of_a_loop(n: int, m: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    quantiles = torch.randn(3, 4, n, generator=generator, dtype=torch.float64).mul_(2).requires_grad_()
    targets = torch.randn(4, m, generator=generator, dtype=torch.float64).mul_(2)
    losses = quantile_huber(quantiles, targets)
    weights = torch.rand(losses.shape, generator=generator, dtype=torch.float64)
    (gradient,) = torch.autograd.grad((losses * weights).sum(), quantiles)
    for critic in range(3):
        for row in range(4):
            at, goals = quantiles[critic, row].detach().numpy(), targets[row].numpy()
            np.testing.assert_allclose(losses[critic, row].detach(), plain_loss(at, goals), atol=1e-12)
            step = 1e-6
            for i in range(n):
                moved = at.copy()
                moved[i] += step
                rise = plain_loss(moved, goals) - plain_loss(at, goals)
                grad = (rise * weights[critic, row].numpy()).sum() / step
                assert gradient[critic, row, i].item() == pytest.approx(grad, abs=1e-4)


def test_targets_common_to_all_critics_are_given_without_their_dimension() -> None:
    quantiles, targets = torch.randn(2, 5, 3), torch.randn(5, 4)
    common = quantile_huber(quantiles, targets)
    each = torch.stack([quantile_huber(critic, targets) for critic in quantiles])
    torch.testing.assert_close(common, each)
    torch.testing.assert_close(quantile_huber(quantiles, targets.expand(2, 5, 4)), common)
