"""Proximal policy optimisation in Stable-Baselines' first form (https://arxiv.org/abs/1707.06347).

What `zoo.algorithms.ppo2` does, for workers that each learn from a batch of their own, and average their
gradients: advantages are standardised over the worker's whole batch, values and gradients are not clipped,
and step size and clip range fall to 0 as training goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from zoo.algorithms.batch_means import batch_mean
from zoo.algorithms.clipped_policy import ClippedPolicyAlgorithm, ClippedPolicyConfig, clipped_surrogate
from zoo.algorithms.on_policy import explained_variance, standardized
from zoo.config.fields import hyperparameter, with_defaults
from zoo.memory.columns import transform
from zoo.optim import workers
from zoo.optim.program import Outcome
from zoo.optim.state import State

Batch = dict[str, Any]


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

    batch_size: int = hyperparameter(64, "size of a minibatch; what does not fill one is left out", ge=1)


class PPO1(ClippedPolicyAlgorithm[PPO1Config]):
    """PPO with clipped surrogate and whole batches standardised, as in Stable-Baselines' PPO1."""

    name = "ppo1"
    config_class = PPO1Config

    def update(self) -> None:
        rollout = self.finished_rollout()
        explained = explained_variance(rollout["values"], rollout["returns"], rollout.get("weights"))
        self.record("train/explained_variance", explained)
        if self.config.normalize_advantage:
            rollout["advantages"] = self._standardized(rollout)
        minibatches = self.memory.minibatch_rows(self.rng, self.config.n_epochs, *self._minibatches())
        shared = {"rollout": rollout, **self.rates(self._progress_before)}
        self._take_steps(self._gradient_step, shared, self._tensors(minibatches))

    def _standardized(self, rollout: Batch) -> Tensor:
        """Return the advantages, standardised over this worker's rollout alone."""
        counted = rollout
        if not self.memory.valid.all():  # steps that merely reset say nothing
            counted = {"weights": self._tensors(self.memory.as_rows(self.memory.valid)).float()}
        with workers.each_alone():
            return standardized(rollout["advantages"], counted)

    def _gradient_step(self, state: State, shared: Any, rows: Tensor) -> Outcome:
        config, policy, clip_range = self.config, self.descent.module(state), shared["clip_range"]
        batch = transform(lambda column: column[rows], shared["rollout"])
        parameters, values, _ = policy(batch, batch.get("states"))
        log_prob, entropy = self.policy.head.log_prob_and_entropy(parameters, batch["actions"])
        log_ratio = log_prob - batch["log_prob"]
        policy_loss = -batch_mean(clipped_surrogate(log_ratio, batch["advantages"], clip_range), batch)
        value_loss = batch_mean((values - batch["returns"]).square(), batch)
        entropy_loss = -batch_mean(entropy, batch)
        loss = policy_loss + config.ent_coef * entropy_loss + config.vf_coef * value_loss
        state, grad_norm = self.descent.descend(state, policy, loss, shared["learning_rate"])
        log_ratio = log_ratio.detach()
        ratio_change = log_ratio.expm1()
        metrics = {
            "policy_gradient_loss": policy_loss.detach(),
            "value_loss": value_loss.detach(),
            "entropy_loss": entropy_loss.detach(),
            "loss": loss.detach(),
            "approx_kl": batch_mean(ratio_change - log_ratio, batch),
            "clip_fraction": batch_mean((ratio_change.abs() > clip_range).float(), batch),
            "grad_norm": grad_norm,
        }
        return Outcome(state, metrics)

    def _minibatches(self) -> tuple[int, int]:
        """Return how many whole minibatches a rollout has, and their rows."""
        size = self._rows_in(self.config.batch_size)
        return self.memory.n_rows // size, size
