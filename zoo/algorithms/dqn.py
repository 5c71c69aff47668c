"""Deep Q-learning (Mnih et al. 2015, https://doi.org/10.1038/nature14236).

A network estimates the value of each action; the policy takes the best one, and a random one now and then.
The network moves towards reward plus discounted value of the next state, which a copy that is refreshed
only now and then estimates. Double Q-learning (van Hasselt et al. 2016) lets the online network choose the
next action that the copy values; a dueling network (Wang et al. 2016) splits state value and advantages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor, nn

from zoo.algorithms.base import Array
from zoo.algorithms.off_policy import OffPolicyAlgorithm, OffPolicyConfig
from zoo.config.fields import Schedule, hyperparameter
from zoo.memory.columns import Column, ColumnSpec
from zoo.optim import schedules
from zoo.optim.optimizers import Adam
from zoo.optim.schedules import Schedule as ParsedSchedule
from zoo.optim.trainable import State, Trainable
from zoo.policies.distributions import pick
from zoo.policies.making import make_policy
from zoo.policies.q_network import QNetwork


@dataclass
class DQNConfig(OffPolicyConfig):
    """Hyperparameters of DQN."""

    learning_rate: Schedule = hyperparameter(5e-4, "step size of Adam", ge=0)
    learning_starts: int = hyperparameter(
        1000, "random steps before the first update", unit="environment steps", ge=0
    )
    batch_size: int = hyperparameter(32, "transitions in a gradient step", unit="transitions", ge=1)
    double: bool = hyperparameter(True, "the online network chooses the next action (double Q-learning)")
    dueling: bool = hyperparameter(True, "separate branches for state value and advantages")
    target_update_interval: int = hyperparameter(
        500, "environment steps between updates of the target network", unit="environment steps", ge=1
    )
    tau: float = hyperparameter(1.0, "how far a target update goes; 1: a copy", gt=0, le=1)
    exploration_fraction: float = hyperparameter(
        0.1, "part of training over which the exploration rate falls", gt=0, le=1
    )
    exploration_initial_eps: float = hyperparameter(1.0, "share of random actions at the start", ge=0, le=1)
    exploration_final_eps: float = hyperparameter(0.02, "share of random actions at the end", ge=0, le=1)
    max_grad_norm: float | None = hyperparameter(10.0, "bound of the gradient's norm; null: none", gt=0)


class DQN(OffPolicyAlgorithm[DQNConfig]):
    """DQN, by default double and dueling as in Stable-Baselines; both off is Stable-Baselines3's."""

    name = "dqn"
    config_class = DQNConfig
    compiling_saves = 0.7e-3
    supported_actions = (spaces.Discrete,)

    policy: QNetwork

    def _make_policy(self) -> nn.Module:
        dueling = self.config.dueling
        return make_policy(
            QNetwork, self.observation_space, self.action_space, self.policy_config, dueling=dueling
        )

    def _make_state(self) -> State:
        config = self.config
        self.learning_rate = schedules.parse(config.learning_rate)
        self.exploration_rate = ParsedSchedule(
            "linear",
            config.exploration_initial_eps,
            config.exploration_final_eps,
            config.exploration_fraction,
        )
        self.trainable = Trainable("q_network", self.policy, Adam(), config.max_grad_norm)
        self._numpy_best_action = self.policy.numpy_best_action()
        self._target_updates = 0
        return {**self.trainable.initial_state(), "target": self.trainable.flat.clone()}

    # -- acting -----------------------------------------------------------------------------------------

    def _best_action(self, observations: Column) -> Array:
        if self._numpy_best_action is not None:
            return self._numpy_best_action(observations)
        with torch.inference_mode():
            return self.policy(self._tensors(observations)).argmax(-1).cpu().numpy()

    def _explore(self, observations: Column) -> Array:
        """Return the best action of each environment, or with probability ε a random one."""
        rate = self.exploration_rate(self.progress)
        is_random = self.rng.random(self.n_envs) < rate
        if is_random.all():
            return self._random_actions()
        actions = self._best_action(observations)
        return np.where(is_random, self._random_actions(), actions) if is_random.any() else actions

    def _random_actions(self) -> Array:
        assert isinstance(self.action_space, spaces.Discrete)
        return self.rng.integers(self.action_space.n, size=self.n_envs)

    def _to_env(self, actions: Array) -> Array:
        assert isinstance(self.action_space, spaces.Discrete)
        return actions + self.action_space.start

    def _act(self, observations: Column, *, deterministic: bool) -> Array:
        actions = self._best_action(observations)
        if not deterministic:
            is_random = self.rng.random(len(actions)) < self.config.exploration_final_eps
            n_actions = self.action_space.n  # type: ignore[attr-defined]
            actions = np.where(is_random, self.rng.integers(n_actions, size=len(actions)), actions)
        return self._to_env(actions)

    def action_probability(self, observations: Column) -> Array:
        """Return the softmax of the action values, (n, actions), as Stable-Baselines does."""
        batch, is_single = self._batched(observations)
        with torch.inference_mode():
            values = self.policy(self._tensors(self._normalized(batch)))
        probabilities = values.softmax(-1).cpu().numpy()
        return probabilities[0] if is_single else probabilities

    def _action_spec(self) -> ColumnSpec:
        return ColumnSpec((), np.int64)

    # -- learning ---------------------------------------------------------------------------------------

    def update(self) -> None:
        due = self.num_timesteps // self.config.target_update_interval
        if due != self._target_updates:  # fewer where a second call of learn counts from zero
            self._target_updates = due
            self.trainable.follow(self.program.state, "target", self.config.tau)
        super().update()
        self.record("rollout/exploration_rate", self.exploration_rate(self.progress))

    def _learn_from(self, batches: Mapping[str, Any], n_steps: int) -> None:
        learning_rate = self.learning_rate(self.progress)
        self.record("train/learning_rate", learning_rate)
        self._run_program(torch.tensor(learning_rate, device=self.device), dict(batches))

    def _update_step(self, state: State, shared: Tensor, inputs: Any) -> tuple[State, dict[str, Tensor]]:
        network = self.trainable.variables(state)
        values = pick(network(inputs["observations"]), inputs["actions"])
        loss = F.smooth_l1_loss(values, self.targets(state, inputs))
        state, grad_norm = self.trainable.descend(state, network, loss, shared)
        return state, {"loss": loss.detach(), "q_value": values.mean().detach(), "grad_norm": grad_norm}

    def targets(self, state: State, batch: dict[str, Tensor]) -> Tensor:
        """Return r + γ·Q_target(s′, a′), (batch,), without the second term where the episode terminated."""
        next_values = self.trainable.constants(state, "target")(batch["next_observations"])
        deciding = next_values
        if self.config.double:
            deciding = self.trainable.constants(state)(batch["next_observations"])
        best = deciding.argmax(-1, keepdim=True)
        next_value = next_values.gather(-1, best).squeeze(-1)
        return batch["rewards"] + self.config.gamma * (1.0 - batch["terminated"]) * next_value

    def _copy_to_targets(self) -> None:
        self.program.state["target"].copy_(self.program.state["q_network"])

    def checkpoint(self) -> tuple[dict[str, Array], dict[str, Any]]:
        arrays, values = super().checkpoint()
        values["target_updates"] = self._target_updates
        return arrays, values

    def restore(self, arrays: Mapping[str, Array], values: Mapping[str, Any]) -> None:
        super().restore(arrays, values)
        self._target_updates = values["target_updates"]

    def _suggestion(self) -> str:
        return "; sac learns continuous actions" if isinstance(self.action_space, spaces.Box) else ""
