"""Twin delayed deep deterministic policy gradients (Fujimoto et al. 2018, https://arxiv.org/abs/1802.09477).

A deterministic actor climbs the value that a critic gives to its actions. Three things keep it from
exploiting the critic's errors: targets take the smaller of two critics, actions in targets are smoothed with
clipped noise, and the actor and all targets move only after every few steps of the critics.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from zoo.algorithms.off_policy import (
    HINDSIGHT,
    NOISES,
    ContinuousAlgorithm,
    ReplayBatch,
    SeveralCriticsAlgorithm,
    SeveralCriticsConfig,
    chosen_critics,
    critic_passes,
    mean_loss,
    with_hindsight,
)
from zoo.algorithms.search_space import choices, ranges, searched
from zoo.config.fields import hyperparameter, with_defaults
from zoo.optim.optimizers import Parameters, Updater
from zoo.optim.update_runner import Rates, State, StepResult, tree_row
from zoo.policies.continuous import DeterministicPolicy
from zoo.policies.exploration import ActionNoiseConfig


@dataclass
@with_defaults(batch_size=128, train_freq=100, gradient_steps=100, policy_delay=2)
class TD3Config(SeveralCriticsConfig):
    """Hyperparameters of TD3; after ``policy_delay`` steps of the critics all targets move, too."""

    target_policy_noise: float = hyperparameter(
        0.2, "standard deviation of the noise that smooths the actions in targets", ge=0, is_finite=True
    )
    target_noise_clip: float = hyperparameter(0.5, "largest absolute value of that noise", ge=0)


class TD3Policy(DeterministicPolicy):
    """Actor and critics."""


class TD3(SeveralCriticsAlgorithm):
    """Twin delayed deep deterministic policy gradient: delayed actor, smoothed targets.

    It updates 100 times after every 100 steps, as Stable-Baselines does. Stable-Baselines3's values are
    `buffer_size=1e6, batch_size=256, learning_rate=1e-3, train_freq=1, gradient_steps=1`. The networks are
    400-300 by default as there, and as in the paper; Stable-Baselines' are 64-64. Without `action_noise`
    nothing explores once `learning_starts` is over, as in both.
    """

    name = "td3"
    config_class = TD3Config
    search_space = searched(ContinuousAlgorithm.search_space, NOISES)
    policy_class = TD3Policy
    targets_of: ClassVar[dict[str, str]] = {"target_actor": "actor", "target_critics": "critics"}

    config: TD3Config
    policy: TD3Policy

    def _make_state(self) -> State:
        self.actor_updater = Updater(Parameters("actor", self.policy.actor), self._make_optimizer())
        self.critics_updater = Updater(Parameters("critics", self.policy.critics), self._make_optimizer())
        return self._initial_state(self.actor_updater, self.critics_updater)

    def _learn_from(self, batches: ReplayBatch, n_steps: int) -> Mapping[str, Tensor]:
        shape = (n_steps, self.config.batch_size, *self.action_adapter.spec.shape)
        noise = self.config.target_policy_noise * self.rng.standard_normal(shape, dtype=np.float32)
        limit = self.config.target_noise_clip
        samples = {
            **batches,
            **self._critic_noise(n_steps),
            "noise": self._tensors(noise.clip(-limit, limit)),
            **self._target_draws(n_steps),
        }
        return self._take_rounds(samples, n_steps, self.config.policy_delay)

    def _round(self, state: State, rates: Rates, batches: ReplayBatch) -> StepResult:
        """Take a step of the critics on each batch, then one of the actor on the last; all targets follow."""
        state, metrics, outputs = self._critic_steps(state, rates, batches)
        batch = tree_row(batches, -1)
        actor = self.actor_updater.module(state)
        critics = self.critics_updater.functional(state)
        actions = actor(batch["observations"])
        first = 1 if self.config.actor_critics is None else None
        values = critics(batch["observations"], actions, first=first, **critic_passes(batch)[2])
        actor_loss = -mean_loss(self._actor_values(values), batch.get("weights"))
        actor_rate = rates.get("actor_learning_rate", rates["learning_rate"])
        state, _ = self.actor_updater.step(state, actor, actor_loss, actor_rate)
        if "target_actor" in self.targets_of:
            state = self.actor_updater.parameters.polyak_update(state, "target_actor", self.config.tau)
        state = self.critics_updater.parameters.polyak_update(state, "target_critics", self.config.tau)
        return StepResult(state, {"actor_loss": actor_loss.detach(), **metrics}, outputs)

    def targets(self, state: State, batch: ReplayBatch) -> Tensor:
        """Return r + γ·min Q_target(s′, π_target(s′) + ε), (batch,) (algorithm 1 of the paper)."""
        next_observations = batch["next_observations"]
        acting = "target_actor" if "target_actor" in self.targets_of else "actor"
        with self.policy_mode.evaluation():
            next_actions = self.actor_updater.functional(state, acting)(next_observations)
            smoothed = (next_actions + batch["noise"]).clamp(-1.0, 1.0)
            target = self.critics_updater.functional(state, "target_critics")
            next_values = target(next_observations, smoothed, **critic_passes(batch)[0])
        next_values = chosen_critics(next_values, batch)
        if self.distribution is not None:
            return self._distribution_targets(batch, next_values, 0.0)
        return self._bootstrapped(batch, next_values.amin(0))


class HerTD3(TD3):
    """TD3 with hindsight replay."""

    of_preset = "her_td3"
    usual_replay = HINDSIGHT
    search_space = with_hindsight(TD3)


@dataclass
@with_defaults(
    learning_rate=3e-4,
    buffer_size=6_553_600,
    batch_size=32_768,
    learning_starts=1_280,
    train_freq=128,
    gradient_steps=2,
    tau=0.1,
    optimizer="adamw",
    weight_decay=0.1,
    target_policy_noise=0.001,
    actor_critics="min",
    critic_loss="categorical",
    value_range=[-250.0, 250.0],
    action_noise=asdict(ActionNoiseConfig(std=0.001, std_max=0.4)),
)
class FastTD3Config(TD3Config):
    """Hyperparameters of FastTD3, for 128 environments."""


class FastTD3Policy(TD3Policy):
    """An actor of 512-256-128, and critics of 1024-512-256."""

    actor_widths = (512, 256, 128)
    critic_widths = (1024, 512, 256)


class FastTD3(TD3):
    """TD3 with large batches, critics of distributions and many environments (Seo et al. 2025)."""

    of_preset = "fast_td3"
    usual_normalize: ClassVar[dict[str, Any]] = {"rewards": False, "clip_obs": float("inf")}
    config_class = FastTD3Config
    policy_class = FastTD3Policy
    search_space: ClassVar[dict[str, Any]] = {
        "algo": ranges("log falling", learning_rate=(1e-4, 3e-3))
        | ranges("powers", batch_size=(256, 32_768))
        | ranges("log", tau=(0.01, 0.3))
        | choices(gradient_steps=[2, 4, 8]),
    }
    targets_of: ClassVar[dict[str, str]] = {"target_critics": "critics"}
