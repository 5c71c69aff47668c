"""DQN without its extensions takes the gradient steps of Stable-Baselines3's, to rounding."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from q_learning_peers import ROUNDING, batches, difference, ours_of, peer_of
from torch import Tensor

from zoo import DQN

sb3 = pytest.importorskip("stable_baselines3")

PLAIN = {"double": False, "dueling": False}


def compared(
    dtype: torch.dtype, algorithm: Any = DQN, *, max_grad_norm: float = 10.0, discounts: bool = False
) -> float:
    ours = ours_of(algorithm, dtype, max_grad_norm=max_grad_norm, **PLAIN)
    theirs = peer_of(sb3.DQN, "q_net", dtype, max_grad_norm=max_grad_norm)
    return difference(ours, theirs, batches(dtype, discounts=discounts))


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("max_grad_norm", [10.0, 0.1])
@pytest.mark.parametrize("discounts", [False, True])
def test_gradient_steps_are_those_of_stable_baselines3(
    dtype: torch.dtype, max_grad_norm: float, discounts: bool
) -> None:
    assert compared(dtype, max_grad_norm=max_grad_norm, discounts=discounts) < ROUNDING[dtype]


class SquaredErrors(DQN):
    def _losses_and_errors(self, values: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        return 0.5 * F.mse_loss(values, targets, reduction="none"), values - targets


class BootstrappedAtTheEnd(DQN):
    def _bootstrapped(self, batch: Any, next_values: Tensor) -> Tensor:
        return super()._bootstrapped({**batch, "terminated": 0 * batch["terminated"]}, next_values)


class DecidedByTheOnlineNetwork(DQN):
    def _make_state(self) -> Any:
        self.config.double = True
        return super()._make_state()


class LargerEpsilon(DQN):
    def _adam_eps(self) -> float:
        return 1e-5


class NotClipped(DQN):
    def _make_state(self) -> Any:
        self.config.max_grad_norm = None
        return super()._make_state()


@pytest.mark.parametrize(
    "mistaken", [SquaredErrors, BootstrappedAtTheEnd, DecidedByTheOnlineNetwork, LargerEpsilon, NotClipped]
)
def test_the_comparison_notices(mistaken: Any) -> None:
    assert compared(torch.float64, mistaken, max_grad_norm=0.1) > 1e4 * ROUNDING[torch.float64]
