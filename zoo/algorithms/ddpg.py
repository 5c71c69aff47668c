"""Deep deterministic policy gradient (Lillicrap et al. 2016, https://arxiv.org/abs/1509.02971).

A critic estimates the value of an action; the actor, which gives one action for an observation, climbs the
gradient of that value. Target networks of both follow slowly. Exploration is by noise on the actions or,
adaptively, on the actor's parameters. The critic may learn in running units of returns, with pop-art or
without.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from zoo.algorithms.off_policy import (
    HINDSIGHT,
    NOISES,
    ContinuousAlgorithm,
    ContinuousConfig,
    ReplayBatch,
    critic_passes,
    mean_loss,
    td_errors,
    with_hindsight,
)
from zoo.algorithms.search_space import choices, searched
from zoo.buffers.arrays import transform
from zoo.config.fields import build, hyperparameter, with_defaults
from zoo.errors import ZooError
from zoo.optim.optimizers import Parameters, Updater, weight_decay
from zoo.optim.popart import ReturnNormalizer, RunningReturnNormalizer, output_layer
from zoo.optim.update_runner import Rates, State, StepResult
from zoo.policies.continuous import DeterministicPolicy
from zoo.policies.exploration import Exploration, ParameterNoiseActor, ParameterNoiseConfig, PerturbedPolicy

LAST_LAYER_RANGE = 3e-3
"""Within ± this lie the first weights of the last layers, so that first actions and values are near zero."""


@dataclass
@with_defaults(
    learning_rate=1e-3,
    actor_learning_rate=1e-4,
    batch_size=128,
    train_freq=100,
    gradient_steps=50,
    tau=0.001,
)
class DDPGConfig(ContinuousConfig):
    """Hyperparameters of DDPG; ``learning_rate`` is the critic's."""

    critic_l2_reg: float = hyperparameter(
        0.0,
        "weight of half the critic's squared weights, but for biases and the last layer",
        ge=0,
        is_finite=True,
    )
    max_grad_norm: float | None = hyperparameter(
        None, "bound of the norm of each network's gradient; null: none", gt=0
    )
    reward_scale: float = hyperparameter(
        1.0, "factor of the rewards that are learned from", gt=0, is_finite=True
    )
    normalize_returns: bool = hyperparameter(
        False, "the critic learns in units of the running mean and standard deviation of its targets"
    )
    enable_popart: bool = hyperparameter(
        False, "its last layer changes with the units, so that its values don't (with normalize_returns)"
    )
    return_range: list[float] | None = hyperparameter(
        None, "[low, high] to which the critic's targets are clipped, in its own units; null: none"
    )
    parameter_noise: ParameterNoiseConfig | dict[str, Any] | None = hyperparameter(
        None,
        "adaptive noise on the actor's parameters: "
        "{initial_std: 0.1, desired_action_std: 0.1, adaptation_coefficient: 1.01}",
    )

    def __post_init__(self) -> None:
        if self.enable_popart and not self.normalize_returns:
            raise ZooError("`algo.enable_popart=true` needs `algo.normalize_returns=true`")
        bounds = self.return_range
        if bounds is not None and (len(bounds) != 2 or not bounds[0] < bounds[1]):
            raise ZooError(f"`algo.return_range={bounds}`: expected [low, high]")


class DDPGPolicy(DeterministicPolicy):
    """Actor and critic."""

    def __init__(self, *spaces_and_config: Any) -> None:
        super().__init__(*spaces_and_config, n_critics=1, last_layer_range=LAST_LAYER_RANGE)


