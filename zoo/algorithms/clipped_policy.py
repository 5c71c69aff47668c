"""What both forms of PPO share: epochs of minibatches, and a surrogate that is clipped."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from zoo.algorithms.batch_means import batch_mean, counted
from zoo.algorithms.on_policy import ANY_ACTIONS, OnPolicyAlgorithm, OnPolicyConfig
from zoo.config.fields import Schedule, hyperparameter
from zoo.memory.columns import transform
from zoo.optim.optimizers import Adam, Optimizer
from zoo.optim.state import STOPPED, Outcome, State

Batch = dict[str, Any]


@dataclass
class ClippedPolicyConfig(OnPolicyConfig):
    """Hyperparameters of both."""

    n_epochs: int = hyperparameter(4, "passes over each rollout", ge=1)
    clip_range: Schedule = hyperparameter(
        0.2, "change of an action's probability ratio beyond which nothing is gained", gt=0
    )
    adam_eps: float = hyperparameter(1e-5, "Adam's epsilon", gt=0)


Config = TypeVar("Config", bound=ClippedPolicyConfig)


class ClippedPolicyAlgorithm(OnPolicyAlgorithm[Config]):
    """Takes several epochs of minibatch steps on each rollout."""

    supported_actions = ANY_ACTIONS
    uses_old_log_prob = True

    def _optimizer(self) -> Optimizer:
        return Adam(eps=self.config.adam_eps)

    def update(self) -> None:
        rollout = self.finished_rollout()
        self._record_explained_variance(rollout)
        rollout = self._prepared(rollout)
        if self.memory.chunk_length is None:  # minibatches are then drawn from the steps that count
            rollout.pop("weights", None)
        minibatches = self.memory.minibatch_rows(self.rng, self.config.n_epochs, *self._minibatches())
        shared = {"rollout": rollout, **self.rates(self._progress_before)}
        self._take_steps(self._gradient_step, shared, self._tensors(minibatches))

    def _prepared(self, rollout: Batch) -> Batch:
        """Return the rollout as minibatches are drawn from it."""
        return rollout

    def _gradient_step(self, state: State, shared: Any, rows: Tensor) -> Outcome:
        config, policy = self.config, self.descent.module(state)
        batch = counted(transform(lambda column: column[rows], shared["rollout"]))
        parameters, values, _ = policy(batch, batch.get("states"))
        log_prob, entropy = self.policy.head.log_prob_and_entropy(parameters, batch["actions"])
        log_ratio = log_prob - batch["log_prob"]
        policy_loss = self.policy_loss(log_ratio, batch, shared["clip_range"])
        value_loss = self.value_loss(values, batch, shared)
        entropy_loss = -batch_mean(entropy, batch)
        loss = policy_loss + config.ent_coef * entropy_loss + config.vf_coef * value_loss
        log_ratio = log_ratio.detach()
        ratio_change = log_ratio.expm1()
        approx_kl, too_far = self._bounded(batch_mean(ratio_change - log_ratio, batch))
        state, grad_norm = self.descent.descend(state, policy, loss, shared["learning_rate"], unless=too_far)
        if too_far is not None:
            state = state.replaced({STOPPED: too_far})
        metrics = {
            "policy_gradient_loss": policy_loss.detach(),
            "value_loss": value_loss.detach(),
            "entropy_loss": entropy_loss.detach(),
            "loss": loss.detach(),
            "approx_kl": approx_kl,
            "clip_fraction": batch_mean((ratio_change.abs() > shared["clip_range"]).float(), batch),
            "grad_norm": grad_norm,
        }
        return Outcome(state, metrics)

    def policy_loss(self, log_ratio: Tensor, batch: Batch, clip_range: Tensor) -> Tensor:
        """Return the clipped surrogate (equation 7 of the paper), negated."""
        return -batch_mean(clipped_surrogate(log_ratio, batch["advantages"], clip_range), batch)

    def value_loss(self, values: Tensor, batch: Batch, rates: dict[str, Tensor]) -> Tensor:
        """Return the squared error to the returns."""
        return batch_mean((values - batch["returns"]).square(), batch)

    def _bounded(self, approx_kl: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the KL divergence to the old policy, and whether it ends the update; None: none does."""
        return approx_kl, None

    @abstractmethod
    def _minibatches(self) -> tuple[int, int]:
        """Return how many minibatches an epoch has, and their rows."""

    def gradient_steps_in(self, total_timesteps: int) -> float:
        n_rollouts = total_timesteps / (self.memory.n_steps * self.n_envs)
        return n_rollouts * self.config.n_epochs * self._minibatches()[0]

    def _batch_size(self) -> int:
        super()._batch_size()
        return self._minibatches()[1] * self.memory.steps_a_row


def clipped_surrogate(log_ratio: Tensor, advantages: Tensor, clip_range: Tensor) -> Tensor:
    """Return what actions of these probability ratios gain (…): equation 7 of the paper, within the mean."""
    ratio = log_ratio.exp()
    clipped = torch.clamp(ratio, 1 - clip_range, 1 + clip_range)
    return torch.minimum(advantages * ratio, advantages * clipped)
