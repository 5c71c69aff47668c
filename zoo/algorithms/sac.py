"""Soft actor-critic (Haarnoja et al. 2018, https://arxiv.org/abs/1812.05905).

The actor seeks reward and entropy at once; the smaller of several critics keeps it from exploiting their
errors; the weight of the entropy is learned so that the policy keeps a wanted amount of randomness.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from zoo.algorithms.arguments import SdeConfig, sde_options
from zoo.algorithms.off_policy import (
    HINDSIGHT,
    ContinuousAlgorithm,
    ReplayBatch,
    SeveralCriticsConfig,
    critic_passes,
    mean_loss,
    td_errors,
    with_hindsight,
)
from zoo.config.fields import hyperparameter
from zoo.errors import ZooError
from zoo.optim.optimizers import Adam, Parameters, Updater
from zoo.optim.update_runner import Rates, State, StepResult
from zoo.policies.config import PolicyConfig
from zoo.policies.continuous import (
    OFF_POLICY_WIDTHS,
    ContinuousCritics,
    LogEntropyCoefficient,
    SquashedActor,
)
from zoo.policies.exploration import Exploration, StochasticExploration


@dataclass
class SACConfig(SdeConfig, SeveralCriticsConfig):
    """Hyperparameters of SAC."""

    ent_coef: float | str = hyperparameter(
        "auto",
        "weight of the entropy; auto: learned, auto_0.1: learned from that value on",
        ge=0,
        is_finite=True,
    )
    target_entropy: float | str = hyperparameter(
        "auto", "entropy that a learned ent_coef aims at; auto: minus the action dimensions", is_finite=True
    )
    target_update_interval: int = hyperparameter(
        1, "gradient steps between updates of the target critics", unit="gradient steps", ge=1
    )
    use_sde_at_warmup: bool = hyperparameter(False, "gSDE before learning starts too, not random actions")


class SACPolicy(nn.Module):
    """Actor, critics and entropy coefficient."""

    critic_widths: ClassVar[tuple[int, ...]] = OFF_POLICY_WIDTHS
    """Hidden layers of the critics, where the config has none."""

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        config: PolicyConfig,
        *,
        n_critics: int,
        ent_coef: float,
        use_sde: bool = False,
    ) -> None:
        super().__init__()
        spaces_and_config = observation_space, action_space, config
        self.actor = SquashedActor(*spaces_and_config, use_sde=use_sde)
        self.critics = ContinuousCritics(*spaces_and_config, n_critics=n_critics, widths=self.critic_widths)
        self.temperature = LogEntropyCoefficient(ent_coef)


class SAC(ContinuousAlgorithm):
    """Soft actor-critic with a learned entropy coefficient, without a separate state-value network."""

    name = "sac"
    config_class = SACConfig
    targets_of: ClassVar[dict[str, str]] = {"target": "critics"}
    policy_class: ClassVar[type[nn.Module]] = SACPolicy
    optimizer: ClassVar[Adam] = Adam()
    """What moves actor and critics."""

    config: SACConfig
    policy: SACPolicy

    def _policy_options(self) -> dict[str, Any]:
        start, self.learns_ent_coef = _entropy_coefficient(self.config.ent_coef)
        sde = sde_options(self.config.use_sde, self.action_space)
        return {"ent_coef": start, "n_critics": self.config.n_critics, **sde}

    def _make_state(self) -> State:
        target = self.config.target_entropy
        if isinstance(target, str):
            if target != "auto":
                raise ZooError(f"`algo.target_entropy={target}`: expected a number or auto")
            target = -float(self.action_adapter.spec.shape[0])
        self.target_entropy = target
        policy = self.policy
        self.actor_updater = Updater(Parameters("actor", policy.actor), self.optimizer)
        self.critics_updater = Updater(Parameters("critics", policy.critics), self.optimizer)
        self.temperature_updater = Updater(Parameters("temperature", policy.temperature), Adam())
        return self._initial_state(self.actor_updater, self.critics_updater, self.temperature_updater)

    def _make_exploration(self) -> Exploration:
        if not self.config.use_sde:
            return super()._make_exploration()
        freq, at_warmup = self.config.sde_sample_freq, self.config.use_sde_at_warmup
        parts = self.acting, self._action_noise(), self.config.random_exploration
        return StochasticExploration(*parts, sde_sample_freq=freq, sde_at_warmup=at_warmup)

    def _learn_from(self, batches: ReplayBatch, n_steps: int) -> Mapping[str, Tensor]:
        shape = (n_steps, 2, self.config.batch_size, *self.action_adapter.spec.shape)
        updates = self.n_updates + 1 + np.arange(n_steps)
        tau = np.where(updates % self.config.target_update_interval == 0, self.config.tau, 0.0)
        rows = {
            **batches,
            **self._critic_noise(n_steps),
            "noise": self._tensors(self.rng.standard_normal(shape, dtype=np.float32)),
            "tau": self._tensors(tau.astype(np.float32)),
        }
        return self.take_steps(self._gradient_step, self.rates(self._progress_before), rows)

    def _gradient_step(self, state: State, rates: Rates, batch: ReplayBatch) -> StepResult:
        """Update temperature, critics, actor, in this order; actions are sampled once, from the old actor.

        `module` gives a network to differentiate, `functional` one whose parameters are constant.
        """
        learning_rate, observations = rates["learning_rate"], batch["observations"]
        weights = batch.get("weights")
        noise, next_noise = batch["noise"].unbind(0)
        _, for_critics, for_actor = critic_passes(batch)
        actor = self.actor_updater.module(state)
        actions, log_prob = self.policy.actor.head.rsample(actor(observations), noise)
        ent_coef = self.temperature_updater.functional(state)().exp()
        targets = self.targets(state, batch, next_noise, ent_coef)
        ent_coef_loss = torch.zeros_like(ent_coef)
        if self.learns_ent_coef:
            log_ent_coef = self.temperature_updater.module(state)
            entropy_shortfall = log_prob.detach() + self.target_entropy
            # J(α) (equation 18), of log α instead of α as in the authors' code.
            ent_coef_loss = -mean_loss(log_ent_coef() * entropy_shortfall, weights)
            state, _ = self.temperature_updater.step(state, log_ent_coef, ent_coef_loss, learning_rate)

        critics = self.critics_updater.module(state)
        values = critics(observations, batch["actions"], **for_critics)
        losses, errors = self._losses_and_errors(values, targets)
        critic_loss = mean_loss(losses, weights)  # J_Q (equation 5)
        state, _ = self.critics_updater.step(state, critics, critic_loss, learning_rate)

        new_critics = self.critics_updater.functional(state)
        actor_values = self._actor_values(new_critics(observations, actions, **for_actor))
        actor_loss = mean_loss(ent_coef * log_prob - actor_values, weights)  # J_π (equation 9)
        state, _ = self.actor_updater.step(state, actor, actor_loss, learning_rate)

        state = self.critics_updater.parameters.polyak_update(state, "target", batch["tau"])
        metrics = {
            "actor_loss": actor_loss.detach(),
            "critic_loss": critic_loss.detach(),
            "ent_coef_loss": ent_coef_loss.detach(),
            "ent_coef": ent_coef,
            "q_value": values.mean().detach(),
        }
        return StepResult(state, metrics, td_errors(batch, errors))

    def targets(self, state: State, batch: ReplayBatch, noise: Tensor, ent_coef: Tensor) -> Tensor:
        """Return r + γ·(min Q_target(s′, a′) − α·log π(a′|s′)), (batch,) (equations 3 and 5)."""
        next_observations = batch["next_observations"]
        with self.policy_mode.evaluation():
            next_parameters = self.actor_updater.functional(state)(next_observations)
            next_actions, next_log_prob = self.policy.actor.head.rsample(next_parameters, noise)
            target = self.critics_updater.functional(state, "target")
            next_values = target(next_observations, next_actions, **critic_passes(batch)[0])
        return self._bootstrapped(batch, self._soft_values(next_values, ent_coef * next_log_prob))

    # What the critics' values (critics, batch) mean: all that differs where these are distributions.

    def _soft_values(self, next_values: Tensor, weighted_log_prob: Tensor) -> Tensor:
        """Return the critics' smallest next value, less the weighted log-probability (batch,)."""
        return next_values.amin(0) - weighted_log_prob

    def _losses_and_errors(self, values: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the critics' losses, and how far their values are from the targets, (batch,) each."""
        errors = values - targets
        return 0.5 * errors.square().sum(0), errors.abs().mean(0)

    def _actor_values(self, values: Tensor) -> Tensor:
        """Return the value (batch,) that the actor maximises."""
        return values.amin(0)

    def _apply_changed(self, changed: Collection[str]) -> None:
        super()._apply_changed(changed)
        if "ent_coef" in changed:
            start, _ = _entropy_coefficient(self.config.ent_coef)
            self.policy.temperature.set(start)


class HerSAC(SAC):
    """SAC with hindsight replay."""

    of_preset = "her_sac"
    usual_replay = HINDSIGHT
    search_space = with_hindsight(SAC)


def _entropy_coefficient(value: float | str) -> tuple[float, bool]:
    """Read a number, ``"auto"`` or ``"auto_0.1"``; return the first value and whether it is learned."""
    if not isinstance(value, str):
        return value, False
    name, separator, start = value.partition("_")
    try:
        first = float(start) if separator else 1.0
    except ValueError:
        first = 0.0
    if name != "auto" or not 0 < first < math.inf:
        raise ZooError(f"`algo.ent_coef={value}`: expected a number above 0, auto, or, say, auto_0.1")
    return first, True