class DDPG(ContinuousAlgorithm):
    """Deep deterministic policy gradient: noise on actions or parameters, pop-art, each on a switch."""

    name = "ddpg"
    config_class = DDPGConfig
    search_space = searched(
        ContinuousAlgorithm.search_space,
        NOISES,
        choices(actor_learning_rate=[None, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3]),
        choices(critic_l2_reg=[0.0, 0.001, 0.01]),
    )
    policy_class = DDPGPolicy
    targets_of: ClassVar[dict[str, str]] = {"target_actor": "actor", "target_critics": "critics"}

    config: DDPGConfig
    policy: DDPGPolicy
    return_normalizer: ReturnNormalizer
    _is_to_adapt = False

    def _make_state(self) -> State:
        config, policy = self.config, self.policy
        optimizer, bound = self._make_optimizer(), config.max_grad_norm
        self.actor_updater = Updater(Parameters("actor", policy.actor), optimizer, max_grad_norm=bound)
        self.critics_updater = Updater(Parameters("critics", policy.critics), optimizer, max_grad_norm=bound)
        critic = self.critics_updater.parameters
        self.return_normalizer = ReturnNormalizer()
        if config.normalize_returns:
            self.return_normalizer = RunningReturnNormalizer(
                critic, ("critics", "target_critics"), preserve=config.enable_popart, prefix="critics."
            )
        if config.critic_l2_reg:
            self._last_weights = f"{output_layer(critic.module)}.weight"
        state = self._initial_state(self.actor_updater, self.critics_updater)
        return State({**state, **self.return_normalizer.initial_state()})

    def _make_exploration(self) -> Exploration:
        settings = self.config.parameter_noise
        if settings is None:
            return super()._make_exploration()
        if isinstance(settings, Mapping):
            settings = build(ParameterNoiseConfig, settings, "algo.parameter_noise")
        perturbed = PerturbedPolicy(self.acting, self.actor_updater.parameters, settings.initial_std)
        share = self.config.random_exploration
        return ParameterNoiseActor(perturbed, self._action_noise(), share, settings)

    def update(self) -> None:
        self._is_to_adapt = isinstance(self.exploration, ParameterNoiseActor)
        super().update()

    def _learn_from(self, batches: ReplayBatch, n_steps: int) -> Mapping[str, Tensor]:
        if self._is_to_adapt:  # once in an update, by the first batch, before the actor's gradient steps
            assert isinstance(self.exploration, ParameterNoiseActor)
            observations = transform(lambda rows: rows[0].cpu().numpy(), batches["observations"])
            for name, value in self.exploration.adapt({"observations": observations}, self.rng).items():
                self.record(f"train/{name}", value)
            self._is_to_adapt = False
        rates = self.rates(self._progress_before)
        return self.take_steps(self._gradient_step, rates, {**batches, **self._critic_noise(n_steps)})

    def _gradient_step(self, state: State, rates: Rates, batch: ReplayBatch) -> StepResult:
        observations, weights = batch["observations"], batch.get("weights")
        _, for_critics, for_actor = critic_passes(batch)
        targets = self.targets(state, batch)
        state = self.return_normalizer.update(state, targets)

        actor = self.actor_updater.module(state)
        actor_outputs = self._outputs(state, "critics", observations, actor(observations), **for_actor)
        actor_loss = -mean_loss(self.return_normalizer.denormalize(state, actor_outputs), weights)
        actor_gradient = self.actor_updater.gradient(actor, actor_loss)

        critic = self.critics_updater.module(state)
        outputs = critic(observations, batch["actions"], **for_critics).squeeze(0)
        scaled_targets = self.return_normalizer.normalize(state, targets)
        if self.config.return_range is not None:
            scaled_targets = scaled_targets.clamp(*self.config.return_range)
        errors = outputs - scaled_targets
        critic_loss = mean_loss(errors.square(), weights)
        critic_gradient = self.critics_updater.gradient(critic, critic_loss)
        if self.config.critic_l2_reg:
            vector, parameters = state["critics"], self.critics_updater.parameters
            decay = weight_decay(parameters, vector, self.config.critic_l2_reg, spared=[self._last_weights])
            critic_loss = critic_loss + 0.5 * (decay * vector).sum()
            critic_gradient = critic_gradient + decay

        actor_rate = rates.get("actor_learning_rate", rates["learning_rate"])
        state = critic.moved(actor.moved(state))
        state, _ = self.critics_updater.apply_gradient(state, critic_gradient, rates["learning_rate"])
        state, _ = self.actor_updater.apply_gradient(state, actor_gradient, actor_rate)
        state = self.critics_updater.parameters.polyak_update(state, "target_critics", self.config.tau)
        state = self.actor_updater.parameters.polyak_update(state, "target_actor", self.config.tau)
        values = self.return_normalizer.denormalize(state, outputs.detach())
        metrics = {
            "actor_loss": actor_loss.detach(),
            "critic_loss": critic_loss.detach(),
            "q_value": values.mean(),
            **self.return_normalizer.metrics(state),
        }
        return StepResult(state, metrics, td_errors(batch, values - targets))

    def targets(self, state: State, batch: ReplayBatch) -> Tensor:
        """Return r + γ·Q_target(s′, π_target(s′)) as returns (batch,) (algorithm 1 of the paper)."""
        next_observations = batch["next_observations"]
        with self.policy_mode.evaluation():
            next_actions = self.actor_updater.functional(state, "target_actor")(next_observations)
            next_outputs = self._outputs(
                state, "target_critics", next_observations, next_actions, **critic_passes(batch)[0]
            )
        scaled: ReplayBatch = {**batch, "rewards": self.config.reward_scale * batch["rewards"]}
        return self._bootstrapped(scaled, self.return_normalizer.denormalize(state, next_outputs))

    def _outputs(
        self, state: State, name: str, observations: Any, actions: Tensor, **noise: Tensor
    ) -> Tensor:
        """Return the outputs (batch,) of the critic with the parameters of this name, normalised."""
        return self.critics_updater.functional(state, name)(observations, actions, **noise).squeeze(0)


class HerDDPG(DDPG):
    """DDPG with hindsight replay."""

    of_preset = "her_ddpg"
    usual_replay = HINDSIGHT
    search_space = with_hindsight(DDPG)
