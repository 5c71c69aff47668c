"""Proximal policy optimisation in Stable-Baselines' first form (https://arxiv.org/abs/1707.06347).

What `zoo.algorithms.ppo2` does, for workers that each learn from a batch of their own, and average their
gradients: advantages are standardised over the worker's whole batch, values and gradients are not clipped,
and step size and clip range fall to 0 as training goes on.
"""

from __future__ import annotations

from dataclasses import dataclass

from zoo.algorithms.clipped_policy import Batch, ClippedPolicyAlgorithm, ClippedPolicyConfig
from zoo.algorithms.on_policy import standardized
from zoo.config.fields import hyperparameter, with_defaults
from zoo.optim import workers


@dataclass
@with_defaults(
    learning_rate="lin_1e-3",
    n_steps=256,
    normalize_advantage=True,
    vf_coef=1.0,
    max_grad_norm=None,
    clip_range="lin_0.2",
)
class PPO1Config(ClippedPolicyConfig):
    """Hyperparameters of PPO1."""

    batch_size: int = hyperparameter(
        64, "size of a minibatch; what does not fill one is left out", unit="steps", ge=1
    )


class PPO1(ClippedPolicyAlgorithm[PPO1Config]):
    """PPO with clipped surrogate and whole batches standardised, as in Stable-Baselines' PPO1."""

    name = "ppo1"
    config_class = PPO1Config

    def _prepared(self, rollout: Batch) -> Batch:
        """Return the rollout with advantages that are standardised over this worker's steps alone."""
        if not self.config.normalize_advantage:
            return rollout
        with workers.each_alone():
            return {**rollout, "advantages": standardized(rollout["advantages"], rollout)}

    def _minibatches(self) -> tuple[int, int]:
        """Return how many whole minibatches a rollout has, and their rows."""
        size = self._rows_in(self.config.batch_size)
        return self.memory.n_rows // size, size
