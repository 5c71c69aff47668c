"""Deep Q-learning (Mnih et al. 2015, https://doi.org/10.1038/nature14236).

A network estimates the value of each action; the policy takes the best one, and a random one now and then.
The network moves towards reward plus discounted value of the next state, which a copy that is refreshed
only now and then estimates. Double Q-learning (van Hasselt et al. 2016) lets the online network choose the
next action that the copy values; a dueling network (Wang et al. 2016) splits state value and advantages.
Munchausen learning (Vieillard et al. 2020, https://arxiv.org/abs/2007.14430) values a softmax policy, and
adds its log-probability of the action to the reward.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor, nn

from zoo.algorithms.off_policy import (
    FEW_STEPS,
    HINDSIGHT,
    OffPolicyAlgorithm,
    OffPolicyConfig,
    ReplayBatch,
    mean_loss,
    td_errors,
    with_hindsight,
)
from zoo.algorithms.search_space import NET_ARCHS, choices, ranges, searched
from zoo.buffers.arrays import Arrays
from zoo.config.fields import build, hyperparameter, with_defaults
from zoo.config.schedules import Schedule
from zoo.errors import ZooError
from zoo.optim.optimizers import Adam, Parameters, Updater
from zoo.optim.update_runner import Rates, State, StepResult, tree_map
from zoo.policies.actor_critic import PolicyInput
from zoo.policies.distributions import gather
from zoo.policies.exploration import EpsilonGreedy, NoisyGreedy, ParameterNoiseGreedy
from zoo.policies.networks import factor_noise
from zoo.policies.q_networks import QNetwork

ROWS_AHEAD = 2048
"""Next states per forward pass of the target network; small enough for the CPU cache."""


@dataclass
class MunchausenConfig:
    """Hyperparameters of Munchausen learning."""

    alpha: float = hyperparameter(
        0.9, "share of the log-probability that is added to the reward; 0: soft Q-learning", ge=0, le=1
    )
    tau: float = hyperparameter(
        0.03, "temperature of the softmax policy; larger: closer to random", gt=0, is_finite=True
    )
    floor: float = hyperparameter(-1.0, "smallest value of tau times log-probability", le=0, is_finite=True)


@dataclass
@with_defaults(learning_rate=5e-4, learning_starts=1000, batch_size=32, tau=1.0)
class DQNConfig(OffPolicyConfig):
    """Hyperparameters of DQN."""

    double: bool = hyperparameter(True, "the online network chooses the next action (double Q-learning)")
    dueling: bool = hyperparameter(True, "separate branches for state value and advantages")
    target_update_interval: int = hyperparameter(
        500, "environment steps between updates of the target network", unit="environment steps", ge=1
    )
    exploration_fraction: float = hyperparameter(
        0.1, "part of training over which the exploration rate falls", gt=0, le=1
    )
    exploration_initial_eps: float = hyperparameter(1.0, "share of random actions at the start", ge=0, le=1)
    exploration_final_eps: float = hyperparameter(0.02, "share of random actions at the end", ge=0, le=1)
    parameter_noise: bool = hyperparameter(
        False, "explore by adaptive noise on the network's parameters instead of random actions"
    )
    max_grad_norm: float | None = hyperparameter(10.0, "bound of the gradient's norm; null: none", gt=0)
    noisy: bool = hyperparameter(
        False, "explore by layers with learned noise (noisy networks); exploration_… have no effect then"
    )
    noisy_std: float = hyperparameter(
        0.5, "first size of that noise; larger: explores more, for longer", ge=0, is_finite=True
    )
    munchausen: MunchausenConfig | dict[str, Any] | None = hyperparameter(
        None,
        "reward the log of a softmax policy, which targets value then:"
        " {alpha: 0.9, tau: 0.03, floor: -1}; double has no effect",
    )

    def __post_init__(self) -> None:
        if self.noisy and self.parameter_noise:
            raise ZooError("`algo.noisy` explores instead of `algo.parameter_noise`; leave one of them out")
        if self.noisy_std != DQNConfig.noisy_std and not self.noisy:
            raise ZooError(f"`algo.noisy_std={self.noisy_std}` needs `algo.noisy=true`")


class DQN(OffPolicyAlgorithm):
    """Deep Q-learning, by default double and dueling; both off is Stable-Baselines3's."""

    name = "dqn"
    config_class = DQNConfig
    search_space = searched(
        OffPolicyAlgorithm.search_space,
        ranges("log falling", learning_rate=(1e-5, 1e-2)),
        ranges("powers", batch_size=(16, 512)),
        ranges("log", FEW_STEPS, learning_starts=(100, 100_000)),
        ranges("log", target_update_interval=(1, 20_000)),
        ranges("even", exploration_fraction=(0.01, 0.5), exploration_final_eps=(0.0, 0.2)),
        choices(double=[True, False], dueling=[True, False]),
        choices(buffer_size=[10_000, 50_000, 100_000, 1_000_000]),
        policy=choices(net_arch=NET_ARCHS),
    )
    supported_actions = (spaces.Discrete,)
    policy_class: ClassVar[type[nn.Module]] = QNetwork
    targets_of: ClassVar[dict[str, str]] = {"target": "q_network"}

    config: DQNConfig
    policy: QNetwork
    exploration: EpsilonGreedy

    def _policy_options(self) -> dict[str, Any]:
        config = self.config
        return {"dueling": config.dueling, "noisy_std": config.noisy_std if config.noisy else None}

    def _make_state(self) -> State:
        munchausen = self.config.munchausen
        if isinstance(munchausen, Mapping):
            munchausen = build(MunchausenConfig, munchausen, "algo.munchausen")
        self.munchausen = munchausen
        self.updater = Updater(
            Parameters("q_network", self.policy),
            Adam(eps=self._adam_eps()),
            max_grad_norm=self.config.max_grad_norm,
        )
        return self._initial_state(self.updater)

    def _adam_eps(self) -> float:
        return Adam.eps

    def _make_exploration(self) -> EpsilonGreedy:
        config = self.config
        start, end = config.exploration_initial_eps, config.exploration_final_eps
        rate = Schedule("linear", start, end, config.exploration_fraction)
        if config.parameter_noise:
            return ParameterNoiseGreedy(self.acting, self.updater.parameters, rate)
        return self._greedy(rate)

    def _greedy(self, rate: Callable[[float], float]) -> EpsilonGreedy:
        return NoisyGreedy(self.acting) if self.config.noisy else EpsilonGreedy(self.acting, rate)

    def _act(self, policy_input: PolicyInput, state: Any, *, deterministic: bool) -> tuple[Arrays, Any]:
        if deterministic:
            return self.acting.act(policy_input, None, state)
        rate = self.config.exploration_final_eps  # of a stochastic `predict`
        greedy = self._greedy(lambda _: rate)
        return greedy.act(policy_input, self.predict_rng, self.progress, state)

    def update(self) -> None:
        interval = self.config.target_update_interval
        n_due = self.num_timesteps // interval - (self.num_timesteps - self._collected) // interval
        # As Stable-Baselines3, before the gradient steps; several due ones at once, as nothing moves between.
        if n_due:
            tau = 1.0 - (1.0 - self.config.tau) ** n_due
            self.updater.parameters.polyak_update(self.runner.state, "target", tau)
        super().update()
        self.record("rollout/exploration_rate", self.exploration.rate(self.progress))
        if isinstance(self.exploration, ParameterNoiseGreedy):
            self.record("train/parameter_noise_std", self.exploration.perturbed.std)

    def _learn_from(self, batches: ReplayBatch, n_steps: int) -> Mapping[str, Tensor]:
        draws = self._draws(n_steps)
        together = 2 ** (min(n_steps, max(1, ROWS_AHEAD // self.config.batch_size)).bit_length() - 1)
        has_statistics = next(self.policy.buffers(), None) is not None  # which gradient steps may move
        if not draws and together > 1 and not has_statistics:
            draws = {"target_values": self._target_values_ahead(batches, together)}
        batches = {**batches, **draws}  # type: ignore[typeddict-item]
        return self.take_steps(self._gradient_step, self.rates(self._progress_before), batches)

    def _draws(self, n_steps: int) -> dict[str, Tensor]:
        """Return rows with the random numbers of each step's passes; noise for both networks."""
        if not self.config.noisy:
            return {}
        shape = n_steps, 2, self.policy.noise_size
        return {"noise": self._tensors(factor_noise(self.rng, shape))}

    def _bytes_ahead(self) -> int:
        assert isinstance(self.action_space, spaces.Discrete)
        n_values = int(self.action_space.n) if self.config.double else 1
        return 2 * 4 * n_values  # in parts, and put together

    def _target_values_ahead(self, batches: ReplayBatch, together: int) -> Tensor:
        """Return `_target_network_values` of batches (steps, batch, …), so many at a time: that is faster.

        Its parameters stand still within an update. Every number of batches has a graph of its own, so these
        are powers of two; the last ones overlap.
        """
        n_steps, batch_size = batches["rewards"].shape
        next_input = {
            name: batches[name] for name in ("next_observations", "next_action_masks") if name in batches
        }
        parts = []
        for start in [*range(0, n_steps - together, together), n_steps - together]:
            rows = slice(start, start + together)
            joined = tree_map(lambda tensor: tensor[rows].flatten(0, 1), next_input)  # noqa: B023
            estimated = self.runner.call(self._target_network_values, joined)
            parts.append(estimated.unflatten(0, (together, batch_size)))
        return torch.cat([*parts[:-1], parts[-1][len(parts) * together - n_steps :]])

    def _gradient_step(self, state: State, rates: Rates, batch: ReplayBatch) -> StepResult:
        network = self.updater.module(state)
        drawn = noise_of(batch, ONLINE) | fractions_of(batch, "fractions")
        estimates = network(batch["observations"], **drawn)
        values = self._values_of_actions(estimates, batch["actions"])
        losses, errors = self._losses_and_errors(values, self.targets(state, batch), batch)
        loss = mean_loss(losses, batch.get("weights"))
        state, grad_norm = self.updater.step(state, network, loss, rates["learning_rate"])
        q_value = self.policy.action_values(values.detach()[..., None]).mean()
        metrics = {"loss": loss.detach(), "q_value": q_value, "grad_norm": grad_norm}
        return StepResult(state, metrics, td_errors(batch, errors))

    def _values_of_actions(self, estimates: Tensor, actions: Tensor) -> Tensor:
        """Select the estimates (batch, …, actions) of these actions (batch,)."""
        return gather(estimates, actions)

    def _losses_and_errors(
        self, values: Tensor, targets: Tensor, batch: ReplayBatch
    ) -> tuple[Tensor, Tensor]:
        """Return the loss and the temporal-difference error of each sample, both (batch,)."""
        return F.smooth_l1_loss(values, targets, reduction="none"), values - targets

    def targets(self, state: State, batch: ReplayBatch) -> Tensor:
        """Return r + γ·Q_target(s′, a′), (batch,), of the action a′ that the deciding network chooses.

        With Munchausen learning the value of s′ is the soft one, and r has a share of log π(a|s), clipped.
        Where ``batch`` has ``target_values``, that is what was computed of these next observations ahead.
        """
        values = batch.get("target_values")
        if values is None:
            values = self._target_network_values(state, batch)
        if self.munchausen is not None:
            with self.policy_mode.evaluation():
                target = self.updater.functional(state, "target")
                estimates = target(batch["observations"], **noise_of(batch, TARGET))
            log_policy = gather(self._log_policy(estimates, batch.get("action_masks")), batch["actions"])
            bonus = self.munchausen.alpha * log_policy.clamp(self.munchausen.floor, 0.0)
            batch = {**batch, "rewards": batch["rewards"] + bonus}
        elif self.config.double:
            with self.policy_mode.evaluation():
                online = self.updater.functional(state)
                deciding = online(batch["next_observations"], **noise_of(batch, ONLINE))
            values = self._values_of_best_actions(values, deciding, batch)
        return self._bootstrapped(batch, values)

    def _target_network_values(self, state: State, batch: ReplayBatch) -> Tensor:
        """Return Q_target(s′, a′), (batch,); of all actions, (batch, actions), where it does not choose.

        With Munchausen learning it is Σ π(a′|s′)·(Q_target(s′, a′) − τ·log π(a′|s′)) (equation 1).
        """
        with self.policy_mode.evaluation():
            target = self.updater.functional(state, "target")
            noise, fractions = noise_of(batch, TARGET), fractions_of(batch, "target_fractions")
            estimates = deciding = target(batch["next_observations"], **noise, **fractions)
            if fractions and (self.munchausen is not None or not self.config.double):
                deciding = target(batch["next_observations"], **noise)
        if self.munchausen is not None:
            log_policy = self._log_policy(deciding, batch.get("next_action_masks"))
            if estimates.dim() > 2:  # of quantiles
                log_policy = log_policy[:, None]
            policy = (log_policy / self.munchausen.tau).exp()
            return (policy * (estimates - log_policy)).sum(-1)
        return estimates if self.config.double else self._values_of_best_actions(estimates, deciding, batch)

    def _log_policy(self, estimates: Tensor, masks: Tensor | None) -> Tensor:
        """Return τ·log π (batch, actions) of the softmax of action values divided by the temperature τ."""
        assert self.munchausen is not None
        values = self.policy.head.masked(self.policy.action_values(estimates), masks)
        tau = self.munchausen.tau
        best = values.amax(-1, keepdim=True)  # taken off first: it may be large beside the differences
        return tau * torch.log_softmax((values - best) / tau, -1)

    def _values_of_best_actions(self, estimates: Tensor, deciding: Tensor, batch: ReplayBatch) -> Tensor:
        """Return the estimates of the actions which are best, of those allowed, by the deciding ones."""
        values = self.policy.action_values(deciding)
        if "next_action_masks" in batch:
            values = self.policy.head.masked(values, batch["next_action_masks"])
        return self._values_of_actions(estimates, values.argmax(1))


ONLINE, TARGET = 0, 1
"""Rows of a step's noise: for all passes of the online network, and of the target network."""


def noise_of(batch: ReplayBatch, network: int) -> dict[str, Tensor]:
    """Return the noise argument of a network's passes in a gradient step, where it takes any."""
    return {"noise": batch["noise"][network]} if "noise" in batch else {}


def fractions_of(batch: ReplayBatch, name: str) -> dict[str, Tensor]:
    """Return the fractions argument of a network's pass, where fractions of this name were drawn."""
    return {"fractions": batch[name]} if name in batch else {}  # type: ignore[literal-required]


class HerDQN(DQN):
    """DQN with hindsight replay."""

    of_preset = "her_dqn"
    usual_replay = HINDSIGHT
    search_space = with_hindsight(DQN)
