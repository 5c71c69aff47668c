"""PQN: parallelised Q-network (Gallici et al. 2025, https://arxiv.org/abs/2407.04811).

Q-learning on fresh rollouts of many environments, without replay and without target networks. Each rollout
gives λ-returns, by the network that collected it; several epochs of minibatches then move the network towards
them. What keeps this stable is layer normalisation, the optimizer RAdam, and the number of environments.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from gymnasium import spaces
from torch import Tensor, nn

from zoo.algorithms.algorithm import Algorithm
from zoo.algorithms.collector import Act
from zoo.algorithms.on_policy import IN_ROLLOUT, OnPolicyAlgorithm, RolloutBatch, RolloutConfig
from zoo.algorithms.search_space import NET_ARCHS, choices, ranges, searched
from zoo.buffers.arrays import Arrays, transform
from zoo.config.fields import hyperparameter, with_defaults
from zoo.config.schedules import Schedule
from zoo.errors import ZooWarning
from zoo.optim.optimizers import OPTIMIZERS, Optimizer, adam_like
from zoo.optim.update_runner import State, StepResult
from zoo.policies.actor_critic import PolicyInput
from zoo.policies.distributions import gather
from zoo.policies.exploration import EpsilonGreedy
from zoo.policies.q_networks import NormalizedQNetwork

FEW_ENVS = 16


@dataclass
@with_defaults(learning_rate="lin_5e-4", n_steps=32, max_grad_norm=10.0)
class PQNConfig(RolloutConfig):
    """Hyperparameters of PQN, by default the paper's for MinAtar, which suit 128 environments."""

    q_lambda: float = hyperparameter(
        0.65, "bias (0: one-step targets) against variance (1: n-step returns) of the targets", ge=0, le=1
    )
    batch_size: int = hyperparameter(128, "size of a minibatch", unit="steps", ge=1)
    n_epochs: int = hyperparameter(2, "passes over each rollout", ge=1)
    exploration_fraction: float = hyperparameter(
        0.1, "part of training over which the exploration rate falls", gt=0, le=1
    )
    exploration_initial_eps: float = hyperparameter(1.0, "share of random actions at the start", ge=0, le=1)
    exploration_final_eps: float = hyperparameter(0.05, "share of random actions at the end", ge=0, le=1)
    optimizer: str = hyperparameter("radam", "optimizer of the network", choices=OPTIMIZERS)


class PQN(OnPolicyAlgorithm):
    """Q-learning by λ-returns of many environments, without replay and target networks."""

    name = "pqn"
    config_class: ClassVar[type[Any]] = PQNConfig
    search_space = searched(
        Algorithm.search_space,
        ranges("log falling", learning_rate=(1e-5, 1e-2)),
        ranges("log complement", gamma=(0.9, 0.9999)),
        ranges("powers", n_steps=(8, 256)),
        ranges("powers", IN_ROLLOUT, batch_size=(32, 1024)),
        ranges("even", n_epochs=(1, 8), q_lambda=(0.0, 1.0)),
        ranges("even", exploration_fraction=(0.01, 0.5), exploration_final_eps=(0.0, 0.2)),
        policy=choices(net_arch=NET_ARCHS),
    )
    supported_actions = (spaces.Discrete,)
    policy_class: ClassVar[type[nn.Module]] = NormalizedQNetwork

    config: PQNConfig  # type: ignore[assignment]
    policy: NormalizedQNetwork  # type: ignore[assignment]

    def _check_budget(self, n_steps: int) -> None:
        n_envs = self.n_envs * self.distributed.size
        if n_envs < FEW_ENVS:
            message = (
                f"pqn has no replay buffer and needs many environments: n_envs={n_envs} may learn nothing"
            )
            warnings.warn(f"{message}, take 32 to 128", ZooWarning, stacklevel=4)

    def _optimizer(self) -> Optimizer:
        return adam_like(self.config.optimizer, (0.9, 0.999), None)

    # -- acting -----------------------------------------------------------------------------------------

    def exploration_rate(self, progress: float) -> float:
        """Return the share of random actions when ``progress`` of the training, from 0 to 1, is done."""
        config = self.config
        start, end = config.exploration_initial_eps, config.exploration_final_eps
        return Schedule("linear", start, end, config.exploration_fraction)(progress)

    def _acts(self) -> Iterator[Act]:
        greedy = EpsilonGreedy(self.acting, self.exploration_rate)
        choose = lambda inputs, state: greedy.act(inputs, self.rng, self.progress, state)  # noqa: E731
        while True:
            yield lambda inputs: self.recurrent.act(self.collector, inputs, choose)

    def _act(self, policy_input: PolicyInput, state: Any, *, deterministic: bool) -> tuple[Arrays, Any]:
        if deterministic:
            return self.acting.act(policy_input, None, state)
        greedy = EpsilonGreedy(self.acting, lambda _: self.config.exploration_final_eps)
        return greedy.act(policy_input, self.predict_rng, self.progress, state)

    # -- learning ---------------------------------------------------------------------------------------

    def update(self) -> None:
        """Take a gradient step on each minibatch of each epoch, towards the λ-returns of the rollout."""
        rollout, values = self.collected(), self.values_of_steps()
        advantages = self.advantages(values, self.config.q_lambda)
        if self.reward_model is not None:
            advantages = self.reward_model.advantages(advantages)
        targets = values + advantages
        rollout["returns"] = self._tensors(self.buffer.as_rows(targets))
        minibatches = self.buffer.minibatch_rows(self.rng, self.config.n_epochs, *self._minibatches())
        shared = {"rollout": rollout, **self.rates(self._progress_before)}
        self.take_steps(self._gradient_step, shared, self._tensors(minibatches))
        self.record("rollout/exploration_rate", self.exploration_rate(self.progress))

    def _gradient_step(self, state: State, shared: Any, rows: Tensor) -> StepResult:
        network = self.updater.module(state)
        batch: RolloutBatch = transform(lambda column: column[rows], shared["rollout"])
        values = gather(network(batch, batch.get("states"))[0], batch["actions"])
        loss = 0.5 * (values - batch["returns"]).square().mean()
        state, grad_norm = self.updater.step(state, network, loss, shared["learning_rate"])
        metrics = {"loss": loss.detach(), "q_value": values.mean().detach(), "grad_norm": grad_norm}
        return StepResult(state, metrics)

    def gradient_steps_in(self, total_timesteps: int) -> float:
        n_rollouts = total_timesteps / (self.buffer.n_steps * self.n_envs)
        return n_rollouts * self.config.n_epochs * self._minibatches()[0]

    def _batch_size(self) -> int:
        return self._minibatches()[1] * self.buffer.steps_a_row
