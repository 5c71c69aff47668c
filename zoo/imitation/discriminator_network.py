"""The network that tells what an expert did from what a policy did, by what was seen and done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from zoo.envs.spaces import leaf_spaces
from zoo.policies.config import PolicyConfig
from zoo.policies.encoders import NatureCnn, VectorEncoder, suits_cnn
from zoo.policies.networks import LayerStyle, Mlp

ACTIONS, ABSORBING = "actions", "absorbing"
"""Names of inputs beside those of the observation, which are called ``seen`` and its key."""


class NumberActions(nn.Module):
    """Box actions as the environment takes them, in half widths of their bounds where these are finite."""

    middle: Tensor
    half_width: Tensor

    def __init__(self, space: spaces.Box) -> None:
        super().__init__()
        low, high = space.low.reshape(-1).astype(np.float64), space.high.reshape(-1).astype(np.float64)
        is_bounded = np.isfinite(low) & np.isfinite(high) & (high > low)
        middle = np.where(is_bounded, 0.5 * low + 0.5 * high, 0.0)
        half = np.where(is_bounded, 0.5 * high - 0.5 * low, 1.0)
        self.register_buffer("middle", torch.from_numpy(middle.astype(np.float32)))
        self.register_buffer("half_width", torch.from_numpy(half.astype(np.float32)))
        self.features_dim = len(low)

    def forward(self, actions: Tensor) -> Tensor:
        return (actions.reshape(len(actions), -1).float() - self.middle) / self.half_width


class DiscriminatorNetwork(nn.Module):
    """Logits of an expert's having acted: positive where that is likelier than that the policy did.

    Observations are read as policies read them, images by a CNN where ``policy`` has one; actions with parts
    to choose from are written one-hot. Hidden layers have the widths ``net_arch``, and Glorot's initial
    weights. ``knows_absorbing``: there is an input that says of a row that it stands for the state after an
    episode's end, where nothing is seen or done.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        policy: PolicyConfig,
        net_arch: list[int],
        activation: str,
        *,
        knows_absorbing: bool = False,
    ) -> None:
        super().__init__()
        is_dict = isinstance(observation_space, spaces.Dict)
        parts = dict(observation_space.spaces) if is_dict else {"": observation_space}  # type: ignore[attr-defined]
        reads_images = is_dict or policy.encoder == "cnn" or policy._target_ is not None
        self.is_dict, self.keys = is_dict, list(parts)
        self.readers = nn.ModuleList(
            NatureCnn(part, policy.features_dim, ortho_init=True, layer_norm=False)
            if reads_images and suits_cnn(part)
            else VectorEncoder(part)
            for part in parts.values()
        )
        leaf = dict(leaf_spaces(action_space))
        self.paths = list(leaf)
        self.writers = nn.ModuleList(
            NumberActions(part) if isinstance(part, spaces.Box) else VectorEncoder(part)
            for part in leaf.values()
        )
        self.knows_absorbing = knows_absorbing
        size: Any = sum(part.features_dim for part in (*self.readers, *self.writers))
        style = LayerStyle(activation, layer_norm=False)
        self.layers = Mlp(size + knows_absorbing, net_arch, 1, style)
        for layer in self.layers:
            if isinstance(layer, nn.Linear):
                nn.init.xavier_uniform_(layer.weight)
                nn.init.zeros_(layer.bias)

    def numbers(self, rows: Mapping[str, Any]) -> dict[str, Tensor]:
        """Return what `forward` reads: numbers between which there are others, as 0.3 of one action.

        ``rows`` have ``observations`` (n, *shape), normalised where they shall be, ``actions`` as the
        environment takes them, of a Tuple or Dict space by path, and ``absorbing`` (n,), 1 or 0, where all
        numbers of a row are 0.
        """
        seen, done = rows["observations"], rows["actions"]
        numbers = {
            f"seen {key}": _as_numbers(reader, seen[key] if self.is_dict else seen)
            for key, reader in zip(self.keys, self.readers, strict=True)
        }
        written = [
            writer(done[path] if path else done)
            for path, writer in zip(self.paths, self.writers, strict=True)
        ]
        numbers[ACTIONS] = torch.cat(written, dim=-1)
        if not self.knows_absorbing:
            return numbers
        absorbing = rows[ABSORBING]
        goes_on = 1.0 - absorbing
        numbers = {
            name: goes_on.reshape(-1, *[1] * (each.dim() - 1)) * each for name, each in numbers.items()
        }
        return {**numbers, ABSORBING: absorbing[:, None]}

    def forward(self, numbers: Mapping[str, Tensor]) -> Tensor:
        """Return logits (n,) of `numbers`."""
        features = [
            reader(numbers[f"seen {key}"]) if isinstance(reader, NatureCnn) else numbers[f"seen {key}"]
            for key, reader in zip(self.keys, self.readers, strict=True)
        ]
        features.append(numbers[ACTIONS])
        if self.knows_absorbing:
            features.append(numbers[ABSORBING])
        return self.layers(torch.cat(features, dim=-1)).squeeze(-1)


def _as_numbers(reader: nn.Module, observations: Tensor) -> Tensor:
    """Return what a CNN, or the layers after a `VectorEncoder`, read."""
    if not isinstance(reader, NatureCnn):
        return reader(observations)
    return observations.float() / 255.0 if observations.dtype == torch.uint8 else observations.float()
