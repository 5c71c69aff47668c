"""CrossQ (Bhatt et al. 2024, https://openreview.net/forum?id=PczQtTsTIX).

Soft actor-critic without target networks: batch renormalisation keeps the critics' values bounded, as long as
one pass of the critics sees the actions of the batch and those of the next states together. In the paper,
wide critics then need a fraction of SAC's data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from zoo.algorithms.off_policy import ReplayBatch, critic_passes, mean_loss, td_errors
from zoo.algorithms.sac import SAC, SACConfig, SACPolicy
from zoo.config.fields import hyperparameter, with_defaults
from zoo.errors import ZooError
from zoo.optim.optimizers import Adam
from zoo.optim.update_runner import Rates, State, StepResult, tree_row
from zoo.policies.config import PolicyConfig


@dataclass
@with_defaults(learning_rate=1e-3, buffer_size=1_000_000, batch_size=256)
class CrossQConfig(SACConfig):
    """Hyperparameters of CrossQ."""

    policy_delay: int = hyperparameter(
        3,
        "steps of the critics for one of the actor and of ent_coef",
        unit="gradient steps",
        ge=1,
    )
    tau: ClassVar[None] = None  # type: ignore[assignment,misc]
    target_update_interval: ClassVar[None] = None  # type: ignore[assignment,misc]

    def __post_init__(self) -> None:
        if self.batch_size < 2:
            raise ZooError(f"`algo.batch_size={self.batch_size}` has no variance; expected at least 2")


class CrossQPolicy(SACPolicy):
    """Actor of 256-256 and critics of 1024-1024, with batch renormalisation unless the config says else."""

    critic_widths = (1024, 1024)

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        config: PolicyConfig,
        **options: Any,
    ) -> None:
        norm = config.norm or ("layer" if config.layer_norm else "batch_renorm")
        config = replace(config, norm=norm, norm_input=config.norm_input is not False)
        super().__init__(observation_space, action_space, config, **options)


class CrossQ(SAC):
    """Soft actor-critic with batch renormalisation and no targets, with SB3-Contrib's values."""

    name = "crossq"
    config_class = CrossQConfig
    policy_class = CrossQPolicy
    targets_of: ClassVar[dict[str, str]] = {}
    has_batch_norm = True
    optimizer = Adam(beta1=0.5)

    config: CrossQConfig

    def _learn_from(self, batches: ReplayBatch, n_steps: int) -> Mapping[str, Tensor]:
        shape = (n_steps, 2, self.config.batch_size, *self.action_adapter.spec.shape)
        samples = {
            **batches,
            **self._critic_noise(n_steps),
            "noise": self._tensors(self.rng.standard_normal(shape, dtype=np.float32)),
        }
        return self._take_rounds(samples, n_steps, self.config.policy_delay)

    def _round(self, state: State, rates: Rates, batches: ReplayBatch) -> StepResult:
        """Take a step of the critics on each batch, then one of temperature and actor on the last."""
        state, metrics, outputs = self._critic_steps(state, rates, batches)
        batch, learning_rate = tree_row(batches, -1), rates["learning_rate"]
        weights = batch.get("weights")
        ent_coef = self.temperature_updater.functional(state)().exp()
        actor = self.actor_updater.module(state)
        actions, log_prob = self.policy.actor.head.rsample(actor(batch["observations"]), batch["noise"][0])
        ent_coef_loss = torch.zeros_like(ent_coef)
        if self.learns_ent_coef:
            log_ent_coef = self.temperature_updater.module(state)
            ent_coef_loss = -mean_loss(log_ent_coef() * (log_prob.detach() + self.target_entropy), weights)
            state, _ = self.temperature_updater.step(state, log_ent_coef, ent_coef_loss, learning_rate)
        with self.policy_mode.evaluation():  # the critics' statistics are those of stored actions
            critics = self.critics_updater.functional(state)
            values = critics(batch["observations"], actions, **critic_passes(batch)[2])
        actor_loss = mean_loss(ent_coef * log_prob - self._actor_values(values), weights)
        state, _ = self.actor_updater.step(state, actor, actor_loss, learning_rate)
        moved = {"actor_loss": actor_loss.detach(), "ent_coef_loss": ent_coef_loss.detach()}
        return StepResult(state, {**metrics, **moved}, outputs)

    def _critic_steps(self, state: State, rates: Rates, batches: ReplayBatch) -> StepResult:
        """Take a step of the critics on each batch, with one pass over its steps and their next ones.

        Targets are constants, but the batch statistics that they share with the values have gradients.
        """
        ent_coef = self.temperature_updater.functional(state)().exp()
        losses, means, errors = [], [], []
        for index in range(len(batches["rewards"])):
            batch = tree_row(batches, index)
            observations, next_observations = batch["observations"], batch["next_observations"]
            with self.policy_mode.evaluation():
                next_parameters = self.actor_updater.functional(state)(next_observations)
                next_actions, log_prob = self.policy.actor.head.rsample(next_parameters, batch["noise"][1])
            for_targets, for_critics, _ = critic_passes(batch)
            critics = self.critics_updater.module(state)
            both = critics(
                joined(observations, next_observations),
                joined(batch["actions"], next_actions),
                **{name: joined(part, for_targets[name]) for name, part in for_critics.items()},
            )
            values, next_values = both.chunk(2, dim=1)
            next_values = self._soft_values(next_values.detach(), ent_coef * log_prob)
            sums, distances = self._losses_and_errors(values, self._bootstrapped(batch, next_values))
            loss = mean_loss(sums, batch.get("weights"))
            state, _ = self.critics_updater.step(state, critics, loss, rates["learning_rate"])
            losses.append(loss.detach())
            means.append(values.mean().detach())
            errors.append(td_errors(batch, distances))
        metrics = {
            "critic_loss": torch.stack(losses).mean(),
            "ent_coef": ent_coef,
            "q_value": torch.stack(means).mean(),
        }
        outputs = {name: torch.stack([error[name] for error in errors]) for name in errors[0]}
        return StepResult(state, metrics, outputs)


def joined(first: Any, second: Any) -> Any:
    """Return the rows of two batches, one after the other: tensors, or dictionaries of them."""
    if isinstance(first, Tensor):
        return torch.cat([first, second])
    return {name: joined(part, second[name]) for name, part in first.items()}
