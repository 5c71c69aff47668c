"""The actor of SAC and its relatives: a Gaussian squashed into [−1, 1]."""

from __future__ import annotations

from typing import Any

from gymnasium import spaces
from torch import Tensor, nn

from zoo.policies.config import PolicyConfig
from zoo.policies.encoders import make_encoder
from zoo.policies.gaussian_heads import Squashed, SquashedGaussian
from zoo.policies.networks import LayerStyle, Mlp, layer_sizes, orthogonal
from zoo.policies.state_dependent_heads import SquashedStateDependentGaussian

OFF_POLICY_WIDTHS = [256, 256]


class SquashedActor(nn.Module):
    """Encoder and hidden layers (256-256 ReLU by default), then the head.

    ``use_sde``: noise is a function of the last features.
    """

    head: Squashed

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        config: PolicyConfig,
        *,
        use_sde: bool = False,
    ) -> None:
        super().__init__()
        assert isinstance(action_space, spaces.Box)
        self.encoder = make_encoder(observation_space, config, ortho_init=bool(config.ortho_init))
        widths = layer_sizes(config, ("pi", "qf"), OFF_POLICY_WIDTHS)["pi"]
        self.trunk = Mlp(self.encoder.features_dim, widths, None, LayerStyle.of(config, "relu"))
        if config.ortho_init:
            orthogonal(self.trunk)
        if use_sde:
            self.head = SquashedStateDependentGaussian(
                *(action_space, self.trunk.output_size, config),
                learns_features=True,
                log_std_init=-3.0,
                clip_mean=2.0,
            )
        else:
            self.head = SquashedGaussian(action_space, self.trunk.output_size)

    def forward(self, observations: Any) -> Tensor:
        """Return the parameters of the head (…, 2 × actions, or more)."""
        parameters: Tensor = self.head(self.trunk(self.encoder(observations)))
        return parameters

    def action_parameters(self, seen: dict[str, Any], state: Tensor | None = None) -> tuple[Tensor, None]:
        """Return the same for what is seen."""
        return self.head.masked(self(seen["observations"]), seen.get("action_masks")), None
