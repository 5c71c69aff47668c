"""Proximal policy optimisation (Schulman et al. 2017, https://arxiv.org/abs/1707.06347).

After each rollout the policy takes several epochs of minibatch steps on a surrogate objective that stops
paying once the probability of an action has changed by more than the clip range. The values of the critic
may be kept near the old ones in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from zoo.algorithms.on_policy import OnPolicyAlgorithm, explained_variance, minibatch_size
from zoo.config.fields import Schedule, hyperparameter
from zoo.memory.columns import transform
from zoo.optim import schedules
from zoo.optim.optimizers import Adam, Optimizer
from zoo.optim.program import STOPPED
from zoo.optim.trainable import State


@dataclass
class PPO2Config:
    """Hyperparameters of PPO2."""

    learning_rate: Schedule = hyperparameter(2.5e-4, "step size of Adam", ge=0)
    n_steps: int = hyperparameter(128, "steps of each environment in a rollout", unit="steps", ge=1)
    batch_size: int | None = hyperparameter(
        None, "size of a minibatch; null: n_minibatches decides", unit="steps", ge=2
    )
    n_minibatches: int = hyperparameter(4, "minibatches an epoch, if batch_size is null", ge=1)
    n_epochs: int = hyperparameter(4, "passes over each rollout", ge=1)
    gamma: float = hyperparameter(0.99, "discount factor", ge=0, le=1)
    gae_lambda: float = hyperparameter(0.95, "bias (0) against variance (1) of the advantages", ge=0, le=1)
    clip_range: Schedule = hyperparameter(
        0.2, "change of an action's probability ratio beyond which nothing is gained", gt=0
    )
    clip_range_vf: Schedule | None = hyperparameter(
        "same", "the same for the change of a value; same: clip_range, null: no clipping", gt=0
    )
    normalize_advantage: bool = hyperparameter(True, "standardise the advantages of each minibatch")
    ent_coef: float = hyperparameter(0.01, "weight of the entropy bonus", ge=0)
    vf_coef: float = hyperparameter(
        0.25, "weight of the value's mean squared error (Stable-Baselines halves the error: 0.5 there)", ge=0
    )
    max_grad_norm: float | None = hyperparameter(0.5, "bound of the gradient's norm; null: none", gt=0)
    target_kl: float | None = hyperparameter(
        None, "an update ends when the KL divergence to the old policy exceeds 1.5 times this", gt=0
    )
    adam_eps: float = hyperparameter(1e-5, "Adam's epsilon", gt=0)


class PPO2(OnPolicyAlgorithm[PPO2Config]):
    """PPO with clipped surrogate and, by default, clipped values, as in Stable-Baselines' PPO2."""

    name = "ppo2"
    config_class = PPO2Config
    compiling_saves = 0.8e-3

    def _optimizer(self) -> Optimizer:
        return Adam(eps=self.config.adam_eps)

    def _make_state(self) -> State:
        config = self.config
        self.learning_rate = schedules.parse(config.learning_rate)
        self.clip_range = schedules.parse(config.clip_range)
        same = config.clip_range_vf == "same"
        self.clips_values = config.clip_range_vf is not None
        self.clip_range_vf = self.clip_range if same else schedules.parse(config.clip_range_vf or 0.0)
        state = super()._make_state()
        if config.target_kl is not None:
            state[STOPPED] = torch.zeros((), dtype=torch.bool, device=self.device)
        return state

    def _make_memory(self) -> None:
        super()._make_memory()
        self._batch_size()

    def update(self) -> None:
        config, memory = self.config, self.memory
        progress = max(0.0, self.progress - memory.n_steps * self.n_envs / self.total_timesteps)
        rows = self._tensors(memory.rows())
        with torch.inference_mode():
            log_prob, _, values = self.policy(rows)
        advantages, returns = self.advantages_and_returns(values, config.gamma, config.gae_lambda)
        rollout = {
            **rows,
            "log_prob": log_prob,
            "values": values,
            "advantages": advantages,
            "returns": returns,
        }
        rates = {
            "learning_rate": torch.tensor(self.learning_rate(progress), device=self.device),
            "clip_range": torch.tensor(self.clip_range(progress), device=self.device),
            "clip_range_vf": torch.tensor(self.clip_range_vf(progress), device=self.device),
        }
        minibatches = memory.minibatch_rows(self.rng, config.n_epochs, self._batch_size())
        self.record("train/explained_variance", explained_variance(values, returns))
        self.record("train/learning_rate", self.learning_rate(progress))
        self.record("train/clip_range", self.clip_range(progress))
        self._run_program({"rollout": rollout, **rates}, self._tensors(minibatches))

    def _update_step(self, state: State, shared: Any, inputs: Tensor) -> tuple[State, dict[str, Tensor]]:
        batch = {name: transform(lambda rows: rows[inputs], rows) for name, rows in shared["rollout"].items()}
        policy = self.trainable.variables(state)
        log_prob, entropy, values = policy(batch)
        policy_loss, ratio = self.policy_loss(log_prob, batch, shared["clip_range"])
        value_loss = self.value_loss(values, batch, shared["clip_range_vf"])
        entropy_loss = -entropy.mean()
        loss = policy_loss + self.config.ent_coef * entropy_loss + self.config.vf_coef * value_loss
        approx_kl = (ratio - 1 - ratio.log()).mean().detach()
        too_far = None if self.config.target_kl is None else approx_kl > 1.5 * self.config.target_kl
        state, grad_norm = self.trainable.descend(
            state, policy, loss, shared["learning_rate"], unless=too_far
        )
        if too_far is not None:
            state = {**state, STOPPED: too_far}
        clip_fraction = ((ratio - 1).abs() > shared["clip_range"]).float().mean()
        return state, {
            "policy_gradient_loss": policy_loss.detach(),
            "value_loss": value_loss.detach(),
            "entropy_loss": entropy_loss.detach(),
            "loss": loss.detach(),
            "approx_kl": approx_kl,
            "clip_fraction": clip_fraction,
            "grad_norm": grad_norm,
        }

    def policy_loss(
        self, log_prob: Tensor, batch: dict[str, Tensor], clip_range: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the clipped surrogate (equation 7 of the paper), negated, and the probability ratios."""
        advantages = batch["advantages"]
        if self.config.normalize_advantage:
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        ratio = torch.exp(log_prob - batch["log_prob"])
        clipped = torch.clamp(ratio, 1 - clip_range, 1 + clip_range)
        return -torch.minimum(advantages * ratio, advantages * clipped).mean(), ratio.detach()

    def value_loss(self, values: Tensor, batch: dict[str, Tensor], clip_range_vf: Tensor) -> Tensor:
        """Return the squared error to the returns; clipped values can only make it worse, never better."""
        error = (values - batch["returns"]).square()
        if self.clips_values:
            change = torch.clamp(values - batch["values"], -clip_range_vf, clip_range_vf)
            error = torch.maximum(error, (batch["values"] + change - batch["returns"]).square())
        return error.mean()

    def gradient_steps_in(self, total_timesteps: int) -> float:
        n_rows = self.memory.n_steps * self.n_envs
        return total_timesteps / n_rows * self.config.n_epochs * (n_rows / self._batch_size())

    def _batch_size(self) -> int:
        n_rows = self.memory.n_steps * self.n_envs
        return minibatch_size(n_rows, self.config.batch_size, self.config.n_minibatches)
