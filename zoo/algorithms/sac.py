"""Soft actor-critic (Haarnoja et al. 2018, https://arxiv.org/abs/1812.05905).

The actor seeks reward and entropy at once; the smaller of several critics keeps it from exploiting their
errors; the weight of the entropy is learned so that the policy keeps a wanted amount of randomness.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from zoo.algorithms.arguments import SdeConfig, sde_options
from zoo.algorithms.off_policy import (
    HINDSIGHT,
    ReplayBatch,
    SeveralCriticsAlgorithm,
    SeveralCriticsConfig,
    chosen_critics,
    critic_passes,
    mean_loss,
    with_hindsight,
)
from zoo.config.fields import hyperparameter
from zoo.errors import ZooError
from zoo.optim.optimizers import Adam, Parameters, Updater
from zoo.optim.update_runner import Rates, State, StepResult, tree_row
from zoo.policies.config import PolicyConfig
from zoo.policies.continuous import (
    OFF_POLICY_WIDTHS,
    LogEntropyCoefficient,
    SquashedActor,
    make_critics,
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
        "auto",
        "entropy that a learned ent_coef aims at; auto: minus the action dimensions, auto_0.5: half of that",
        is_finite=True,
    )
    target_update_interval: int = hyperparameter(
        1, "gradient steps between updates of the target critics", unit="gradient steps", ge=1
    )
    use_sde_at_warmup: bool = hyperparameter(False, "gSDE before learning starts too, not random actions")


class SACPolicy(nn.Module):
    """Actor, critics and entropy coefficient."""

    actor_widths: ClassVar[tuple[int, ...]] = OFF_POLICY_WIDTHS
    critic_widths: ClassVar[tuple[int, ...]] = OFF_POLICY_WIDTHS
    """Hidden layers, where the config has none."""

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        config: PolicyConfig,
        *,
        n_critics: int,
        ent_coef: float,
        n_atoms: int | None = None,
        use_sde: bool = False,
    ) -> None:
        super().__init__()
        spaces_and_config = observation_space, action_space, config
        self.actor = SquashedActor(*spaces_and_config, use_sde=use_sde, widths=self.actor_widths)
        self.critics = make_critics(*spaces_and_config, n_critics, n_atoms, self.critic_widths)
        self.temperature = LogEntropyCoefficient(ent_coef)


class SAC(SeveralCriticsAlgorithm):
    """Soft actor-critic with a learned entropy coefficient, without a separate state-value network."""

    name = "sac"
    config_class = SACConfig
    targets_of: ClassVar[dict[str, str]] = {"target": "critics"}
    policy_class: ClassVar[type[nn.Module]] = SACPolicy
    loss_factor = 0.5  # J_Q (equation 5)

    config: SACConfig
    policy: SACPolicy

    def _policy_options(self) -> dict[str, Any]:
        start, self.learns_ent_coef = _entropy_coefficient(self.config.ent_coef)
        sde = sde_options(self.config.use_sde, self.action_space)
        return {**super()._policy_options(), "ent_coef": start, **sde}

    def _make_state(self) -> State:
        target = self.config.target_entropy
        if isinstance(target, str):
            target = -self.action_adapter.spec.shape[0] * _after_auto("target_entropy", target)
        self.target_entropy = target
        policy = self.policy
        self.actor_updater = Updater(Parameters("actor", policy.actor), self._make_optimizer())
        self.critics_updater = Updater(Parameters("critics", policy.critics), self._make_optimizer())
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
        samples = {
            **batches,
            **self._critic_noise(n_steps),
            "noise": self._tensors(self.rng.standard_normal(shape, dtype=np.float32)),
            **self._target_draws(n_steps),
        }
        if self.targets_of:
            updates = self.n_updates + 1 + np.arange(n_steps)
            tau = np.where(updates % self.config.target_update_interval == 0, self.config.tau, 0.0)
            samples["tau"] = self._tensors(tau.astype(np.float32))
        return self._take_rounds(samples, n_steps, self.config.policy_delay)

    def _round(self, state: State, rates: Rates, batches: ReplayBatch) -> StepResult:
        """Take a step of the critics on each batch, then one of temperature and actor on the last.

        `module` gives a network to differentiate, `functional` one whose parameters are constant.
        """
        state, metrics, outputs = self._critic_steps(state, rates, batches)
        batch, learning_rate = tree_row(batches, -1), rates["learning_rate"]
        observations, weights = batch["observations"], batch.get("weights")
        ent_coef = self.temperature_updater.functional(state)().exp()
        actor = self.actor_updater.module(state)
        actions, log_prob = self.policy.actor.head.rsample(actor(observations), batch["noise"][0])
        ent_coef_loss = torch.zeros_like(ent_coef)
        if self.learns_ent_coef:
            log_ent_coef = self.temperature_updater.module(state)
            entropy_shortfall = log_prob.detach() + self.target_entropy
            # J(α) (equation 18), of log α instead of α as in the authors' code.
            ent_coef_loss = -mean_loss(log_ent_coef() * entropy_shortfall, weights)
            state, _ = self.temperature_updater.step(state, log_ent_coef, ent_coef_loss, learning_rate)
        # Statistics of batches are those of stored actions.
        with self.policy_mode.evaluation() if self.has_batch_norm else nullcontext():
            critics = self.critics_updater.functional(state)
            values = critics(observations, actions, **critic_passes(batch)[2])
        actor_loss = mean_loss(ent_coef * log_prob - self._actor_values(values), weights)  # J_π (equation 9)
        actor_rate = rates.get("actor_learning_rate", learning_rate)
        state, _ = self.actor_updater.step(state, actor, actor_loss, actor_rate)
        metrics |= {
            "actor_loss": actor_loss.detach(),
            "ent_coef_loss": ent_coef_loss.detach(),
            "ent_coef": ent_coef,
        }
        return StepResult(state, metrics, outputs)

    def _move_targets(self, state: State, batch: ReplayBatch) -> State:
        return self.critics_updater.parameters.polyak_update(state, "target", batch["tau"])

    def targets(self, state: State, batch: ReplayBatch) -> Tensor:
        """Return r + γ·(min Q_target(s′, a′) − α·log π(a′|s′)), (batch,) (equations 3 and 5)."""
        next_actions, log_prob = self._next_actions(state, batch)
        with self.policy_mode.evaluation():
            target = self.critics_updater.functional(state, "target")
            values = target(batch["next_observations"], next_actions, **critic_passes(batch)[0])
        return self._soft_targets(batch, values, log_prob)

    def _next_actions(self, state: State, batch: ReplayBatch) -> tuple[Tensor, Tensor]:
        """Return an action of the policy for each next state, and log π(a′|s′) times α, (batch,)."""
        ent_coef = self.temperature_updater.functional(state)().exp()
        with self.policy_mode.evaluation():
            parameters = self.actor_updater.functional(state)(batch["next_observations"])
            actions, log_prob = self.policy.actor.head.rsample(parameters, batch["noise"][1])
        return actions, ent_coef * log_prob

    def _soft_targets(self, batch: ReplayBatch, values: Tensor, weighted_log_prob: Tensor) -> Tensor:
        """Return the targets of next values (critics, batch, …)."""
        values = chosen_critics(values, batch)
        if self.distribution is not None:
            return self._distribution_targets(batch, values, weighted_log_prob[:, None])
        return self._bootstrapped(batch, self._soft_values(values, weighted_log_prob))

    # What the critics' values (critics, batch) mean: all that differs where these are distributions.

    def _soft_values(self, next_values: Tensor, weighted_log_prob: Tensor) -> Tensor:
        """Return the critics' smallest next value, less the weighted log-probability (batch,)."""
        return next_values.amin(0) - weighted_log_prob

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
    return (_after_auto("ent_coef", value), True) if isinstance(value, str) else (value, False)


def _after_auto(name: str, value: str) -> float:
    """Return 1 for ``"auto"``, 0.1 for ``"auto_0.1"``."""
    word, separator, number = value.partition("_")
    try:
        factor = float(number) if separator else 1.0
    except ValueError:
        factor = 0.0
    if word != "auto" or not 0 < factor < math.inf:
        expected = "a number above 0" if name == "ent_coef" else "a number"
        raise ZooError(f"`algo.{name}={value}`: expected {expected}, auto, or, say, auto_0.1")
    return factor
