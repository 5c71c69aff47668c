"""QR-DQN takes the gradient steps of SB3-Contrib's, to rounding."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from q_learning_peers import BATCH, ROUNDING, batches, difference, ours_of, peer_of
from torch import Tensor

from zoo import QRDQN
from zoo.algorithms.qrdqn import quantile_huber

sb3_contrib = pytest.importorskip("sb3_contrib")

N = 8
"""Quantiles; the peer keeps their places in single precision, in which those of 8 have no rounding."""


def compared(
    dtype: torch.dtype,
    algorithm: Any = QRDQN,
    *,
    n_quantiles: int = N,
    max_grad_norm: float | None = None,
    discounts: bool = False,
) -> float:
    ours = ours_of(algorithm, dtype, n_quantiles=n_quantiles, max_grad_norm=max_grad_norm)
    theirs = peer_of(
        *(sb3_contrib.QRDQN, "quantile_net", dtype),
        max_grad_norm=max_grad_norm,
        policy_kwargs={"n_quantiles": n_quantiles},
    )
    return difference(ours, theirs, batches(dtype, discounts=discounts))


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("max_grad_norm", [None, 0.1])
@pytest.mark.parametrize("discounts", [False, True])
def test_gradient_steps_are_those_of_sb3_contrib(
    dtype: torch.dtype, max_grad_norm: float | None, discounts: bool
) -> None:
    assert compared(dtype, max_grad_norm=max_grad_norm, discounts=discounts) < ROUNDING[dtype]


@pytest.mark.parametrize("n_quantiles", [1, 25])
def test_any_number_of_quantiles_agrees_in_single_precision(n_quantiles: int) -> None:
    assert compared(torch.float32, n_quantiles=n_quantiles) < ROUNDING[torch.float32]


class PlacesOfTargets(QRDQN):
    """Weighs errors by the place of the target instead of that of the quantile."""

    def _losses_and_errors(self, values: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        return quantile_huber(targets, values).sum(-2).mean(-1), targets - values


class MeanOverQuantiles(QRDQN):
    def _losses_and_errors(self, values: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        return quantile_huber(values, targets).mean((-2, -1)), targets - values


class QuantilesOfAllActions(QRDQN):
    """Lays out the network's numbers by action, then by quantile."""

    def _of_actions(self, estimates: Tensor, actions: Tensor) -> Tensor:
        other = estimates.reshape(BATCH, 3, N).mT
        return super()._of_actions(other, actions)


class DecidedByTheOnlineNetwork(QRDQN):
    def _make_state(self) -> Any:
        self.config.double = True
        return super()._make_state()


class UsualEpsilon(QRDQN):
    def _adam_eps(self) -> float:
        return 1e-8


@pytest.mark.parametrize(
    "mistaken",
    [PlacesOfTargets, MeanOverQuantiles, QuantilesOfAllActions, DecidedByTheOnlineNetwork, UsualEpsilon],
)
def test_the_comparison_notices(mistaken: Any) -> None:
    assert compared(torch.float64, mistaken) > 1e4 * ROUNDING[torch.float64]
