"""A policy without randomness, linear or with hidden layers, whose weights are searched for."""

from __future__ import annotations

from typing import Any

from gymnasium import spaces
from torch import Tensor, nn

from zoo.policies.composite_head import make_head
from zoo.policies.config import PolicyConfig
from zoo.policies.deterministic_actor import Deterministic, Direct
from zoo.policies.encoders import hidden_after, make_encoder
from zoo.policies.heads import Head
from zoo.policies.networks import LayerStyle, Mlp, layer_sizes, orthogonal


class SearchedPolicy(nn.Module):
    """Encoder, hidden layers (64-64 ReLU by default; none after images), and the head.

    Box actions are what the last layer gives, ``squash``ed into [−1, 1] by tanh or as they are. Without
    ``with_bias`` no linear layer adds a bias; with ``zero`` all weights but those of layer normalisation
    are 0 at first.
    """

    head: Head

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        config: PolicyConfig,
        *,
        squash: bool,
        with_bias: bool,
        zero: bool,
    ) -> None:
        super().__init__()
        self.encoder = make_encoder(observation_space, config, ortho_init=bool(config.ortho_init))
        hidden = layer_sizes(config, ("pi",), hidden_after(self.encoder))["pi"]
        self.trunk = Mlp(self.encoder.features_dim, hidden, None, LayerStyle.of(config, "relu"))
        if isinstance(action_space, spaces.Box):
            box_head = Deterministic if squash else Direct
            self.head = box_head(action_space, self.trunk.output_size)
        else:
            self.head = make_head(action_space, self.trunk.output_size, config)
        if config.ortho_init:
            orthogonal(self.trunk)
            orthogonal(self.head, 0.01)
        layers = [layer for layer in self.modules() if not isinstance(layer, nn.LayerNorm)]
        for layer in layers:
            if isinstance(layer, nn.Linear) and not with_bias:
                layer.bias = None  # type: ignore[assignment]
            if zero:
                for parameter in layer.parameters(recurse=False):
                    nn.init.zeros_(parameter)

    def forward(self, seen: dict[str, Any]) -> Tensor:
        """Return the masked parameters of the head (…, ``parameter_size``)."""
        parameters = self.head(self.trunk(self.encoder(seen["observations"])))
        masked: Tensor = self.head.masked(parameters, seen.get("action_masks"))
        return masked

    def action_parameters(self, seen: dict[str, Any], state: Tensor | None = None) -> tuple[Tensor, None]:
        """Return the same; nothing is remembered."""
        return self(seen), None
