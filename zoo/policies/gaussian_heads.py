"""Heads for actions that are numbers: Gaussians, plain or squashed into [−1, 1].

Their parameters (…, 2n) are n means, then n log standard deviations; a head may put more behind them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor, nn

from zoo.policies.heads import Array, Head

LOG_STD_RANGE = (-20.0, 2.0)
"""Between these lies a log standard deviation that depends on the state."""

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
LARGEST_BELOW_ONE = 1.0 - 2.0**-24

QUADRATURE = np.polynomial.hermite_e.hermegauss(48)
"""Points and weights that integrate against a standard normal density (up to its factor)."""


class Gaussian(Head):
    """Independent normal distributions of ``n_actions`` numbers."""

    cloning_settles_entropy = False

    def __init__(self, space: spaces.Box) -> None:
        super().__init__()
        self.n_actions = self.noise_size = math.prod(space.shape)
        self.parameter_size = 2 * self.n_actions

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return rng.standard_normal((*shape, self.noise_size), dtype=np.float32)

    def sample(self, parameters: Array, noise: Array) -> Array:
        actions = np.exp(self._log_std(parameters))
        actions *= noise
        actions += self._mean(parameters)
        return actions

    def mode(self, parameters: Array) -> Array:
        return self._mean(parameters)

    def describe(self, parameters: Array) -> tuple[Array, Array]:
        """Return mean and standard deviation (…, n), before any squashing."""
        return self._mean(parameters), np.exp(self._log_std(parameters))

    def log_prob(self, parameters: Tensor, actions: Tensor) -> Tensor:
        return self.log_prob_and_entropy(parameters, actions)[0]

    def entropy(self, parameters: Tensor) -> Tensor:
        return self._log_std(parameters).sum(-1) + self.n_actions * (HALF_LOG_2PI + 0.5)

    def log_prob_and_entropy(self, parameters: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = self._mean_and_log_std(parameters)
        total_log_std = log_std.sum(-1)
        deviation = (actions - mean) / log_std.exp()
        surprise = torch.add(total_log_std, deviation.square().sum(-1), alpha=0.5)
        n = self.n_actions
        return -n * HALF_LOG_2PI - surprise, total_log_std + n * (HALF_LOG_2PI + 0.5)

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        (old_mean, old_log_std), (mean, log_std) = (self._mean_and_log_std(each) for each in (old, new))
        ratio = (2.0 * (old_log_std - log_std)).exp()
        moved = ((old_mean - mean) / log_std.exp()).square()
        return (log_std - old_log_std + 0.5 * (ratio + moved - 1.0)).sum(-1)

    def imitation_loss(self, parameters: Tensor, actions: Tensor) -> Tensor:
        """Return the mean squared error (…) of the mean action; the standard deviation is left alone."""
        return (self._mean(parameters) - actions).square().mean(-1)

    def _mean(self, parameters: Any) -> Any:
        return parameters[..., : self.n_actions]

    def _log_std(self, parameters: Any) -> Any:
        return parameters[..., self.n_actions : 2 * self.n_actions]

    def _mean_and_log_std(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = parameters.split(self.n_actions, dim=-1)
        return mean, log_std


class DiagonalGaussian(Gaussian):
    """A Gaussian with a standard deviation that does not depend on the state.

    The environment gets the action clipped to its bounds; memory and log-probability keep it as drawn.
    """

    def __init__(self, space: spaces.Box, features_dim: int, log_std_init: float) -> None:
        super().__init__(space)
        self.mean = nn.Linear(features_dim, self.n_actions)
        self.log_std = nn.Parameter(torch.full((self.n_actions,), float(log_std_init)))

    def forward(self, features: Tensor) -> Tensor:
        mean = self.mean(features)
        return torch.cat([mean, self.log_std.expand_as(mean)], dim=-1)


class Squashed(Gaussian):
    """tanh of a Gaussian; actions lie in [−1, 1]."""

    def sample(self, parameters: Array, noise: Array) -> Array:
        return np.tanh(super().sample(parameters, noise))

    def mode(self, parameters: Array) -> Array:
        return np.tanh(super().mode(parameters))

    def rsample(self, parameters: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return actions (…, n) drawn with standard normal ``noise``, and their log-probabilities (…).

        Gradients flow through both (Haarnoja et al. 2018, appendix C).
        """
        mean, log_std = self._mean_and_log_std(parameters)
        unsquashed = mean + log_std.exp() * noise
        surprise = 0.5 * noise.square() + HALF_LOG_2PI + log_std + log_volume(unsquashed)
        return torch.tanh(unsquashed), -surprise.sum(-1)

    def log_prob(self, parameters: Tensor, actions: Tensor) -> Tensor:
        unsquashed = torch.atanh(actions.clamp(-LARGEST_BELOW_ONE, LARGEST_BELOW_ONE))
        log_prob, _ = super().log_prob_and_entropy(parameters, unsquashed)
        return log_prob - log_volume(unsquashed).sum(-1)

    def entropy(self, parameters: Tensor) -> Tensor:
        """Return the Gaussian's entropy plus the mean log volume of tanh, by Gauss–Hermite quadrature."""
        mean, log_std = self._mean_and_log_std(parameters)
        points, weights = (mean.new_tensor(values) for values in QUADRATURE)
        unsquashed = mean.unsqueeze(-1) + log_std.exp().unsqueeze(-1) * points
        mean_log_volume = (log_volume(unsquashed) * (weights / weights.sum())).sum(-1)
        return super().entropy(parameters) + mean_log_volume.sum(-1)

    def log_prob_and_entropy(self, parameters: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        return self.log_prob(parameters, actions), self.entropy(parameters)

    def imitation_loss(self, parameters: Tensor, actions: Tensor) -> Tensor:
        """Return the mean squared error (…) of the squashed mean, in units of actions in [−1, 1]."""
        return (torch.tanh(self._mean(parameters)) - actions).square().mean(-1)


class SquashedGaussian(Squashed):
    """tanh of a Gaussian whose mean and standard deviation are functions of the state."""

    def __init__(self, space: spaces.Box, features_dim: int) -> None:
        super().__init__(space)
        self.mean = nn.Linear(features_dim, self.n_actions)
        self.log_std = nn.Linear(features_dim, self.n_actions)

    def forward(self, features: Tensor) -> Tensor:
        return torch.cat([self.mean(features), self.log_std(features).clamp(*LOG_STD_RANGE)], dim=-1)


def log_volume(unsquashed: Tensor) -> Tensor:
    """Return log(1 − tanh²u), how tanh shrinks volume, in a form that stays finite where tanh saturates."""
    return 2.0 * (math.log(2.0) - unsquashed - F.softplus(-2.0 * unsquashed))
