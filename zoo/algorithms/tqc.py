"""Truncated quantile critics (Kuznetsov et al. 2020, https://arxiv.org/abs/2005.04269).

Soft actor-critic whose critics estimate the distribution of returns by quantiles. A target is all quantiles
of all critics together, less the highest ones: the more are dropped, the lower the target.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from gymnasium import spaces
from torch import Tensor

from zoo.algorithms.off_policy import HINDSIGHT, with_hindsight
from zoo.algorithms.qrdqn import quantile_huber
from zoo.algorithms.sac import SAC, SACConfig, SACPolicy
from zoo.algorithms.search_space import ranges, searched
from zoo.config.fields import hyperparameter, with_defaults
from zoo.errors import ZooError
from zoo.policies.continuous import DistributionalCritics


@dataclass
@with_defaults(buffer_size=1_000_000, batch_size=256)
class TQCConfig(SACConfig):
    """Hyperparameters of TQC."""

    n_quantiles: int = hyperparameter(25, "quantiles of each critic", ge=1, le=100_000)
    top_quantiles_to_drop_per_net: int = hyperparameter(
        2, "highest quantiles of each critic that targets leave out; more: lower estimates", ge=0
    )

    critic_loss: ClassVar[str] = "mse"  # type: ignore[misc]
    n_atoms: ClassVar[None] = None  # type: ignore[assignment,misc]
    value_range: ClassVar[list[float]] = [0.0, 1.0]  # type: ignore[misc]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.top_quantiles_to_drop_per_net >= self.n_quantiles:
            raise ZooError(
                f"`algo.top_quantiles_to_drop_per_net={self.top_quantiles_to_drop_per_net}` leaves nothing of"
                f" `algo.n_quantiles={self.n_quantiles}`; expected at most {self.n_quantiles - 1}"
            )


class TQCPolicy(SACPolicy):
    """Actor, critics that give quantiles, and entropy coefficient."""

    def __init__(
        self,
        *spaces_and_config: Any,
        n_critics: int,
        n_quantiles: int,
        ent_coef: float,
        use_sde: bool = False,
    ) -> None:
        super().__init__(*spaces_and_config, n_critics=n_critics, ent_coef=ent_coef, use_sde=use_sde)
        self.critics = DistributionalCritics(*spaces_and_config, n_critics=n_critics, n_outputs=n_quantiles)


class TQC(SAC):
    """Soft actor-critic with truncated quantile critics, with SB3-Contrib's values."""

    name = "tqc"
    supported_actions = (spaces.Box,)
    config_class = TQCConfig
    search_space = searched(
        SAC.search_space,
        ranges("even", n_quantiles=(5, 50)),
        ranges("even", (0.8, "algo.n_quantiles"), top_quantiles_to_drop_per_net=(0, 5)),
    )
    policy_class = TQCPolicy

    config: TQCConfig

    def _policy_options(self) -> dict[str, Any]:
        return {**super()._policy_options(), "n_quantiles": self.config.n_quantiles}

    # Values are (critics, batch, quantiles).

    def _soft_values(self, next_values: Tensor, weighted_log_prob: Tensor) -> Tensor:
        """Return the lowest of all critics' quantiles, (batch, kept), less the weighted log-probability.

        They are in no order. The highest ones of all together are dropped, not of each critic.
        """
        n_kept = self.config.n_quantiles - self.config.top_quantiles_to_drop_per_net
        pooled = next_values.transpose(0, 1).flatten(1)
        lowest = pooled.topk(n_kept * len(next_values), largest=False, sorted=False).values
        return lowest - weighted_log_prob[:, None]

    def _losses_and_errors(self, values: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean over critics, quantiles and targets: not a sum, so that rates are those of SAC."""
        losses = quantile_huber(values, targets).mean((0, 2, 3))
        return losses, (values.mean(2) - targets.mean(1)).abs().mean(0)

    def _actor_values(self, values: Tensor) -> Tensor:
        """Return the mean (batch,) over all quantiles, the highest included."""
        return values.mean(-1).amin(0) if self.config.actor_critics == "min" else values.mean((0, -1))


class HerTQC(TQC):
    """TQC with hindsight replay."""

    of_preset = "her_tqc"
    usual_replay = HINDSIGHT
    search_space = with_hindsight(TQC)
