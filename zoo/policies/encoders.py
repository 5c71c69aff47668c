"""From observations of any space to a vector of features, behind any leading dimensions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Integral
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor, nn

from zoo.config.user_files import check_arguments, own_class
from zoo.envs.spaces import Space, channels_first, is_image
from zoo.errors import ZooError, nearest
from zoo.policies.config import PolicyConfig
from zoo.policies.networks import orthogonal

SMALLEST_IMAGE = 36
"""Height and width in pixels below which the Nature CNN has nothing left to convolve."""

KERNEL = 3
"""Side of the small CNN's convolution, and so of the smallest board that it reads."""


class VectorEncoder(nn.Module):
    """Flattens numbers, and writes Discrete and MultiDiscrete observations as one-hot vectors.

    Reads (…, *shape) in the space's own dtype; returns (…, ``features_dim``) float32; bytes of images are
    divided by 255. Raises `ZooError` for spaces of other kinds.
    """

    def __init__(self, space: Space) -> None:
        super().__init__()
        if not isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
            raise ZooError(f"a policy can't read observations of {space}; wrap the env to flatten them")
        self.n_dims = len(space.shape or ())
        self.reads_image = is_image(space)
        self.features_dim = int(spaces.flatdim(space))
        self.sizes: list[int] = []
        self.starts: list[int] = []
        if isinstance(space, spaces.Discrete):
            self.sizes, self.starts = [int(space.n)], [int(space.start)]
        elif isinstance(space, spaces.MultiDiscrete):
            self.sizes, self.starts = space.nvec.ravel().tolist(), space.start.ravel().tolist()

    def forward(self, observations: Tensor) -> Tensor:
        leading = observations.shape[: observations.dim() - self.n_dims]
        flat = observations.reshape(*leading, -1)
        if self.sizes:
            parts = [
                F.one_hot(column.long() - start, size)
                for column, start, size in zip(flat.unbind(-1), self.starts, self.sizes, strict=True)
            ]
            return torch.cat(parts, dim=-1).float()
        return flat.float() / 255.0 if self.reads_image else flat.float()


class NatureCnn(nn.Module):
    """The convolutional network of Mnih et al. 2015, for images of any number of channels, first or last.

    Reads images, in whatever type, which it divides by 255; returns (…, ``features_dim``) float32.
    """

    convolutions: tuple[tuple[int, int, int], ...] = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
    """Filters, kernel and stride of each."""
    default_width = 512

    def __init__(self, space: Space, config: PolicyConfig, *, ortho_init: bool) -> None:
        super().__init__()
        assert isinstance(space, spaces.Box)
        self.precision, self.features_dim = config.precision, config.features_dim or self.default_width
        self.channels_first, self.reads_image = channels_first(space.shape), is_image(space)
        channels, height, width = map(int, space.shape if self.channels_first else np.roll(space.shape, 1))
        convolutions = []
        for filters, kernel, stride in self.convolutions:
            convolutions.append(nn.Conv2d(channels, filters, kernel, stride=stride))
            channels, height, width = filters, (height - kernel) // stride + 1, (width - kernel) // stride + 1
        linear = nn.Linear(channels * height * width, self.features_dim)
        if ortho_init:
            for layer in (*convolutions, linear):
                orthogonal(layer)
        norm = [nn.LayerNorm(self.features_dim)] if config.layer_norm else []
        rectified = [module for layer in convolutions for module in (layer, nn.ReLU())]
        self.layers = nn.Sequential(*rectified, nn.Flatten(), linear, *norm, nn.ReLU())

    def forward(self, observations: Tensor) -> Tensor:
        leading = observations.shape[:-3]
        images = observations if len(leading) == 1 else observations.flatten(0, -4)
        if not self.channels_first:
            images = images.permute(0, 3, 1, 2)
        elif images.device.type == "cpu":  # where convolutions are faster with the channels last in memory
            images = images.contiguous(memory_format=torch.channels_last)
        scaled = images.float() / 255.0 if self.reads_image else images.float()
        is_lower = self.precision == "bfloat16"
        with torch.autocast(images.device.type, torch.bfloat16, enabled=is_lower):
            features: Tensor = self.layers(scaled)
        features = features.float()
        return features if len(leading) == 1 else features.reshape(*leading, -1)


