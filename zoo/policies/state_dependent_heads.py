"""Heads that explore by noise which is a function of the state (Raffin et al. 2022, gSDE).

The noise of an action is φ(s)·W: the features in front of the head times a matrix W ~ N(0, σ²), of which each
environment keeps one for a while, so that like states get like noise. By W an action is distributed as
N(mean, φ²·σ²), which is all that log-probabilities, entropies and divergences know;
their parameters are those of any Gaussian. φ stands behind them (…, 2n + features), for `sample` alone.

https://arxiv.org/abs/2005.05719
"""

from __future__ import annotations

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from zoo.policies.config import PolicyConfig
from zoo.policies.gaussian_heads import Gaussian, Squashed
from zoo.policies.heads import Array

LEAST_VARIANCE = 1e-6
"""Added to the variance of an action, which would vanish with the features."""


class StateDependentGaussian(Gaussian):
    """A Gaussian whose noise is φ(s)·W.

    ``noise`` gives W itself, (…, features × actions), at today's σ. ``learns_features`` lets the gradients of
    the deviations through to the features; ``clip_mean`` bounds the mean, 0 does not. A ``log_std_init`` or a
    ``clip_mean`` in ``config`` takes the place of the one given here.
    """

    def __init__(
        self,
        space: spaces.Box,
        features_dim: int,
        config: PolicyConfig,
        *,
        learns_features: bool,
        log_std_init: float,
        clip_mean: float = 0.0,
    ) -> None:
        super().__init__(space)
        self.features_dim = features_dim
        self.parameter_size = 2 * self.n_actions + features_dim
        self.noise_size = features_dim * self.n_actions
        self.learns_features, self.use_expln = learns_features, config.use_expln
        self.clip_mean = clip_mean if config.clip_mean is None else config.clip_mean
        start = log_std_init if config.log_std_init is None else config.log_std_init
        self.mean = nn.Linear(features_dim, self.n_actions)
        columns = self.n_actions if config.full_std else 1
        self.log_std = nn.Parameter(torch.full((features_dim, columns), float(start)))

    def forward(self, features: Tensor) -> Tensor:
        mean = self.mean(features)
        if self.clip_mean > 0:
            mean = mean.clamp(-self.clip_mean, self.clip_mean)
        if not self.learns_features:
            features = features.detach()
        variance = features.square() @ self.deviations().square()
        log_std = 0.5 * (variance + LEAST_VARIANCE).log()
        return torch.cat([mean, log_std.expand_as(mean), features], dim=-1)

    def deviations(self) -> Tensor:
        """Return σ (features, actions), or (features, 1) where all actions share it."""
        return expln(self.log_std) if self.use_expln else self.log_std.exp()

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        with torch.no_grad():
            deviations = self.deviations().cpu().numpy()
        standard = rng.standard_normal((*shape, self.features_dim, self.n_actions), dtype=np.float32)
        return (standard * deviations).reshape(*shape, self.noise_size)

    def sample(self, parameters: Array, noise: Array) -> Array:
        features = parameters[..., None, 2 * self.n_actions :]
        weights = noise.reshape(*noise.shape[:-1], self.features_dim, self.n_actions)
        return self._mean(parameters) + (features @ weights)[..., 0, :]

    def _mean_and_log_std(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std, _ = parameters.split([self.n_actions, self.n_actions, self.features_dim], dim=-1)
        return mean, log_std


class SquashedStateDependentGaussian(Squashed, StateDependentGaussian):
    """tanh of a Gaussian whose noise is φ(s)·W; actions lie in [−1, 1].

    `rsample` takes a number of noise for each action, as for any Gaussian. That is the same distribution as
    with a W for each sample, and its gradients are the means of those through W, over all W that give the
    same action: they scatter less.
    """


def expln(values: Tensor) -> Tensor:
    """Return exp(x), above 0 the slower 1 + log(1 + x): positive, and smooth between both."""
    below = values.clamp(max=0)  # also where it is not chosen: an infinite slope would become NaN
    return torch.where(values > 0, values.clamp(min=0).log1p() + 1.0, below.exp())
