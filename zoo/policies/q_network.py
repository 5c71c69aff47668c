"""The policy of DQN and its relatives: a value for each discrete action."""

from __future__ import annotations

from typing import Any

from gymnasium import spaces
from torch import Tensor, nn

from zoo.errors import ZooError
from zoo.policies.config import PolicyConfig
from zoo.policies.encoders import NatureCnn, VectorEncoder, make_encoder
from zoo.policies.networks import ArrayFunction, Mlp, in_numpy


class QNetwork(nn.Module):
    """Encoder and hidden layers (64-64 ReLU by default; none after images) to one value an action.

    ``dueling`` splits the network into a state value and advantages whose mean is taken off (Wang et al.
    2016, equation 9). After images the advantages are linear in the encoder's output, while the state value
    keeps hidden layers of 64-64, as in Stable-Baselines.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        config: PolicyConfig,
        *,
        dueling: bool = False,
    ) -> None:
        super().__init__()
        assert isinstance(action_space, spaces.Discrete)
        if isinstance(config.net_arch, dict):
            raise ZooError("`policy.net_arch` of a Q-network is one list of widths, like [64, 64]")
        ortho_init = config.ortho_init is True
        self.encoder = make_encoder(observation_space, config, ortho_init=ortho_init)
        reads_images = isinstance(self.encoder, NatureCnn)
        default: list[int] = [] if reads_images else [64, 64]
        hidden = default if config.net_arch is None else config.net_arch
        style = {
            "activation": config.activation or "relu",
            "layer_norm": config.layer_norm,
            "hidden_gain": 2**0.5 if ortho_init else None,
        }
        size, n_actions = self.encoder.features_dim, int(action_space.n)
        self.advantages = Mlp(size, hidden, n_actions, **style)  # type: ignore[arg-type]
        self.state_value: Mlp | None = None
        if dueling:
            value_hidden = [64, 64] if reads_images and not hidden else hidden
            self.state_value = Mlp(size, value_hidden, 1, **style)  # type: ignore[arg-type]

    def forward(self, observations: Any) -> Tensor:
        """Return the action values, (batch, actions)."""
        features = self.encoder(observations)
        advantages: Tensor = self.advantages(features)
        if self.state_value is None:
            return advantages
        centred = advantages - advantages.mean(-1, keepdim=True)
        values: Tensor = self.state_value(features) + centred
        return values

    def numpy_best_action(self) -> ArrayFunction | None:
        """Return the greedy action as a function of arrays, where that is possible.

        The state value shifts all actions alike, so the advantages decide.
        """
        if type(self).forward is not QNetwork.forward:
            return None
        encoder, advantages = self.encoder, in_numpy(self.advantages)
        if not isinstance(encoder, VectorEncoder) or not encoder.has_numpy or advantages is None:
            return None
        return lambda observations: advantages(encoder.in_numpy(observations)).argmax(-1)
