"""Proximal policy optimisation (Schulman et al. 2017, https://arxiv.org/abs/1707.06347).

After each rollout the policy takes several epochs of minibatch steps on a surrogate objective that stops
paying once the probability of an action has changed by more than the clip range. The values of the critic
may be kept near the old ones in the same way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from zoo.algorithms.batch_means import batch_mean
from zoo.algorithms.clipped_policy import ClippedPolicyAlgorithm, ClippedPolicyConfig, clipped_surrogate
from zoo.algorithms.on_policy import explained_variance, standardized
from zoo.config.fields import Schedule, hyperparameter, with_defaults
from zoo.memory.columns import transform
from zoo.optim.program import STOPPED, Outcome
from zoo.optim.state import State


@dataclass
@with_defaults(learning_rate=2.5e-4, normalize_advantage=True)
class PPO2Config(ClippedPolicyConfig):
    """Hyperparameters of PPO2. Stable-Baselines halves the value's error: its ``vf_coef`` is twice ours."""

    batch_size: int | None = hyperparameter(
        None, "size of a minibatch; null: n_minibatches decides", unit="steps", ge=2
    )
    n_minibatches: int = hyperparameter(4, "minibatches an epoch, if batch_size is null", ge=1)
    clip_range_vf: Schedule | Literal["same"] | None = hyperparameter(
        "same", "the same for the change of a value; same: clip_range, null: no clipping", gt=0
    )
    target_kl: float | None = hyperparameter(
        None, "an update ends when the KL divergence to the old policy exceeds 1.5 times this", gt=0
    )


class PPO2(ClippedPolicyAlgorithm[PPO2Config]):
    """PPO with clipped surrogate and, by default, clipped values, as in Stable-Baselines' PPO2."""

    name = "ppo2"
    config_class = PPO2Config

    def _make_state(self) -> State:
        state = super()._make_state()
        if self.config.target_kl is not None:
            state[STOPPED] = torch.zeros((), dtype=torch.bool, device=self.device)
        return state

    def update(self) -> None:
        rollout = self.finished_rollout()
        values, returns, weights = rollout["values"], rollout["returns"], rollout.get("weights")
        self.record("train/explained_variance", explained_variance(values, returns, weights))
        minibatches = self.memory.minibatch_rows(self.rng, self.config.n_epochs, *self._minibatches())
        shared = {"rollout": rollout, **self.rates(self._progress_before)}
        self._take_steps(self._gradient_step, shared, self._tensors(minibatches))

    def _gradient_step(self, state: State, shared: Any, rows: Tensor) -> Outcome:
        config, policy = self.config, self.descent.module(state)
        batch = transform(lambda column: column[rows], shared["rollout"])
        parameters, values, _ = policy(batch, batch.get("states"))
        log_prob, entropy = self.policy.head.log_prob_and_entropy(parameters, batch["actions"])
        log_ratio = log_prob - batch["log_prob"]
        policy_loss = self.policy_loss(log_ratio, batch, shared["clip_range"])
        value_loss = self.value_loss(values, batch, shared)
        entropy_loss = -batch_mean(entropy, batch)
        loss = policy_loss + config.ent_coef * entropy_loss + config.vf_coef * value_loss
        log_ratio = log_ratio.detach()
        ratio_change = log_ratio.expm1()
        approx_kl, too_far = batch_mean(ratio_change - log_ratio, batch), None
        if config.target_kl is not None:
            approx_kl = self.descent.averaged(approx_kl)
            too_far = ~(approx_kl <= 1.5 * config.target_kl)  # NaN is too far as well
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

    def policy_loss(self, log_ratio: Tensor, batch: dict[str, Tensor], clip_range: Tensor) -> Tensor:
        """Return the clipped surrogate (equation 7 of the paper), negated."""
        advantages = batch["advantages"]
        if self.config.normalize_advantage:
            advantages = standardized(advantages, batch)
        return -batch_mean(clipped_surrogate(log_ratio, advantages, clip_range), batch)

    def value_loss(self, values: Tensor, batch: dict[str, Tensor], rates: dict[str, Tensor]) -> Tensor:
        """Return the squared error to the returns; clipped values can only make it worse, never better."""
        error = (values - batch["returns"]).square()
        clip_range = self.config.clip_range_vf
        if clip_range is not None:
            bound = rates["clip_range" if clip_range == "same" else "clip_range_vf"]
            change = torch.clamp(values - batch["values"], -bound, bound)
            error = torch.maximum(error, (batch["values"] + change - batch["returns"]).square())
        return batch_mean(error, batch)

    def _minibatches(self) -> tuple[int, int]:
        """Return how many minibatches an epoch has, and their rows; they repeat as few as they can."""
        memory, n_minibatches = self.memory, self.config.n_minibatches
        if self.config.batch_size is not None:
            size = self._rows_in(self.config.batch_size)
            return math.ceil(memory.n_rows / size), size
        size = math.ceil(memory.n_rows / n_minibatches)
        if n_minibatches <= memory.n_rows and size * memory.steps_a_row > 1:
            return n_minibatches, size
        raise self._no_minibatches(f"{n_minibatches} minibatches", "algo.n_minibatches")
