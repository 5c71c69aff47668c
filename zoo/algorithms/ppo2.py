"""Proximal policy optimisation (Schulman et al. 2017, https://arxiv.org/abs/1707.06347).

After each rollout the policy takes several epochs of minibatch steps on a surrogate objective that stops
paying once the probability of an action has changed by more than the clip range. The values of the critic
may be kept near the old ones in the same way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from zoo.algorithms.batch_means import batch_mean
from zoo.algorithms.clipped_policy import Batch, ClippedPolicyAlgorithm, ClippedPolicyConfig
from zoo.algorithms.on_policy import standardized
from zoo.config.fields import Schedule, hyperparameter, with_defaults
from zoo.errors import ZooError
from zoo.optim.state import STOPPED, State


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

    def __post_init__(self) -> None:
        usual = type(self).n_minibatches
        if self.batch_size is not None and self.n_minibatches != usual:
            raise ZooError(
                f"`algo.n_minibatches={self.n_minibatches}` does nothing beside `algo.batch_size="
                f"{self.batch_size}`; set `algo.batch_size=null` too, or leave n_minibatches at {usual}"
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

    def _bounded(self, approx_kl: Tensor) -> tuple[Tensor, Tensor | None]:
        if self.config.target_kl is None:
            return approx_kl, None
        approx_kl = self.descent.averaged(approx_kl)
        return approx_kl, ~(approx_kl <= 1.5 * self.config.target_kl)  # NaN is too far as well

    def policy_loss(self, log_ratio: Tensor, batch: Batch, clip_range: Tensor) -> Tensor:
        if self.config.normalize_advantage:
            batch = {**batch, "advantages": standardized(batch["advantages"], batch)}
        return super().policy_loss(log_ratio, batch, clip_range)

    def value_loss(self, values: Tensor, batch: Batch, rates: dict[str, Tensor]) -> Tensor:
        """Return the squared error to the returns; clipped values can only make it worse, never better."""
        error = (values - batch["returns"]).square()
        clip_range = self.config.clip_range_vf
        if clip_range is not None:
            bound = rates["clip_range" if clip_range == "same" else "clip_range_vf"]
            change = torch.clamp(values - batch["values"], -bound, bound)
            error = torch.maximum(error, (batch["values"] + change - batch["returns"]).square())
        return batch_mean(error, batch)

    def _minibatches(self) -> tuple[int, int]:
        """Return how many minibatches an epoch has, and their rows."""
        memory, n_minibatches = self.memory, self.config.n_minibatches
        if self.config.batch_size is not None:
            return self._minibatches_of(self._rows_in(self.config.batch_size))
        size = math.ceil(memory.n_rows / n_minibatches)
        if n_minibatches <= memory.n_rows and size * memory.steps_a_row > 1:
            return n_minibatches, size
        raise self._no_minibatches(f"{n_minibatches} minibatches", "algo.n_minibatches")
