"""The networks of SAC and its relatives: a squashed Gaussian actor, and critics of continuous actions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor, nn

from zoo.errors import ZooError
from zoo.policies.config import PolicyConfig
from zoo.policies.distributions import gaussian_log_prob
from zoo.policies.encoders import VectorEncoder, make_encoder
from zoo.policies.networks import Array, ArrayFunction, Mlp, in_numpy

LOG_STD_RANGE = (-20.0, 2.0)


class SquashedActor(nn.Module):
    """tanh of a Gaussian whose mean and log standard deviation depend on the state (256-256 ReLU by default).

    Actions lie in [−1, 1]; `to_env` and `from_env` go between these and the environment's bounds.
    """

    def __init__(
        self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any], config: PolicyConfig
    ) -> None:
        super().__init__()
        assert isinstance(action_space, spaces.Box)
        if not np.isfinite([action_space.low, action_space.high]).all():
            raise ZooError(f"actions need finite bounds, but the action space is {action_space}")
        self.space = action_space
        self.n_actions = math.prod(action_space.shape)
        self.encoder = make_encoder(observation_space, config, ortho_init=config.ortho_init is True)
        self.trunk = Mlp(self.encoder.features_dim, layer_sizes(config, "pi"), None, **style(config))
        self.mean = nn.Linear(self.trunk.output_size, self.n_actions)
        self.log_std = nn.Linear(self.trunk.output_size, self.n_actions)

    def forward(self, observations: Any, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return actions (batch, actions) drawn with standard normal ``noise``, and their log-probabilities.

        The log-probability counts the change of volume by tanh (Haarnoja et al. 2018, appendix C) in a form
        that stays finite where tanh saturates: log(1 − tanh²u) = 2·(log 2 − u − softplus(−2u)).
        """
        latent = self.trunk(self.encoder(observations))
        mean, log_std = self.mean(latent), self.log_std(latent).clamp(*LOG_STD_RANGE)
        unsquashed = mean + log_std.exp() * noise
        log_volume = 2.0 * (math.log(2.0) - unsquashed - F.softplus(-2.0 * unsquashed))
        log_prob = gaussian_log_prob(unsquashed, mean, log_std) - log_volume
        return torch.tanh(unsquashed), log_prob.sum(-1)

    def mode(self, observations: Any) -> Tensor:
        """Return the deterministic actions, (batch, actions)."""
        return torch.tanh(self.mean(self.trunk(self.encoder(observations))))

    def numpy_latent(self) -> ArrayFunction | None:
        """Return observation to mean and log standard deviation side by side, on arrays, where possible."""
        if type(self).latent is not SquashedActor.latent:
            return None
        encoder, trunk = self.encoder, in_numpy(self.trunk)
        mean, log_std = in_numpy(nn.Sequential(self.mean)), in_numpy(nn.Sequential(self.log_std))
        if not isinstance(encoder, VectorEncoder) or not encoder.has_numpy:
            return None
        if trunk is None or mean is None or log_std is None:
            return None

        def latent(observations: Array) -> Array:
            hidden = trunk(encoder.in_numpy(observations))
            return np.concatenate([mean(hidden), log_std(hidden)], axis=-1)

        return latent

    def latent(self, observations: Any) -> Tensor:
        """Return mean and log standard deviation side by side, (batch, 2 × actions)."""
        hidden = self.trunk(self.encoder(observations))
        return torch.cat([self.mean(hidden), self.log_std(hidden)], dim=-1)

    def to_env(self, actions: Array) -> Array:
        """Scale actions from [−1, 1] to the environment's bounds."""
        low, high = self.space.low, self.space.high
        shaped = actions.reshape(len(actions), *self.space.shape)
        scaled = (low + 0.5 * (shaped + 1.0) * (high - low)).astype(self.space.dtype, copy=False)
        return np.minimum(np.maximum(scaled, low), high)  # rounding may have gone a little too far


class ContinuousCritics(nn.Module):
    """Several action values of the same form, each (256-256 ReLU by default), reading one encoder."""

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        config: PolicyConfig,
        *,
        n_critics: int,
    ) -> None:
        super().__init__()
        self.encoder = make_encoder(observation_space, config, ortho_init=config.ortho_init is True)
        size = self.encoder.features_dim + math.prod(action_space.shape or ())
        self.critics = nn.ModuleList(
            Mlp(size, layer_sizes(config, "qf"), 1, **style(config)) for _ in range(n_critics)
        )

    def forward(self, observations: Any, actions: Tensor) -> Tensor:
        """Return the value of each pair by each critic, (critics, batch)."""
        pairs = torch.cat([self.encoder(observations), actions], dim=-1)
        return torch.stack([critic(pairs).squeeze(-1) for critic in self.critics])


class Temperature(nn.Module):
    """SAC's entropy coefficient, kept as its logarithm."""

    def __init__(self, start: float) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.tensor([math.log(start)]))

    def forward(self) -> Tensor:
        """Return the logarithm of the coefficient, a scalar."""
        return self.log[0]


def layer_sizes(config: PolicyConfig, network: str) -> list[int]:
    """Return the hidden widths of the actor (``"pi"``) or the critics (``"qf"``)."""
    sizes = config.net_arch
    if sizes is None:
        return [256, 256]
    if isinstance(sizes, list):
        return sizes
    unknown = set(sizes) - {"pi", "qf"}
    if unknown:
        raise ZooError(f"unknown key `policy.net_arch.{sorted(unknown)[0]}`; known: pi, qf")
    return sizes.get(network, [])


def style(config: PolicyConfig) -> dict[str, Any]:
    """Return what all hidden layers of an off-policy network share."""
    return {
        "activation": config.activation or "relu",
        "layer_norm": config.layer_norm,
        "hidden_gain": 2**0.5 if config.ortho_init is True else None,
    }