class SmallCnn(NatureCnn):
    """The network of MinAtar's paper (Young and Tian 2019, https://arxiv.org/abs/1903.03176), for boards.

    One convolution, then a fully connected layer. Other numbers than those of images are read as they are.
    """

    convolutions = ((16, KERNEL, 1),)
    default_width = 128


class DictEncoder(nn.Module):
    """Encodes each key of a dictionary observation, images and boards by a CNN, and joins the results."""

    def __init__(self, space: spaces.Dict, config: PolicyConfig, *, ortho_init: bool) -> None:
        super().__init__()
        self.keys = list(space.spaces)
        parts: list[NatureCnn | VectorEncoder] = []
        for part in space.spaces.values():
            if suits_cnn(part):
                parts.append(NatureCnn(part, config, ortho_init=ortho_init))
            elif is_board(part) and not config.flatten_images:
                parts.append(SmallCnn(part, config, ortho_init=ortho_init))
            else:
                parts.append(VectorEncoder(part))
        self.parts = nn.ModuleList(parts)
        self.features_dim = sum(part.features_dim for part in parts)

    def forward(self, observations: dict[str, Tensor]) -> Tensor:
        parts = zip(self.keys, self.parts, strict=True)
        return torch.cat([part(observations[key]) for key, part in parts], dim=-1)


class CustomEncoder(nn.Module):
    """A module of the user's own, made with the space and the arguments that ``config`` names beside it.

    Whatever leading dimensions there are, it reads rows (n, *shape): float32 of a Box, images with their
    channels first and bytes divided by 255; whole numbers of other spaces; a dictionary of such for a Dict.
    Its ``features_dim`` is the width of what it returns, (n, ``features_dim``).
    """

    def __init__(self, space: Space, config: Mapping[str, Any]) -> None:
        super().__init__()
        where, arguments = "policy.encoder", dict(config)
        if "_target_" not in config:
            raise ZooError(f"`{where}` names no class; expected {{_target_: my_encoder.Narrow, width: 32}}")
        encoder_class = own_class(where, str(arguments.pop("_target_")), nn.Module)
        self.parts = dict(space.items()) if isinstance(space, spaces.Dict) else {"": space}
        turned = {key: _with_channels_first(part) for key, part in self.parts.items()}
        self._turned = {key for key, part in self.parts.items() if turned[key] is not part}
        space = spaces.Dict(turned) if isinstance(space, spaces.Dict) else turned[""]
        check_arguments(where, encoder_class, [space], arguments, {})
        self.module = encoder_class(space, **arguments)
        width = getattr(self.module, "features_dim", 0)
        if not isinstance(width, Integral) or width < 1:
            raise ZooError(
                f"`{where}`: {encoder_class.__name__} needs a `features_dim`, the number of features that it"
                " returns"
            )
        self.features_dim = int(width)

    def forward(self, observations: Any) -> Tensor:
        """Return features (…, ``features_dim``)."""
        is_dictionary = isinstance(observations, dict)
        values = {key: observations[key] for key in self.parts} if is_dictionary else {"": observations}
        key, first = next(iter(values.items()))
        leading = first.shape[: first.dim() - len(self.parts[key].shape or ())]
        rows = {key: self._rows(key, tensor, math.prod(leading)) for key, tensor in values.items()}
        features: Tensor = self.module(rows if is_dictionary else rows[""])
        expected = (math.prod(leading), self.features_dim)
        if features.shape != expected:
            raise ZooError(
                f"`policy.encoder`: {type(self.module).__name__} returned features of shape"
                f" {list(features.shape)}, expected {list(expected)} by its `features_dim`"
            )
        return features.reshape(*leading, self.features_dim)

    def _rows(self, key: str, values: Tensor, n: int) -> Tensor:
        rows = values.reshape(n, *(self.parts[key].shape or ()))
        if not isinstance(self.parts[key], spaces.Box):
            return rows.long()
        if is_image(self.parts[key]):
            rows = rows.float() / 255.0
        return (rows.movedim(-1, 1) if key in self._turned else rows).float()


class BaseFeaturesExtractor(nn.Module):
    """Stable-Baselines3's base of encoders of a user's own; any module with a ``features_dim`` is one too."""

    def __init__(self, observation_space: Space, features_dim: int = 0) -> None:
        super().__init__()
        self._observation_space, self._features_dim = observation_space, features_dim

    @property
    def features_dim(self) -> int:
        """The width of the encoder's output."""
        return self._features_dim


