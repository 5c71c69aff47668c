"""What the algorithms share that take one gradient step on each rollout: one loss for actor and critic."""

from __future__ import annotations

from typing import Any, TypeVar

from torch import Tensor

from zoo.algorithms.batch_means import batch_mean
from zoo.algorithms.on_policy import OnPolicyAlgorithm, RolloutConfig, standardized

Config = TypeVar("Config", bound=RolloutConfig)


class OneStepAlgorithm(OnPolicyAlgorithm[Config]):
    """Takes one gradient step on each rollout, all of it."""

    def losses(
        self, log_prob: Tensor, entropy: Tensor, values: Tensor, rollout: dict[str, Any]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss of actor and critic on a rollout, whose columns these are; its parts as metrics."""
        config, advantages = self.config, rollout["advantages"]
        if self._normalizes_advantage():
            advantages = standardized(advantages, rollout)
        policy_loss = -batch_mean(advantages * log_prob, rollout)
        value_loss = batch_mean((values - rollout["returns"]).square(), rollout)
        entropy_loss = -batch_mean(entropy, rollout)
        loss = policy_loss + config.ent_coef * entropy_loss + config.vf_coef * value_loss
        return loss, {
            "policy_loss": policy_loss.detach(),
            "value_loss": value_loss.detach(),
            "entropy_loss": entropy_loss.detach(),
        }

    def gradient_steps_in(self, total_timesteps: int) -> float:
        return total_timesteps / self._batch_size()
