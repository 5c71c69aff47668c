"""The actor of TD3 and its relatives: one action in [−1, 1] for what is seen, without randomness."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from zoo.policies.config import PolicyConfig
from zoo.policies.encoders import make_encoder
from zoo.policies.heads import Array, Head
from zoo.policies.networks import LayerStyle, Mlp, layer_sizes, orthogonal, uniform

DETERMINISTIC_WIDTHS = (400, 300)


class DeterministicActor(nn.Module):
    """Encoder and hidden layers (400-300 ReLU by default), then the head.

    ``widths`` are the hidden layers where the config names none. ``last_layer_range`` draws the weights of
    the last layer from within ± this, without biases, so that all first actions are near zero (DDPG: 3e-3).
    """

    head: Deterministic

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        config: PolicyConfig,
        *,
        widths: Sequence[int] = DETERMINISTIC_WIDTHS,
        last_layer_range: float | None = None,
    ) -> None:
        super().__init__()
        assert isinstance(action_space, spaces.Box)
        self.encoder = make_encoder(observation_space, config, ortho_init=bool(config.ortho_init))
        hidden = layer_sizes(config, ("pi", "qf"), list(widths))["pi"]
        self.trunk = Mlp(self.encoder.features_dim, hidden, None, LayerStyle.of(config, "relu"))
        if config.ortho_init:
            orthogonal(self.trunk)
        self.head = Deterministic(action_space, self.trunk.output_size)
        if last_layer_range is not None:
            uniform(self.head.action, last_layer_range)

    def forward(self, observations: Any) -> Tensor:
        """Return the actions (…, actions), in [−1, 1]."""
        actions: Tensor = self.head(self.trunk(self.encoder(observations)))
        return actions

    def action_parameters(self, seen: dict[str, Any], state: Tensor | None = None) -> tuple[Tensor, None]:
        """Return the same for what is seen."""
        return self.head.masked(self(seen["observations"]), seen.get("action_masks")), None


class Deterministic(Head):
    """Always the same action: the parameters (…, n) are the actions themselves, squashed into [−1, 1].

    As a distribution it has no density, so what follows from one (`log_prob`, `entropy`, `kl`) raises
    `TypeError`.
    """

    noise_size = 0
    cloning_settles_entropy = False

    def __init__(self, space: spaces.Box, features_dim: int) -> None:
        super().__init__()
        self.parameter_size = math.prod(space.shape)
        self.action = nn.Linear(features_dim, self.parameter_size)

    def forward(self, features: Tensor) -> Tensor:
        return torch.tanh(self.action(features))

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Return nothing, (*shape, 0), and draw nothing."""
        return np.empty((*shape, 0), np.float32)

    def sample(self, parameters: Array, noise: Array) -> Array:
        return parameters

    def mode(self, parameters: Array) -> Array:
        return parameters

    def describe(self, parameters: Array) -> tuple[Array, Array]:
        """Return mean and standard deviation (…, n): the actions, and zero."""
        return parameters, np.zeros_like(parameters)

    def log_prob(self, parameters: Tensor, actions: Tensor) -> NoReturn:
        raise TypeError("a deterministic action has no density")

    def entropy(self, parameters: Tensor) -> NoReturn:
        raise TypeError("a deterministic action has no density")

    def kl(self, old: Tensor, new: Tensor) -> NoReturn:
        raise TypeError("a deterministic action has no density")

    def imitation_loss(self, parameters: Tensor, actions: Tensor) -> Tensor:
        """Return the mean squared error (…), in units of the parameters."""
        return (parameters - actions).square().mean(-1)


class Direct(Deterministic):
    """The same without a bound: the action is linear in the features, in the environment's own units."""

    def forward(self, features: Tensor) -> Tensor:
        actions: Tensor = self.action(features)
        return actions