def _with_channels_first(space: Space) -> Space:
    """Return the space of an image as convolutions read it; any other space as it is."""
    if not is_image(space) or len(space.shape or ()) != 3 or channels_first(space.shape or ()):
        return space
    assert isinstance(space, spaces.Box)
    low, high = np.moveaxis(space.low, -1, 0), np.moveaxis(space.high, -1, 0)
    return spaces.Box(low, high, dtype=np.uint8)


Encoder = VectorEncoder | NatureCnn | DictEncoder | CustomEncoder


def make_encoder(space: Space, config: PolicyConfig, *, ortho_init: bool) -> Encoder:
    """Return the encoder that ``config`` names. Raises `ZooError` if it cannot read the space."""
    if config.precision != "float32" and config.encoder not in ("cnn", "small_cnn", "multi"):
        raise ZooError(f"policy.precision={config.precision} is of Zoo's CNN for images, as in CnnPolicy")
    if isinstance(config.encoder, Mapping):
        return CustomEncoder(space, config.encoder)
    if isinstance(space, spaces.Dict):
        if config.encoder != "multi":
            raise ZooError(f"{config.name} can't read dictionary observations; use policy=MultiInputPolicy")
        return DictEncoder(space, config, ortho_init=ortho_init)
    if config.encoder == "multi":
        raise ZooError(
            f"{config.name} reads dictionaries, but observations are a {type(space).__name__}; use MlpPolicy"
        )
    if config.encoder == "mlp":
        return VectorEncoder(space)
    what = f"the observations are a {type(space).__name__} of shape {space.shape} and type {space.dtype}"
    if config.encoder == "small_cnn":
        if not isinstance(space, spaces.Box) or _smallest_side(space) < KERNEL:
            raise ZooError(
                f"policy.encoder=small_cnn reads boards (height × width × channels, of at least"
                f" {KERNEL}×{KERNEL}), but {what}; use policy.encoder=mlp"
            )
        return SmallCnn(space, config, ortho_init=ortho_init)
    if not suits_cnn(space):
        advice = "use policy.encoder=small_cnn" if is_board(space) else "make them bytes"
        raise ZooError(
            f"{config.name} reads images (bytes, height × width × channels, of at least"
            f" {SMALLEST_IMAGE}×{SMALLEST_IMAGE} pixels), but {what}; {advice}, or use policy=MlpPolicy"
        )
    return NatureCnn(space, config, ortho_init=ortho_init)


def actor_space(space: Space, config: PolicyConfig) -> Space:
    """Return the observation space without the keys that only the critic reads. Raises `ZooError`."""
    keys = (config.critic.observations if config.critic is not None else None) or []
    if not keys:
        return space
    where = "`policy.critic.observations`"
    if not isinstance(space, spaces.Dict):
        kind = type(space).__name__
        raise ZooError(f"{where} names keys of a dictionary, but the observations are a {kind}")
    for key in keys:
        if key not in space.spaces:
            hint = nearest(key, space.spaces)
            raise ZooError(f"{where}: no observation '{key}'{hint} (known: {', '.join(space.spaces)})")
    rest = {key: part for key, part in space.spaces.items() if key not in keys}
    if not rest:
        raise ZooError(f"{where} names all observations; leave the actor some of {', '.join(space.spaces)}")
    return spaces.Dict(rest)


def suits_cnn(space: Space) -> bool:
    """Whether the Nature CNN can read ``space``: images with channels that are large enough for it."""
    return is_image(space) and _smallest_side(space) >= SMALLEST_IMAGE


def is_board(space: Space) -> bool:
    """Whether the small CNN reads ``space`` by default: whole numbers or bools, too few for `NatureCnn`."""
    is_whole = isinstance(space, spaces.Box) and np.dtype(space.dtype).kind in "bui"
    return is_whole and KERNEL <= _smallest_side(space) < SMALLEST_IMAGE


def _smallest_side(space: Space) -> int:
    """Return the smaller of height and width of an image or board with channels; 0 for other shapes."""
    shape = space.shape or ()
    return min(shape[1:] if channels_first(shape) else shape[:-1]) if len(shape) == 3 else 0


def default_hidden_sizes(encoder: Encoder) -> list[int]:
    """Return the usual widths of hidden layers: none after the CNN, which has a wide layer of its own."""
    return [] if isinstance(encoder, NatureCnn) else [64, 64]
