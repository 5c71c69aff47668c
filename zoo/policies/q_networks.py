"""The Q-networks of DQN and its kin: values, or distributions of the return, of each discrete action."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from zoo.envs.spaces import Space
from zoo.errors import ZooError
from zoo.policies.actor_critic import PolicyInput
from zoo.policies.config import PolicyConfig
from zoo.policies.distributions import Categorical
from zoo.policies.encoders import NatureCnn, default_hidden_sizes, make_encoder
from zoo.policies.networks import Mlp, NoisyMlp, layer_sizes, make_trunk, orthogonal
from zoo.policies.recurrent import make_core


class QNetwork(nn.Module):
    """Encoder and hidden layers (64-64 ReLU by default; none after images) to one value an action.

    ``dueling`` splits the network into a state value and advantages whose mean is taken off (Wang et al.
    2016, equation 9). After images the advantages are linear in the encoder's output, while the state value
    keeps hidden layers of 64-64, as in Stable-Baselines. ``n_estimates`` are the numbers for each value.
    With ``noisy_std`` all layers behind the encoder are noisy, and a pass may take ``noise_size`` numbers.
    With ``learns_features`` the first hidden layer is a part of its own, ``shared``, unless the encoder has
    weights.
    """

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        config: PolicyConfig,
        *,
        dueling: bool = False,
        n_estimates: int = 1,
        noisy_std: float | None = None,
        learns_features: bool = False,
    ) -> None:
        super().__init__()
        assert isinstance(action_space, spaces.Discrete)
        config.check_networks()
        self.head = Categorical(action_space, None)
        self.encoder = make_encoder(observation_space, config, ortho_init=bool(config.ortho_init))
        hidden = layer_sizes(config, ("qf",), default_hidden_sizes(self.encoder))["qf"]
        size = self.encoder.features_dim

        def make(widths: list[int], n_outputs: int | None) -> Mlp:
            if noisy_std is None:
                return make_trunk(config, size, widths, n_outputs, "relu")
            if config.block != "plain":
                raise ZooError("`algo.noisy` needs plain hidden layers: policy.block=plain")
            return NoisyMlp(noisy_std, config, size, widths, n_outputs, "relu")

        self.shared: Mlp | None = None
        if learns_features:
            n_shared = 0 if next(self.encoder.parameters(), None) is not None else 1
            self.shared = make(hidden[:n_shared], None)
            size, hidden = self.shared.output_size, hidden[n_shared:]
        self.advantages = make(hidden, n_estimates * self.head.parameter_size)
        self.state_value: Mlp | None = None
        if dueling:
            value_hidden = [64, 64] if isinstance(self.encoder, NatureCnn) and not hidden else hidden
            self.state_value = make(value_hidden, n_estimates)
        networks = [self.advantages, self.state_value, self.shared]
        self.noise_sizes = [part.noise_size if isinstance(part, NoisyMlp) else 0 for part in networks]
        self.noise_size = sum(self.noise_sizes)
        if config.ortho_init:
            orthogonal(self.advantages, output_gain=1.0)
            if self.state_value is not None:
                orthogonal(self.state_value, output_gain=1.0)
            if self.shared is not None:
                orthogonal(self.shared)

    def forward(self, observations: Any, noise: Tensor | None = None) -> Tensor:
        """Return the action values (…, actions); ``noise`` is for all rows alike, or one for each."""
        return self._by_features(self.encoder(observations), noise)

    def _by_features(self, features: Tensor, noise: Tensor | None, factors: Tensor | None = None) -> Tensor:
        """Return the action values of an encoder's features, which ``shared`` reads if it has factors."""
        parts = [None] * 3 if noise is None else noise.split(self.noise_sizes, dim=-1)
        if self.shared is not None and factors is not None:
            features = outputs_of(self.shared, features, parts[2]) * factors
        advantages = self._by_estimate(outputs_of(self.advantages, features, parts[0]))
        if self.state_value is None:
            return advantages
        centred = advantages - advantages.mean(-1, keepdim=True)
        return self._by_estimate(outputs_of(self.state_value, features, parts[1])) + centred

    def _by_estimate(self, outputs: Tensor) -> Tensor:
        """Return outputs (…, estimates · n) as (…, estimates, n), or as they are for one estimate."""
        return outputs

    def action_values(self, estimates: Tensor) -> Tensor:
        """Return the action values (…, actions) of a forward pass's estimates."""
        return estimates

    def action_parameters(self, inputs: dict[str, Any], state: Tensor | None = None) -> tuple[Tensor, None]:
        """Return the action values; masked actions get values far below all others."""
        noise = [inputs["noise"]] if "noise" in inputs else []
        values = self.action_values(self(inputs["observations"], *noise))
        return self.head.masked(values, inputs.get("action_masks")), None


def outputs_of(network: Mlp, features: Tensor, noise: Tensor | None) -> Tensor:
    """Return a network's outputs, with noise or without."""
    return network(features) if noise is None else network.with_noise(features, noise)


class QuantileNetwork(QNetwork):
    """A `QNetwork` with ``n_quantiles`` numbers for each value, (…, quantiles, actions)."""

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        config: PolicyConfig,
        *,
        n_quantiles: int = 200,
        **options: Any,
    ) -> None:
        super().__init__(observation_space, action_space, config, n_estimates=n_quantiles, **options)
        self.n_quantiles = n_quantiles

    def _by_estimate(self, outputs: Tensor) -> Tensor:
        return outputs.unflatten(-1, (self.n_quantiles, -1))

    def action_values(self, estimates: Tensor) -> Tensor:
        """Return the means of the quantiles (…, actions)."""
        return estimates.mean(-2)


