"""Q-learning by λ-returns of fresh rollouts (Gallici et al. 2025, https://arxiv.org/abs/2407.04811).

There is no critic, no replay and no target network: one gradient step on each rollout.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gymnasium import spaces
from torch import Tensor

from zoo.algorithms.algorithm import Algorithm
from zoo.algorithms.collector import Act
from zoo.algorithms.on_policy import OnPolicyAlgorithm, RolloutBatch, RolloutConfig
from zoo.algorithms.search_space import ranges, searched
from zoo.config.fields import hyperparameter, with_defaults
from zoo.optim.optimizers import Adam, Optimizer
from zoo.optim.update_runner import State, StepResult
from zoo.policies.distributions import gather
from zoo.policies.exploration import EpsilonGreedy
from zoo.policies.q_networks import QNetwork


@dataclass
@with_defaults(learning_rate=5e-3, n_steps=8)
class ToyConfig(RolloutConfig):
    """Hyperparameters of the toy."""

    q_lambda: float = hyperparameter(0.65, "weight of long returns in the targets", ge=0, le=1)
    epsilon: float = hyperparameter(0.1, "share of random actions", ge=0, le=1)


class ToyNetwork(QNetwork):
    """Action values, whose largest is the value of a state."""

    def values(self, inputs: dict[str, Any], state: Tensor | None = None) -> Tensor:
        return self.action_parameters(inputs, state)[0].amax(-1)


class Toy(OnPolicyAlgorithm):
    """Q-learning by λ-returns of rollouts."""

    name = "toy"
    config_class = ToyConfig
    supported_actions = (spaces.Discrete,)
    policy_class = ToyNetwork
    has_recurrence = False
    search_space = searched(Algorithm.search_space, ranges("even", q_lambda=(0.5, 1.0)))

    config: ToyConfig  # type: ignore[assignment]
    policy: ToyNetwork  # type: ignore[assignment]

    def _optimizer(self) -> Optimizer:
        return Adam()

    def _acts(self) -> Iterator[Act]:
        greedy = EpsilonGreedy(self.acting, lambda _: self.config.epsilon)
        while True:
            yield lambda inputs: {"actions": greedy.act(inputs, self.rng, self.progress)[0]}

    def update(self) -> None:
        rollout, values = self.collected(), self.values_of_steps()
        targets = values + self.advantages(values, self.config.q_lambda)
        rollout["returns"] = self._tensors(self.buffer.as_rows(targets))
        learning_rate = self.rates(self.progress)["learning_rate"]
        self.take_steps(self._gradient_step, rollout, learning_rate.reshape(1))

    def _gradient_step(self, state: State, rollout: RolloutBatch, learning_rate: Tensor) -> StepResult:
        network = self.updater.module(state)
        values = gather(network(rollout["observations"]), rollout["actions"])
        loss = 0.5 * (values - rollout["returns"]).square().mean()
        state, grad_norm = self.updater.step(state, network, loss, learning_rate)
        return StepResult(state, {"loss": loss.detach(), "grad_norm": grad_norm})
