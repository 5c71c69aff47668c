"""Advantage actor-critic, the synchronous form of A3C (Mnih et al. 2016, https://arxiv.org/abs/1602.01783).

One gradient step after every few environment steps, on all of them at once: actions that led to more than
the critic expected become likelier, and the critic moves to what was seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from zoo.algorithms.arguments import SdeConfig
from zoo.algorithms.on_policy import OnPolicyAlgorithm, OnPolicyConfig, RolloutBatch, standardized
from zoo.algorithms.search_space import choices, ranges, searched
from zoo.config.fields import hyperparameter, with_defaults
from zoo.optim.optimizers import Adam, Optimizer, RMSprop
from zoo.optim.update_runner import State, StepResult


@dataclass
@with_defaults(learning_rate=7e-4, n_steps=5, gae_lambda=1.0)
class A2CConfig(SdeConfig, OnPolicyConfig):
    """Hyperparameters of A2C."""

    vf_coef: float = hyperparameter(0.25, "weight of the value's mean squared error", ge=0)
    use_rms_prop: bool = hyperparameter(True, "RMSprop; false: Adam")
    rms_prop_decay: float = hyperparameter(0.99, "decay of RMSprop's running square", ge=0, lt=1)
    rms_prop_eps: float = hyperparameter(1e-5, "epsilon of RMSprop, or of Adam", gt=0)
    rms_prop_tensorflow: bool = hyperparameter(
        True, "RMSprop in TensorFlow's form, with which the published scores were made; false: PyTorch's"
    )


class A2C(OnPolicyAlgorithm):
    """Advantage actor-critic, with n-step returns or GAE, and RMSprop in TensorFlow's form by default."""

    name = "a2c"
    config_class = A2CConfig
    search_space = searched(
        OnPolicyAlgorithm.search_space,
        ranges("log", n_steps=(4, 256), max_grad_norm=(0.3, 5.0)),
        ranges("even", ent_coef=(0.0, 0.1), vf_coef=(0.1, 1.0)),
        choices(normalize_advantage=[False, True], use_rms_prop=[True, False]),
    )

    config: A2CConfig

    def _optimizer(self) -> Optimizer:
        config = self.config
        if config.use_rms_prop:
            return RMSprop(config.rms_prop_decay, config.rms_prop_eps, config.rms_prop_tensorflow)
        return Adam(eps=config.rms_prop_eps)

    def update(self) -> None:
        rollout, rates = self.finished_rollout(), self.rates(self._progress_before)
        self.take_steps(self._gradient_step, rollout, rates["learning_rate"].reshape(1))

    def _gradient_step(self, state: State, rollout: RolloutBatch, learning_rate: Tensor) -> StepResult:
        rollout, policy = rollout.copy(), self.updater.module(state)
        parameters, values, _ = policy(rollout, rollout.get("states"))
        log_prob, entropy = self.policy.head.log_prob_and_entropy(parameters, rollout["actions"])
        if self.config.normalize_advantage:
            rollout["advantages"] = standardized(rollout["advantages"])
        loss, metrics = actor_critic_loss(self.config, log_prob, entropy, values, rollout)
        state, grad_norm = self.updater.step(state, policy, loss, learning_rate)
        return StepResult(state, {**metrics, "grad_norm": grad_norm})


def actor_critic_loss(
    config: Any, log_prob: Tensor, entropy: Tensor, values: Tensor, rollout: RolloutBatch
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss of actor and critic on a rollout, whose columns these are; its parts as metrics.

    The gradients of the first two are those of the paper's algorithm S3; the entropy's is of its section 4.
    ``config`` has ``ent_coef`` and ``vf_coef``.
    """
    policy_loss = -(rollout["advantages"] * log_prob).mean()
    value_loss = (values - rollout["returns"]).square().mean()
    entropy_loss = -entropy.mean()
    loss = policy_loss + config.ent_coef * entropy_loss + config.vf_coef * value_loss
    return loss, {
        "policy_loss": policy_loss.detach(),
        "value_loss": value_loss.detach(),
        "entropy_loss": entropy_loss.detach(),
    }
