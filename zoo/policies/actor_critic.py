"""The policy of on-policy algorithms: an action distribution and a value for each observation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from zoo.errors import ZooError
from zoo.policies.config import PolicyConfig
from zoo.policies.distributions import make_distribution
from zoo.policies.encoders import Encoder, NatureCnn, VectorEncoder, make_encoder
from zoo.policies.networks import ArrayFunction, Mlp, in_numpy

Observations = Any
"""A tensor (batch, …), or a dictionary of tensors."""


class ActorCritic(nn.Module):
    """Encoder, then separate hidden layers for actor and critic (64-64 tanh by default; none after images).

    ``net_arch={shared: [64], pi: [64], vf: [64]}`` puts layers before both. With ``share_encoder=False``
    actor and critic have an encoder each.
    """

    def __init__(
        self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any], config: PolicyConfig
    ) -> None:
        super().__init__()
        self.distribution = make_distribution(action_space)
        ortho_init = config.ortho_init is not False
        self.encoder: Encoder = make_encoder(observation_space, config, ortho_init=ortho_init)
        self.critic_encoder: Encoder | None = None
        if not config.share_encoder:
            self.critic_encoder = make_encoder(observation_space, config, ortho_init=ortho_init)
        shared, pi, vf = self._layer_sizes(config)
        style = {
            "activation": config.activation or "tanh",
            "layer_norm": config.layer_norm,
            "hidden_gain": math.sqrt(2) if ortho_init else None,
        }
        self.shared = Mlp(self.encoder.features_dim, shared, None, **style)  # type: ignore[arg-type]
        size = self.shared.output_size
        self.actor = Mlp(size, pi, self.distribution.parameter_size, output_gain=0.01, **style)  # type: ignore[arg-type]
        self.critic = Mlp(size, vf, 1, output_gain=1.0, **style)  # type: ignore[arg-type]
        self.log_std: nn.Parameter | None = None
        if self.distribution.has_log_std:
            start = config.log_std_init or 0.0
            self.log_std = nn.Parameter(torch.full((self.distribution.parameter_size,), start))

    def forward(self, batch: dict[str, Any]) -> tuple[Tensor, Tensor, Tensor]:
        """Return log-probabilities of ``batch["actions"]``, entropies and values, each (batch,)."""
        observations = batch["observations"]
        features = self.encoder(observations)
        latent = self.shared(features)
        log_prob, entropy = self.distribution.log_prob_and_entropy(
            self.actor(latent), self.log_std, batch["actions"]
        )
        if self.critic_encoder is not None:
            latent = self.shared(self.critic_encoder(observations))
        return log_prob, entropy, self.critic(latent).squeeze(-1)

    def values(self, observations: Observations) -> Tensor:
        """Return the critic's values (batch,)."""
        encoder = self.critic_encoder if self.critic_encoder is not None else self.encoder
        values: Tensor = self.critic(self.shared(encoder(observations)))
        return values.squeeze(-1)

    def action_parameters(self, observations: Observations) -> Tensor:
        """Return the parameters of the action distribution, (batch, ``parameter_size``)."""
        parameters: Tensor = self.actor(self.shared(self.encoder(observations)))
        return parameters

    def numpy_action_parameters(self) -> ArrayFunction | None:
        """Return `action_parameters` on arrays where that is possible: flat observations, plain layers."""
        if type(self).action_parameters is not ActorCritic.action_parameters:
            return None
        encoder = self.encoder
        shared, actor = in_numpy(self.shared), in_numpy(self.actor)
        if not isinstance(encoder, VectorEncoder) or not encoder.has_numpy or shared is None or actor is None:
            return None
        if len(self.shared) == 0:
            return lambda observations: actor(encoder.in_numpy(observations))
        return lambda observations: actor(shared(encoder.in_numpy(observations)))

    def numpy_log_std(self) -> np.ndarray | None:
        """Return the log standard deviations as a view, or None for distributions without."""
        return None if self.log_std is None else self.log_std.detach().cpu().numpy()

    def _layer_sizes(self, config: PolicyConfig) -> tuple[list[int], list[int], list[int]]:
        sizes = config.net_arch
        if sizes is None:
            sizes = [] if isinstance(self.encoder, NatureCnn) else [64, 64]
        if isinstance(sizes, list):
            return [], sizes, sizes
        unknown = set(sizes) - {"shared", "pi", "vf"}
        if unknown:
            raise ZooError(f"unknown key `policy.net_arch.{sorted(unknown)[0]}`; known: shared, pi, vf")
        return sizes.get("shared", []), sizes.get("pi", []), sizes.get("vf", [])
