"""Quantile regression DQN (Dabney et al. 2018, https://arxiv.org/abs/1710.10044).

A network estimates quantiles of the return of each action, so the whole distribution of what may come, and
the policy takes the action with the best mean. Each quantile moves towards those of reward plus discounted
return of the next state, more strongly on one side than on the other, by its place in the distribution.
All else is DQN: exploration, targets, and double and dueling on their switches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from zoo.algorithms.dqn import DQN, DQNConfig
from zoo.algorithms.off_policy import ReplayBatch
from zoo.algorithms.search_space import ranges, searched
from zoo.config.fields import hyperparameter, with_defaults
from zoo.policies.distributions import gather
from zoo.policies.q_networks import QNetwork, QuantileNetwork, midpoints


@dataclass
@with_defaults(
    learning_rate=5e-5,
    buffer_size=1_000_000,
    learning_starts=50_000,
    train_freq=4,
    double=False,
    dueling=False,
    target_update_interval=10_000,
    exploration_fraction=0.005,
    exploration_final_eps=0.01,
    max_grad_norm=None,
)
class QRDQNConfig(DQNConfig):
    """Hyperparameters of QR-DQN, by default SB3-Contrib's, which are for Atari."""

    n_quantiles: int = hyperparameter(200, "quantiles of the return of each action", ge=1, le=100_000)


class QRDQN(DQN):
    """Quantile regression DQN, by default neither double nor dueling, as in SB3-Contrib."""

    name = "qrdqn"
    config_class = QRDQNConfig
    search_space = searched(DQN.search_space, ranges("log", n_quantiles=(5, 200)))
    policy_class: ClassVar[type[QNetwork]] = QuantileNetwork

    config: QRDQNConfig

    def _policy_options(self) -> dict[str, Any]:
        return {**super()._policy_options(), "n_quantiles": self.config.n_quantiles}

    def _bytes_ahead(self) -> int:
        return self.config.n_quantiles * super()._bytes_ahead()

    def _adam_eps(self) -> float:
        return 0.01 / self.config.batch_size  # from the paper, for batches of 32

    def _values_of_actions(self, estimates: Tensor, actions: Tensor) -> Tensor:
        """Return the quantiles (batch, quantiles) of these actions (batch,)."""
        return gather(estimates, actions[:, None])

    def _losses_and_errors(
        self, values: Tensor, targets: Tensor, batch: ReplayBatch
    ) -> tuple[Tensor, Tensor]:
        """Return the quantile Huber loss, summed over the quantiles, and the error of their mean."""
        losses = quantile_huber(values, targets, batch.get("fractions")).sum(1).mean(1)
        return losses, values.mean(1) - targets.mean(1)


def quantile_huber(quantiles: Tensor, targets: Tensor, levels: Tensor | None = None) -> Tensor:
    """Return |τᵢ − 1{uᵢⱼ < 0}|·Huber(uᵢⱼ), uᵢⱼ = targetⱼ − quantileᵢ, (…, N, M) (equation 10, with κ = 1).

    ``quantiles`` (…, N) estimate the quantiles τᵢ of the distribution that ``targets`` (…, M) are drawn from;
    τᵢ are ``levels`` (…, N), by default (i + ½) / N. Axis −2 counts quantiles and axis −1 targets: QR-DQN
    sums over the first and takes the mean over the second; TQC takes the mean over both. Targets that lack
    leading dimensions of the quantiles (critics) are common to these.
    """
    if levels is None:
        levels = midpoints(quantiles.shape[-1], quantiles)
    estimate, target = torch.broadcast_tensors(quantiles.unsqueeze(-1), targets.unsqueeze(-2))
    is_above = (target < estimate).detach().to(quantiles.dtype)
    weights = (levels[..., None] - is_above).abs()
    return weights * F.smooth_l1_loss(estimate, target, reduction="none")
