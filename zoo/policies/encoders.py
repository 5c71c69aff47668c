"""From observations of any space to a vector of features."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor, nn

from zoo.errors import ZooError
from zoo.policies.config import PolicyConfig
from zoo.policies.networks import orthogonal

SMALLEST_IMAGE = 36
"""Height and width in pixels below which the Nature CNN has nothing left to convolve."""


class VectorEncoder(nn.Module):
    """Flattens numbers, and writes Discrete and MultiDiscrete observations as one-hot vectors.

    Reads (batch, …) in the space's own dtype; returns (batch, ``features_dim``) float32. Raises `ZooError`
    for spaces of other kinds.
    """

    def __init__(self, space: spaces.Space[Any]) -> None:
        super().__init__()
        if not isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
            raise ZooError(f"a policy can't read observations of {space}; wrap the env to flatten them")
        self.space = space
        self.features_dim = int(spaces.flatdim(space))
        self._sizes: list[int] = []
        self._starts: list[int] = []
        if isinstance(space, spaces.Discrete):
            self._sizes, self._starts = [int(space.n)], [int(space.start)]
        elif isinstance(space, spaces.MultiDiscrete):
            self._sizes = [int(n) for n in space.nvec.reshape(-1)]
            self._starts = [int(start) for start in space.start.reshape(-1)]

    def forward(self, observations: Tensor) -> Tensor:
        if self._sizes:
            columns = observations.reshape(observations.shape[0], -1).unbind(1)
            parts = [
                F.one_hot(column.long() - start, size)
                for column, start, size in zip(columns, self._starts, self._sizes, strict=True)
            ]
            return torch.cat(parts, dim=1).float()
        flat = observations.reshape(observations.shape[0], -1).float()
        return flat / 255.0 if observations.dtype == torch.uint8 and is_image(self.space) else flat

    def in_numpy(self, observations: np.ndarray) -> np.ndarray:
        """Do the same on an array; Box and MultiBinary only (see `has_numpy`)."""
        flat = observations.reshape(observations.shape[0], -1)
        return flat if flat.dtype == np.float32 else flat.astype(np.float32)

    @property
    def has_numpy(self) -> bool:
        """Whether `in_numpy` can stand in for this encoder."""
        return not self._sizes and not is_image(self.space)


class NatureCnn(nn.Module):
    """The convolutional network of Mnih et al. 2015, for images of any number of channels.

    Reads (batch, height, width, channels) or (batch, channels, height, width), bytes or floats; bytes are
    divided by 255. Returns (batch, ``features_dim``).
    """

    def __init__(
        self, space: spaces.Space[Any], features_dim: int, *, ortho_init: bool, layer_norm: bool
    ) -> None:
        super().__init__()
        assert isinstance(space, spaces.Box)
        self.channels_first = channels_come_first(space.shape)
        channels, height, width = space.shape if self.channels_first else np.roll(space.shape, 1)
        convolutions = [
            nn.Conv2d(int(channels), 32, 8, stride=4),
            nn.Conv2d(32, 64, 4, stride=2),
            nn.Conv2d(64, 64, 3, stride=1),
        ]
        for kernel, stride in ((8, 4), (4, 2), (3, 1)):
            height, width = (int(height) - kernel) // stride + 1, (int(width) - kernel) // stride + 1
        linear = nn.Linear(64 * int(height) * int(width), features_dim)
        if ortho_init:
            for convolution in convolutions:
                orthogonal(convolution, math.sqrt(2))
            orthogonal(linear, math.sqrt(2))
        norm = [nn.LayerNorm(features_dim)] if layer_norm else []
        rectified = [module for layer in convolutions for module in (layer, nn.ReLU())]
        self.layers = nn.Sequential(*rectified, nn.Flatten(), linear, *norm, nn.ReLU())
        self.features_dim = features_dim

    def forward(self, observations: Tensor) -> Tensor:
        scaled = observations.float() / 255.0 if observations.dtype == torch.uint8 else observations.float()
        features: Tensor = self.layers(scaled if self.channels_first else scaled.permute(0, 3, 1, 2))
        return features


class DictEncoder(nn.Module):
    """Encodes each key of a dictionary observation, images by a CNN, and joins the results."""

    def __init__(
        self, space: spaces.Space[Any], features_dim: int, *, ortho_init: bool, layer_norm: bool
    ) -> None:
        super().__init__()
        assert isinstance(space, spaces.Dict)
        self.keys = list(space.spaces)
        parts: list[NatureCnn | VectorEncoder] = []
        for part in space.spaces.values():
            if is_image(part) and min_side(part) >= SMALLEST_IMAGE:
                parts.append(NatureCnn(part, features_dim, ortho_init=ortho_init, layer_norm=layer_norm))
            else:
                parts.append(VectorEncoder(part))
        self.parts = nn.ModuleList(parts)
        self.features_dim = sum(part.features_dim for part in parts)

    def forward(self, observations: dict[str, Tensor]) -> Tensor:
        return torch.cat(
            [part(observations[key]) for key, part in zip(self.keys, self.parts, strict=True)], dim=1
        )


Encoder = VectorEncoder | NatureCnn | DictEncoder


def make_encoder(space: spaces.Space[Any], config: PolicyConfig, *, ortho_init: bool) -> Encoder:
    """Return the encoder that ``config`` names. Raises `ZooError` if it cannot read the space."""
    if isinstance(space, spaces.Dict):
        if config.encoder != "multi":
            raise ZooError(f"{config.name} can't read dictionary observations; use policy=MultiInputPolicy")
        return DictEncoder(space, config.features_dim, ortho_init=ortho_init, layer_norm=config.layer_norm)
    if config.encoder == "multi":
        raise ZooError(
            f"{config.name} reads dictionaries, but observations are a {type(space).__name__}; use MlpPolicy"
        )
    if config.encoder == "mlp":
        return VectorEncoder(space)
    if not is_image(space):
        raise ZooError(
            f"{config.name} reads images (bytes, height × width × channels), but the observations are"
            f" a {type(space).__name__} of shape {space.shape} and type {space.dtype}; use policy=MlpPolicy"
        )
    if min_side(space) < SMALLEST_IMAGE:
        raise ZooError(
            f"{config.name} needs images of at least {SMALLEST_IMAGE}×{SMALLEST_IMAGE} pixels,"
            f" but these have shape {space.shape}; use policy=MlpPolicy"
        )
    return NatureCnn(space, config.features_dim, ortho_init=ortho_init, layer_norm=config.layer_norm)


def is_image(space: spaces.Space[Any]) -> bool:
    """Whether observations of ``space`` are images: bytes in three dimensions."""
    return isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) == 3


def min_side(space: spaces.Space[Any]) -> int:
    """Return the smaller of an image's height and width in pixels."""
    shape = space.shape or ()
    sides = shape[1:] if channels_come_first(shape) else shape[:-1]
    return int(min(sides))


def channels_come_first(shape: tuple[int, ...]) -> bool:
    """Whether an image's shape is (channels, height, width): its first side is smaller than its last."""
    return shape[0] < shape[-1]