class ImplicitQuantileNetwork(QNetwork):
    """A `QNetwork` whose values are the quantiles of any fractions of the return, (…, fractions, actions).

    Features are multiplied by relu(W·cos(πiτ) + b), i from 1 to ``n_cosines``, of each fraction τ (Dabney et
    al. 2018, equation 4; there from 0, which is a second bias). They are the encoder's, or where that has no
    weights, as of vectors, those of the first hidden layer: else all quantiles of an observation of zeros
    would be one number.
    """

    def __init__(
        self, *spaces_and_config: Any, n_acting_quantiles: int = 32, n_cosines: int = 64, **options: Any
    ) -> None:
        super().__init__(*spaces_and_config, learns_features=True, **options)
        self.n_acting_quantiles, self.n_cosines = n_acting_quantiles, n_cosines
        assert self.shared is not None
        self.embedding = nn.Linear(n_cosines, self.shared.output_size)
        if spaces_and_config[2].ortho_init:
            orthogonal(self.embedding)

    def forward(
        self, observations: Any, noise: Tensor | None = None, fractions: Tensor | None = None
    ) -> Tensor:
        """Return the quantiles of the fractions (…, n), or of evenly spaced ones, on which it acts."""
        if fractions is None:
            fractions = midpoints(self.n_acting_quantiles, self.embedding.weight)
        if noise is not None and noise.dim() > 1:
            noise = noise.unsqueeze(-2)
        return self._by_features(self.encoder(observations).unsqueeze(-2), noise, self.embedded(fractions))

    def embedded(self, fractions: Tensor) -> Tensor:
        """Return the factors (…, n, features) of fractions (…, n)."""
        i = torch.arange(1, self.n_cosines + 1, dtype=fractions.dtype, device=fractions.device)
        return torch.relu(self.embedding(torch.cos(math.pi * fractions[..., None] * i)))

    action_values = QuantileNetwork.action_values


def midpoints(n: int, like: Tensor) -> Tensor:
    """Return the fractions (k + ½) / n, (n,), of a tensor's type and on its device."""
    return (torch.arange(n, dtype=like.dtype, device=like.device) + 0.5) / n


class CategoricalNetwork(QuantileNetwork):
    """A `QNetwork` with a logit for each of ``n_atoms`` returns of each action, (…, atoms, actions).

    The returns are evenly spaced from the first to the second of ``value_range``.
    """

    def __init__(
        self,
        *spaces_and_config: Any,
        n_atoms: int = 51,
        value_range: tuple[float, float] = (-10.0, 10.0),
        **options: Any,
    ) -> None:
        super().__init__(*spaces_and_config, n_quantiles=n_atoms, **options)
        self.value_range = value_range

    def returns(self, device: torch.device | None = None, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return the returns (atoms,)."""
        low, high = self.value_range
        return torch.linspace(low, high, self.n_quantiles, device=device, dtype=dtype)

    def action_values(self, estimates: Tensor) -> Tensor:
        """Return the expected returns (…, actions)."""
        returns = self.returns(estimates.device, estimates.dtype)
        return (torch.softmax(estimates, -2) * returns[:, None]).sum(-2)


class NormalizedQNetwork(nn.Module):
    """Encoder, recurrent layers if any, hidden layers (64-64 ReLU by default), then the action values.

    There is layer normalisation before each activation, after convolutions too, unless ``policy.norm`` names
    another one. The value of a state is that of its best valid action.
    """

    def __init__(self, observation_space: Space, action_space: Space, config: PolicyConfig) -> None:
        super().__init__()
        config.check_networks()
        norm, ortho_init = config.norm or "layer", config.ortho_init is not False
        config = replace(config, norm=norm, layer_norm=norm == "layer")
        self.encoder = make_encoder(observation_space, config, ortho_init=ortho_init)
        if norm == "layer":
            normalize_convolutions(self.encoder)
        self.core = make_core(config, self.encoder.features_dim)
        size = self.encoder.features_dim if self.core is None else self.core.output_size
        hidden = layer_sizes(config, ("qf",), default_hidden_sizes(self.encoder))["qf"]
        self.trunk = make_trunk(config, size, hidden, None, "relu")
        self.head = Categorical(action_space, self.trunk.output_size)
        if ortho_init:
            orthogonal(self.trunk)
            orthogonal(self.head, 1.0)

    @property
    def state_size(self) -> int:
        """The size of a row's recurrent state."""
        return 0 if self.core is None else self.core.state_size

    def initial_state(self, n: int) -> Tensor | None:
        """Return the recurrent state (n, …) of ``n`` rows at the start of an episode."""
        return None if self.core is None else self.core.initial_state(n)

    def forward(self, inputs: PolicyInput, state: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Return the action values (…, actions), far below all others if masked, and the next state."""
        features = self.encoder(inputs["observations"])
        if self.core is not None:
            features, state = self.core(features, state, inputs.get("episode_starts"))
        return self.head.masked(self.head(self.trunk(features)), inputs.get("action_masks")), state

    def action_parameters(
        self, inputs: PolicyInput, state: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Return values and state, as `forward`."""
        return self(inputs, state)

    def values(self, inputs: PolicyInput, state: Tensor | None = None) -> Tensor:
        """Return the largest action values (…)."""
        return self(inputs, state)[0].amax(-1)


def normalize_convolutions(encoder: nn.Module) -> None:
    """Put layer normalisation, over channels and pixels, after each convolution of Zoo's own encoders."""
    for cnn in encoder.modules():
        if isinstance(cnn, NatureCnn):
            layers = [
                [layer, nn.GroupNorm(1, layer.out_channels)] if isinstance(layer, nn.Conv2d) else [layer]
                for layer in cnn.layers
            ]
            cnn.layers = nn.Sequential(*itertools.chain.from_iterable(layers))
