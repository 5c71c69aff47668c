"""Policies as users write them, named by `policy._target_` in tests, and what tests of policies share."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from zoo.algorithms.ddpg import DDPGPolicy
from zoo.algorithms.sac import SACPolicy
from zoo.algorithms.td3 import TD3Policy
from zoo.policies.actor_critic import ActorCritic
from zoo.policies.config import PolicyConfig, policy_preset
from zoo.policies.q_networks import QNetwork


def preset(name: str = "MlpPolicy", **fields: Any) -> PolicyConfig:
    config = policy_preset(name)
    for field, value in fields.items():
        assert hasattr(config, field)
        setattr(config, field, value)
    return config


def widths(network: nn.Module | None) -> list[int]:
    assert network is not None
    return [layer.out_features for layer in network.modules() if isinstance(layer, nn.Linear)]


def sampled(space: spaces.Space[Any], n: int = 6) -> Any:
    """Return samples of a space, the same each time; a dictionary of them where that is what it holds."""
    space.seed(0)
    if isinstance(space, spaces.Dict):
        return {key: sampled(part, n) for key, part in space.spaces.items()}
    return np.stack([np.asarray(space.sample()) for _ in range(n)])


class ResidualActorCritic(ActorCritic):
    """Has an actor that is no row of layers."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.actor = Residual(self.actor)  # type: ignore[assignment]


class Residual(nn.Module):
    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, values: Tensor) -> Tensor:
        return self.scale * self.layers(values) - values.mean(-1, keepdim=True)


class Witness(nn.Module):
    """Reads as ``reading`` does, drops and normalises as asked, and notes the mode of each forward pass.

    ``modes`` gets whether it was training mode, and whether a gradient step was under way (``stepping``).
    """

    modes: ClassVar[list[tuple[bool, bool]]] = []
    stepping: ClassVar[bool] = False

    def __init__(self, reading: nn.Module, *, dropout: float = 0.0, normalize: bool = False) -> None:
        super().__init__()
        self.reading = reading
        self.features_dim = reading.features_dim
        self.norm = nn.BatchNorm1d(int(reading.features_dim)) if normalize else nn.Identity()  # type: ignore[arg-type]
        self.dropout = nn.Dropout(dropout)

    def forward(self, observations: Any) -> Tensor:
        self.modes.append((self.training, Witness.stepping))
        features: Tensor = self.dropout(self.norm(self.reading(observations)))
        return features


def witnessed(policy_class: type[nn.Module], *parts: str) -> Any:
    """Return a subclass that has a witness in the place of the encoder of each part."""

    class Witnessed(policy_class):  # type: ignore[misc, valid-type]
        def __init__(self, *args: Any, dropout: float = 0.0, normalize: bool = False, **options: Any) -> None:
            super().__init__(*args, **options)
            for owner in map(self.get_submodule, parts):
                owner.encoder = Witness(owner.encoder, dropout=dropout, normalize=normalize)  # type: ignore[arg-type]

    return Witnessed


WitnessedActorCritic = witnessed(ActorCritic, "")
WitnessedQNetwork = witnessed(QNetwork, "")
WitnessedDDPGPolicy = witnessed(DDPGPolicy, "actor", "critics")
WitnessedSACPolicy = witnessed(SACPolicy, "actor", "critics")
WitnessedTD3Policy = witnessed(TD3Policy, "actor", "critics")
