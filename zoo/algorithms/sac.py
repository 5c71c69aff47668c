"""Soft actor-critic (Haarnoja et al. 2018, https://arxiv.org/abs/1812.05905).

The actor seeks reward and entropy at once; the smaller of several critics keeps it from exploiting their
errors; the weight of the entropy is learned so that the policy keeps a wanted amount of randomness.

Of discrete actions (Christodoulou 2019, https://arxiv.org/abs/1910.07207) the critics value all at once, so
that expectations over the policy's actions are sums instead of samples. MultiDiscrete actions are one choice
among all their combinations.
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
from zoo.envs.spaces import describe
from zoo.errors import ZooError
from zoo.optim.optimizers import Adam, Parameters, Updater
from zoo.optim.update_runner import Rates, State, StepResult, tree_row
from zoo.policies.config import PolicyConfig
from zoo.policies.continuous import (
    OFF_POLICY_WIDTHS,
    Actor,
    DiscreteActor,
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
        "entropy that a learned ent_coef aims at; auto: minus the action dimensions, auto_0.5: half of that;"
        " with discrete actions a share of log(allowed actions), auto: auto_0.5",
        is_finite=True,
    )
    target_update_interval: int = hyperparameter(
        1, "gradient steps between updates of the target critics", unit="gradient steps", ge=1
    )
    use_sde_at_warmup: bool = hyperparameter(False, "gSDE before learning starts too, not random actions")


DISCRETE_SHARE = 0.5
"""The entropy that discrete actions aim at, as a share of what uniformly random ones have."""


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
        self.actor: Actor
        if isinstance(action_space, spaces.Box):
            self.actor = SquashedActor(*spaces_and_config, use_sde=use_sde, widths=self.actor_widths)
        else:
            self.actor = DiscreteActor(*spaces_and_config, widths=self.actor_widths)
        self.critics = make_critics(*spaces_and_config, n_critics, n_atoms, self.critic_widths)
        self.temperature = LogEntropyCoefficient(ent_coef)


class SAC(SeveralCriticsAlgorithm):
    """Soft actor-critic with a learned entropy coefficient, without a separate state-value network."""

    name = "sac"
    config_class = SACConfig
    supported_actions: ClassVar[tuple[type[spaces.Space[Any]], ...]] = (
        spaces.Box,
        spaces.Discrete,
        spaces.MultiDiscrete,
    )
    targets_of: ClassVar[dict[str, str]] = {"target": "critics"}
    policy_class: ClassVar[type[nn.Module]] = SACPolicy
    loss_factor = 0.5  # J_Q (equation 5)

    config: SACConfig
    policy: SACPolicy

    def _policy_options(self) -> dict[str, Any]:
        start, self.learns_ent_coef = _entropy_coefficient(self.config.ent_coef)
        sde = sde_options(self.config.use_sde, self.action_space)
        return {**super()._policy_options(), "ent_coef": start, **sde}

    @property
    def is_discrete(self) -> bool:
        """Whether the actions are choices."""
        return not isinstance(self.action_space, spaces.Box)

    def _make_state(self) -> State:
        self.target_entropy = self._target_entropy()
        policy = self.policy
        self.actor_updater = Updater(Parameters("actor", policy.actor), self._make_optimizer())
        self.critics_updater = Updater(Parameters("critics", policy.critics), self._make_optimizer())
        self.temperature_updater = Updater(Parameters("temperature", policy.temperature), Adam())
        return self._initial_state(self.actor_updater, self.critics_updater, self.temperature_updater)

    def _target_entropy(self) -> float:
        """Return the entropy to aim at, where all actions are allowed. Raises `ZooError`."""
        config, target, share = self.config, self.config.target_entropy, 1.0
        if isinstance(target, str):
            is_default = self.is_discrete and target == "auto"
            share = DISCRETE_SHARE if is_default else _after_auto("target_entropy", target)
        if not self.is_discrete:
            return -share * self.action_adapter.spec.shape[0] if isinstance(target, str) else target
        for name, none in (("critic_loss", "mse"), ("action_noise", None)):
            if getattr(config, name) != none:
                space = describe(self.action_space)
                raise ZooError(f"`algo.{name}` is for Box actions, but the env's are {space}")
        largest = math.log(self.policy.actor.head.parameter_size)
        entropy = share * largest if isinstance(target, str) else target
        if not 0 <= entropy < largest:
            raise ZooError(
                f"`algo.target_entropy={target}`: expected auto_SHARE with a share below 1, or a number from"
                f" 0 to less than {largest:.3g}, the entropy of random actions"
            )
        return entropy

    def _make_exploration(self) -> Exploration:
        if not self.config.use_sde:
            return super()._make_exploration()
        freq, at_warmup = self.config.sde_sample_freq, self.config.use_sde_at_warmup
        parts = self.acting, self._action_noise(), self.config.random_exploration
        return StochasticExploration(*parts, sde_sample_freq=freq, sde_at_warmup=at_warmup)

    def _learn_from(self, batches: ReplayBatch, n_steps: int) -> Mapping[str, Tensor]:
        samples = {**batches, **self._critic_noise(n_steps)}
        if not self.is_discrete:
            shape = (n_steps, 2, self.config.batch_size, *self.action_adapter.spec.shape)
            samples["noise"] = self._tensors(self.rng.standard_normal(shape, dtype=np.float32))
        samples |= self._target_draws(n_steps)
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
        actions, log_prob, probabilities = self._policy_actions(actor(observations), batch, 0)
        ent_coef_loss = torch.zeros_like(ent_coef)
        if self.learns_ent_coef:
            log_ent_coef = self.temperature_updater.module(state)
            entropy_shortfall = log_prob + self._entropy_target(batch, log_prob)
            entropy_shortfall = mean_over(entropy_shortfall, probabilities).detach()
            # J(α) (equation 18), of log α instead of α as in the authors' code.
            ent_coef_loss = -mean_loss(log_ent_coef() * entropy_shortfall, weights)
            state, _ = self.temperature_updater.step(state, log_ent_coef, ent_coef_loss, learning_rate)
        # Statistics of batches are those of stored actions.
        with self.policy_mode.evaluation() if self.has_batch_norm else nullcontext():
            critics = self.critics_updater.functional(state)
            values = critics(observations, actions, **critic_passes(batch)[2])
        losses = mean_over(ent_coef * log_prob - self._actor_values(values), probabilities)
        actor_loss = mean_loss(losses, weights)  # J_π (equation 9)
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
        next_actions, weighted_log_prob, probabilities = self._next_actions(state, batch)
        with self.policy_mode.evaluation():
            target = self.critics_updater.functional(state, "target")
            values = target(batch["next_observations"], next_actions, **critic_passes(batch)[0])
        return self._soft_targets(batch, values, weighted_log_prob, probabilities)

    def _next_actions(self, state: State, batch: ReplayBatch) -> tuple[Tensor | None, Tensor, Tensor | None]:
        """Return `_policy_actions` for the next states, with α·log π(a′|s′) instead of log π(a′|s′)."""
        ent_coef = self.temperature_updater.functional(state)().exp()
        with self.policy_mode.evaluation():
            parameters = self.actor_updater.functional(state)(batch["next_observations"])
            actions, log_prob, probabilities = self._policy_actions(parameters, batch, 1)
        return actions, ent_coef * log_prob, probabilities

    def _policy_actions(
        self, parameters: Tensor, batch: ReplayBatch, when: int
    ) -> tuple[Tensor | None, Tensor, Tensor | None]:
        """Return an action for each state (0: of the batch, 1: next), log π(a|s) (batch,), and None.

        Of discrete actions return None for all of them, log π(a|s) and π(a|s), (batch, actions) each.
        """
        head: Any = self.policy.actor.head
        if not self.is_discrete:
            return *head.rsample(parameters, batch["noise"][when]), None
        masks = batch.get("next_action_masks" if when else "action_masks")
        log_prob = head.masked(parameters, masks).log_softmax(-1)
        return None, log_prob, log_prob.exp()

    def _entropy_target(self, batch: ReplayBatch, log_prob: Tensor) -> float | Tensor:
        """Return the entropy to aim at, by states (batch, 1) where these allow different actions."""
        masks, head = batch.get("action_masks"), self.policy.actor.head
        if masks is None or not isinstance(self.config.target_entropy, str):
            return self.target_entropy
        of_random = head.entropy(head.masked(torch.zeros_like(log_prob), masks))
        return self.target_entropy / math.log(head.parameter_size) * of_random[:, None]

    def _soft_targets(
        self,
        batch: ReplayBatch,
        values: Tensor,
        weighted_log_prob: Tensor,
        probabilities: Tensor | None = None,
    ) -> Tensor:
        """Return the targets of next values (critics, batch, …)."""
        values = chosen_critics(values, batch)
        if self.distribution is not None:
            return self._distribution_targets(batch, values, weighted_log_prob[:, None])
        values = mean_over(self._soft_values(values, weighted_log_prob), probabilities)
        return self._bootstrapped(batch, values)

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


def mean_over(values: Tensor, probabilities: Tensor | None) -> Tensor:
    """Return the mean of values (batch, actions) over actions, or values of one action as they are."""
    return values if probabilities is None else (probabilities * values).sum(-1)


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
