"""The policy of QR-DQN: quantiles of the return of each discrete action."""

from __future__ import annotations

from typing import Any

from gymnasium import spaces
from torch import Tensor

from zoo.policies.config import PolicyConfig
from zoo.policies.q_network import QNetwork


class QuantileNetwork(QNetwork):
    """The layers of a `QNetwork`, with ``n_quantiles`` numbers where that has one.

    ``dueling`` splits each quantile by itself into one of the state's value and those of the advantages.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        config: PolicyConfig,
        *,
        n_quantiles: int = 200,
        dueling: bool = False,
    ) -> None:
        super().__init__(observation_space, action_space, config, dueling=dueling, n_estimates=n_quantiles)
        self.n_quantiles = n_quantiles

    def forward(self, observations: Any) -> Tensor:
        """Return the quantiles (…, ``n_quantiles``, actions)."""
        features = self.encoder(observations)
        advantages: Tensor = self.advantages(features).unflatten(-1, (self.n_quantiles, -1))
        if self.state_value is None:
            return advantages
        centred = advantages - advantages.mean(-1, keepdim=True)
        quantiles: Tensor = self.state_value(features).unsqueeze(-1) + centred
        return quantiles

    def action_values(self, estimates: Tensor) -> Tensor:
        """Return the means of the quantiles (…, actions)."""
        return estimates.mean(-2)
