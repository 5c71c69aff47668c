"""Advantage actor-critic, the synchronous form of A3C (Mnih et al. 2016, https://arxiv.org/abs/1602.01783).

One gradient step after every few environment steps, on all of them at once: actions that led to more than
the critic expected become likelier, and the critic moves to what was seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from zoo.algorithms.on_policy import OnPolicyAlgorithm
from zoo.config.fields import Schedule, hyperparameter
from zoo.errors import ZooError
from zoo.memory.columns import transform
from zoo.optim import schedules
from zoo.optim.optimizers import Adam, Optimizer, RMSprop
from zoo.optim.trainable import State


@dataclass
class A2CConfig:
    """Hyperparameters of A2C."""

    learning_rate: Schedule = hyperparameter(7e-4, "step size of the optimizer", ge=0)
    n_steps: int = hyperparameter(5, "steps of each environment between updates", unit="steps", ge=1)
    gamma: float = hyperparameter(0.99, "discount factor", ge=0, le=1)
    gae_lambda: float = hyperparameter(
        1.0, "bias (0) against variance (1) of the advantages; 1: n-step returns", ge=0, le=1
    )
    ent_coef: float = hyperparameter(0.01, "weight of the entropy bonus", ge=0)
    vf_coef: float = hyperparameter(0.25, "weight of the value's mean squared error", ge=0)
    max_grad_norm: float | None = hyperparameter(0.5, "bound of the gradient's norm; null: none", gt=0)
    normalize_advantage: bool = hyperparameter(False, "standardise the advantages of each rollout")
    use_rms_prop: bool = hyperparameter(True, "RMSprop; false: Adam")
    rms_prop_decay: float = hyperparameter(0.99, "decay of RMSprop's running square", ge=0, lt=1)
    rms_prop_eps: float = hyperparameter(1e-5, "epsilon of RMSprop, or of Adam", gt=0)
    rms_prop_tensorflow: bool = hyperparameter(
        True, "RMSprop in TensorFlow's form, with which the published scores were made; false: PyTorch's"
    )


class A2C(OnPolicyAlgorithm[A2CConfig]):
    """A2C with n-step returns or GAE, and RMSprop in TensorFlow's form by default."""

    name = "a2c"
    config_class = A2CConfig
    compiling_saves = 0.6e-3

    def _optimizer(self) -> Optimizer:
        config = self.config
        if config.use_rms_prop:
            return RMSprop(config.rms_prop_decay, config.rms_prop_eps, config.rms_prop_tensorflow)
        return Adam(eps=config.rms_prop_eps)

    def _make_state(self) -> State:
        self.learning_rate = schedules.parse(self.config.learning_rate)
        return super()._make_state()

    def _make_memory(self) -> None:
        super()._make_memory()
        if self.config.normalize_advantage and self._batch_size() < 2:
            raise ZooError("`algo.normalize_advantage` needs rollouts of n_steps × n_envs ≥ 2 steps")

    def update(self) -> None:
        config, memory = self.config, self.memory
        progress = max(0.0, self.progress - memory.n_steps * self.n_envs / self.total_timesteps)
        rows = self._tensors(memory.rows())
        with torch.inference_mode():
            values = self.policy.values(rows["observations"])
        advantages, returns = self.advantages_and_returns(values, config.gamma, config.gae_lambda)
        rollout = {**rows, "advantages": advantages, "returns": returns}
        if not memory.valid.all():
            real = self._tensors(memory.minibatch_rows(self.rng, 1, memory.valid.size)[0])
            rollout = {
                name: transform(lambda column: column[real], column) for name, column in rollout.items()
            }
        learning_rate = torch.tensor([self.learning_rate(progress)], device=self.device)
        self.record("train/learning_rate", self.learning_rate(progress))
        self._run_program(rollout, learning_rate)

    def _update_step(self, state: State, shared: Any, inputs: Tensor) -> tuple[State, dict[str, Tensor]]:
        policy = self.trainable.variables(state)
        log_prob, entropy, values = policy(shared)
        advantages = shared["advantages"]
        if self.config.normalize_advantage:
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        policy_loss = -(advantages * log_prob).mean()
        value_loss = (values - shared["returns"]).square().mean()
        entropy_loss = -entropy.mean()
        loss = policy_loss + self.config.ent_coef * entropy_loss + self.config.vf_coef * value_loss
        state, grad_norm = self.trainable.descend(state, policy, loss, inputs)
        return state, {
            "policy_loss": policy_loss.detach(),
            "value_loss": value_loss.detach(),
            "entropy_loss": entropy_loss.detach(),
            "grad_norm": grad_norm,
        }

    def gradient_steps_in(self, total_timesteps: int) -> float:
        return total_timesteps / self._batch_size()

    def _batch_size(self) -> int:
        return self.memory.n_steps * self.n_envs
