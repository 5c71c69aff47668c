"""Critics of continuous actions, and the weight of the entropy beside them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from zoo.policies.config import PolicyConfig
from zoo.policies.encoders import make_encoder
from zoo.policies.networks import LayerStyle, Mlp, layer_sizes, orthogonal
from zoo.policies.squashed_actor import OFF_POLICY_WIDTHS


class ContinuousCritics(nn.Module):
    """Several action values of the same form, each (256-256 ReLU by default), reading one encoder.

    ``widths`` are the hidden layers where the config names none.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        config: PolicyConfig,
        *,
        n_critics: int,
        widths: Sequence[int] = OFF_POLICY_WIDTHS,
        n_outputs: int = 1,
    ) -> None:
        super().__init__()
        self.encoder = make_encoder(observation_space, config, ortho_init=bool(config.ortho_init))
        size = self.encoder.features_dim + math.prod(action_space.shape or ())
        hidden = layer_sizes(config, ("pi", "qf"), list(widths))["qf"]
        style = LayerStyle.of(config, "relu")
        self.critics = nn.ModuleList(Mlp(size, hidden, n_outputs, style) for _ in range(n_critics))
        if config.ortho_init:
            for critic in self.critics:
                orthogonal(critic, output_gain=1.0)

    def forward(self, observations: Any, actions: Tensor, first: int | None = None) -> Tensor:
        """Return the value of each pair by each critic, or by the ``first`` ones alone, (critics, …)."""
        return self._outputs(observations, actions, first).squeeze(-1)

    def _outputs(self, observations: Any, actions: Tensor, first: int | None = None) -> Tensor:
        pairs = torch.cat([self.encoder(observations), actions], dim=-1)
        return torch.stack([critic(pairs) for critic in list(self.critics)[:first]])


class QuantileCritics(ContinuousCritics):
    """Several distributions of returns of the same form, each as quantiles of equal weight."""

    def __init__(self, *spaces_and_config: Any, n_critics: int, n_quantiles: int) -> None:
        super().__init__(*spaces_and_config, n_critics=n_critics, n_outputs=n_quantiles)

    def forward(self, observations: Any, actions: Tensor, first: int | None = None) -> Tensor:
        """Return the quantiles for each pair by each critic, (critics, …, quantiles)."""
        return self._outputs(observations, actions, first)


class Temperature(nn.Module):
    """SAC's entropy coefficient, kept as its logarithm."""

    def __init__(self, start: float) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.tensor([math.log(start)]))

    def forward(self) -> Tensor:
        """Return the logarithm of the coefficient, a scalar."""
        return self.log[0]
