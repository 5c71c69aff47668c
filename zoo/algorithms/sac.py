"""Soft actor-critic (Haarnoja et al. 2018, https://arxiv.org/abs/1812.05905).

The actor seeks reward and entropy at once; the smaller of several critics keeps it from exploiting their
errors; the weight of the entropy is learned so that the policy keeps a wanted amount of randomness.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from zoo.algorithms.base import Array
from zoo.algorithms.off_policy import OffPolicyAlgorithm, OffPolicyConfig
from zoo.config.fields import hyperparameter
from zoo.errors import ZooError
from zoo.memory.columns import Column, ColumnSpec
from zoo.optim import schedules
from zoo.optim.optimizers import Adam
from zoo.optim.trainable import State, Trainable
from zoo.policies.config import PolicyConfig
from zoo.policies.exploration import ActionNoiseConfig, make_action_noise
from zoo.policies.making import make_policy
from zoo.policies.squashed_actor import LOG_STD_RANGE, ContinuousCritics, SquashedActor, Temperature


@dataclass
class SACConfig(OffPolicyConfig):
    """Hyperparameters of SAC."""

    ent_coef: float | str = hyperparameter(
        "auto", "weight of the entropy; auto: learned, auto_0.1: learned from that value on", gt=0
    )
    target_entropy: float | str = hyperparameter("auto", "wanted entropy; auto: minus the action dimensions")
    tau: float = hyperparameter(0.005, "how far a target update goes", gt=0, le=1)
    target_update_interval: int = hyperparameter(
        1, "gradient steps between updates of the target critics", unit="gradient steps", ge=1
    )
    n_critics: int = hyperparameter(2, "critics, of which the smallest value counts", ge=1)
    action_noise: ActionNoiseConfig | dict[str, Any] | None = hyperparameter(
        None, "noise added to the actions while learning: {type: normal | ornstein-uhlenbeck, std: 0.1}"
    )
    random_exploration: float = hyperparameter(
        0.0, "share of steps with a uniformly random action while learning", ge=0, le=1
    )


class SACPolicy(nn.Module):
    """Actor, critics and entropy coefficient."""

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        config: PolicyConfig,
        *,
        n_critics: int,
        ent_coef: float,
    ) -> None:
        super().__init__()
        self.actor = SquashedActor(observation_space, action_space, config)
        self.critics = ContinuousCritics(observation_space, action_space, config, n_critics=n_critics)
        self.temperature = Temperature(ent_coef)


class SAC(OffPolicyAlgorithm[SACConfig]):
    """SAC without a separate state-value network, with a learned entropy coefficient by default."""

    name = "sac"
    config_class = SACConfig
    compiling_saves = 3.4e-3
    supported_actions = (spaces.Box,)

    policy: SACPolicy

    def _make_policy(self) -> nn.Module:
        start, self.learns_ent_coef = _entropy_coefficient(self.config.ent_coef)
        return make_policy(
            SACPolicy,
            self.observation_space,
            self.action_space,
            self.policy_config,
            n_critics=self.config.n_critics,
            ent_coef=start,
        )

    def _make_state(self) -> State:
        self.learning_rate = schedules.parse(self.config.learning_rate)
        self.n_actions = math.prod(self.action_space.shape or ())
        self.target_entropy = _target_entropy(self.config.target_entropy, self.n_actions)
        self.action_noise = make_action_noise(self.config.action_noise, self.n_actions)
        self.actor = Trainable("actor", self.policy.actor, Adam())
        self.critics = Trainable("critics", self.policy.critics, Adam())
        self.temperature = Trainable("temperature", self.policy.temperature, Adam())
        self._numpy_latent = self.policy.actor.numpy_latent()
        parts = [part.initial_state() for part in (self.actor, self.critics, self.temperature)]
        return {**parts[0], **parts[1], **parts[2], "target": self.critics.flat.clone()}

    # -- acting -----------------------------------------------------------------------------------------

    def _mean_and_log_std(self, observations: Column) -> tuple[Array, Array]:
        if self._numpy_latent is not None:
            latent = self._numpy_latent(observations)
        else:
            with torch.inference_mode():
                latent = self.policy.actor.latent(self._tensors(observations)).cpu().numpy()
        return latent[..., : self.n_actions], latent[..., self.n_actions :]

    def _sampled(self, observations: Column, *, deterministic: bool) -> Array:
        mean, log_std = self._mean_and_log_std(observations)
        if deterministic:
            return np.tanh(mean)
        noise = self.rng.standard_normal(mean.shape, dtype=np.float32)
        return np.tanh(mean + np.exp(log_std.clip(*LOG_STD_RANGE)) * noise)

    def _explore(self, observations: Column) -> Array:
        actions = self._sampled(observations, deterministic=False)
        if self.action_noise is not None:
            actions = (actions + self.action_noise.draw(self.rng, self.n_envs)).clip(-1.0, 1.0)
        if self.config.random_exploration > 0:
            is_random = self.rng.random((self.n_envs, 1)) < self.config.random_exploration
            actions = np.where(is_random, self._random_actions(), actions)
        return actions

    def _random_actions(self) -> Array:
        return self.rng.uniform(-1.0, 1.0, (self.n_envs, self.n_actions)).astype(np.float32)

    def _to_env(self, actions: Array) -> Array:
        return self.policy.actor.to_env(actions)

    def _act(self, observations: Column, *, deterministic: bool) -> Array:
        return self._to_env(self._sampled(observations, deterministic=deterministic))

    def action_probability(self, observations: Column) -> tuple[Array, Array]:
        """Return mean and standard deviation of the Gaussian before squashing, each (n, actions)."""
        batch, is_single = self._batched(observations)
        mean, log_std = self._mean_and_log_std(self._normalized(batch))
        std = np.exp(log_std.clip(*LOG_STD_RANGE))
        return (mean[0], std[0]) if is_single else (mean, std)

    def _action_spec(self) -> ColumnSpec:
        return ColumnSpec((self.n_actions,), np.float32)

    # -- learning ---------------------------------------------------------------------------------------

    def _learn_from(self, batches: Mapping[str, Any], n_steps: int) -> None:
        learning_rate = self.learning_rate(self.progress)
        self.record("train/learning_rate", learning_rate)
        shape = (n_steps, 2, self.config.batch_size, self.n_actions)
        updates = self.n_updates + 1 + np.arange(n_steps)
        tau = np.where(updates % self.config.target_update_interval == 0, self.config.tau, 0.0)
        inputs = {
            **batches,
            "noise": self._tensors(self.rng.standard_normal(shape, dtype=np.float32)),
            "tau": self._tensors(tau.astype(np.float32)),
        }
        self._run_program(torch.tensor(learning_rate, device=self.device), inputs)

    def _update_step(self, state: State, shared: Tensor, inputs: Any) -> tuple[State, dict[str, Tensor]]:
        learning_rate, observations = shared, inputs["observations"]
        noise, next_noise = inputs["noise"].unbind(0)
        actor = self.actor.variables(state)
        actions, log_prob = actor(observations, noise)
        ent_coef = self.temperature.constants(state)().exp()
        targets = self.targets(state, inputs, next_noise, ent_coef)
        ent_coef_loss = torch.zeros_like(ent_coef)
        if self.learns_ent_coef:
            temperature = self.temperature.variables(state)
            ent_coef_loss = -(temperature() * (log_prob.detach() + self.target_entropy)).mean()
            state, _ = self.temperature.descend(state, temperature, ent_coef_loss, learning_rate)

        critics = self.critics.variables(state)
        values = critics(observations, inputs["actions"])
        critic_loss = 0.5 * (values - targets).square().mean(-1).sum()
        state, _ = self.critics.descend(state, critics, critic_loss, learning_rate)

        actor_values = self.critics.constants(state)(observations, actions).amin(0)
        actor_loss = (ent_coef * log_prob - actor_values).mean()
        state, _ = self.actor.descend(state, actor, actor_loss, learning_rate)

        state = self.critics.follow(state, "target", inputs["tau"])
        return state, {
            "actor_loss": actor_loss.detach(),
            "critic_loss": critic_loss.detach(),
            "ent_coef_loss": ent_coef_loss.detach(),
            "ent_coef": ent_coef,
            "q_value": values.mean().detach(),
        }

    def targets(self, state: State, batch: dict[str, Any], noise: Tensor, ent_coef: Tensor) -> Tensor:
        """Return r + γ·(min Q_target(s′, a′) − α·log π(a′|s′)), (batch,) (equations 5 and 7 of the paper)."""
        next_observations = batch["next_observations"]
        next_actions, next_log_prob = self.actor.constants(state)(next_observations, noise)
        next_values = self.critics.constants(state, "target")(next_observations, next_actions).amin(0)
        soft_values = next_values - ent_coef * next_log_prob
        return batch["rewards"] + self.config.gamma * (1.0 - batch["terminated"]) * soft_values

    def _copy_to_targets(self) -> None:
        self.program.state["target"].copy_(self.program.state["critics"])

    def _count_episodes(self, step: Any) -> None:
        super()._count_episodes(step)
        if self.action_noise is not None:
            self.action_noise.reset(step.finished)

    def _reset_envs(self, seeds: list[int], *, update_statistics: bool = True) -> None:
        super()._reset_envs(seeds, update_statistics=update_statistics)
        if self.action_noise is not None:
            self.action_noise.reset()

    def _suggestion(self) -> str:
        return (
            "; dqn, ppo2 and a2c take Discrete actions"
            if isinstance(self.action_space, spaces.Discrete)
            else ""
        )


def _entropy_coefficient(value: float | str) -> tuple[float, bool]:
    """Read a number, ``"auto"`` or ``"auto_0.1"``; return the first value and whether it is learned."""
    if not isinstance(value, str):
        return value, False
    name, separator, start = value.partition("_")
    try:
        first = float(start) if separator else 1.0
    except ValueError:
        first = 0.0
    if name != "auto" or first <= 0:
        raise ZooError(f"`algo.ent_coef={value}`: expected a number above 0, auto, or, say, auto_0.1")
    return first, True


def _target_entropy(value: float | str, n_actions: int) -> float:
    if not isinstance(value, str):
        return value
    if value != "auto":
        raise ZooError(f"`algo.target_entropy={value}`: expected a number or auto")
    return -float(n_actions)
