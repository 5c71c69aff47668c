"""What both forms of PPO share: epochs of minibatches, and a surrogate that is clipped."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from zoo.algorithms.on_policy import ANY_ACTIONS, OnPolicyAlgorithm, OnPolicyConfig
from zoo.config.fields import Schedule, hyperparameter
from zoo.optim.optimizers import Adam, Optimizer


@dataclass
class ClippedPolicyConfig(OnPolicyConfig):
    """Hyperparameters of both."""

    n_epochs: int = hyperparameter(4, "passes over each rollout", ge=1)
    clip_range: Schedule = hyperparameter(
        0.2, "change of an action's probability ratio beyond which nothing is gained", gt=0
    )
    adam_eps: float = hyperparameter(1e-5, "Adam's epsilon", gt=0)


Config = TypeVar("Config", bound=ClippedPolicyConfig)


class ClippedPolicyAlgorithm(OnPolicyAlgorithm[Config]):
    """Takes several epochs of minibatch steps on each rollout."""

    supported_actions = ANY_ACTIONS
    uses_old_log_prob = True

    def _optimizer(self) -> Optimizer:
        return Adam(eps=self.config.adam_eps)

    @abstractmethod
    def _minibatches(self) -> tuple[int, int]:
        """Return how many minibatches an epoch has, and their rows."""

    def gradient_steps_in(self, total_timesteps: int) -> float:
        n_rollouts = total_timesteps / (self.memory.n_steps * self.n_envs)
        return n_rollouts * self.config.n_epochs * self._minibatches()[0]

    def _batch_size(self) -> int:
        return self._minibatches()[1] * self.memory.steps_a_row


def clipped_surrogate(log_ratio: Tensor, advantages: Tensor, clip_range: Tensor) -> Tensor:
    """Return what actions of these probability ratios gain (…): equation 7 of the paper, within the mean."""
    ratio = log_ratio.exp()
    clipped = torch.clamp(ratio, 1 - clip_range, 1 + clip_range)
    return torch.minimum(advantages * ratio, advantages * clipped)
