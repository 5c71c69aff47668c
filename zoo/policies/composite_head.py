"""The head of any action space, and the one that joins others for Tuple and Dict spaces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from zoo.envs.spaces import leaf_spaces, nested
from zoo.errors import ZooError
from zoo.policies.choosing import total
from zoo.policies.config import PolicyConfig
from zoo.policies.gaussian_heads import DiagonalGaussian
from zoo.policies.heads import Array, Categorical, Head
from zoo.policies.multi_heads import Bernoulli, MultiCategorical
from zoo.policies.state_dependent_heads import SquashedStateDependentGaussian, StateDependentGaussian


def make_head(
    space: spaces.Space[Any], features_dim: int, config: PolicyConfig, *, use_sde: bool = False
) -> Head:
    """Return the head of an action space, on ``features_dim`` features; ``use_sde`` is for Box.

    Raises `ZooError` for a space that has none.
    """
    if use_sde:
        assert isinstance(space, spaces.Box)
        head_class = SquashedStateDependentGaussian if config.squash_output else StateDependentGaussian
        return head_class(space, features_dim, config, learns_features=False, log_std_init=0.0)
    if isinstance(space, spaces.Discrete):
        return Categorical(space, features_dim)
    if isinstance(space, spaces.MultiDiscrete):
        return MultiCategorical(space, features_dim)
    if isinstance(space, spaces.MultiBinary):
        return Bernoulli(space, features_dim)
    if isinstance(space, spaces.Box):
        return DiagonalGaussian(space, features_dim, config.log_std_init or 0.0)
    if isinstance(space, spaces.Tuple | spaces.Dict):
        return CompositeHead(space, features_dim, config)
    raise ZooError(f"actions of {space} are not supported; wrap the env to flatten them")


class CompositeHead(Head):
    """Independent parts of a Tuple or Dict action, nested at will; a head each, on the same features.

    Parameters, noise and masks of the parts stand side by side, in the order of the space; a part that can't
    be masked has none. Actions are a dictionary by path, as in `zoo.policies.codecs`.
    """

    def __init__(
        self, space: spaces.Tuple[Any] | spaces.Dict, features_dim: int, config: PolicyConfig
    ) -> None:
        super().__init__()
        self.space = space
        self.paths = [path for path, _ in leaf_spaces(space)]
        self.parts = nn.ModuleList(make_head(leaf, features_dim, config) for _, leaf in leaf_spaces(space))
        self.heads: dict[str, Head] = dict(zip(self.paths, self.parts, strict=True))  # type: ignore[arg-type]
        heads = list(self.heads.values())
        self.parameter_sizes = [head.parameter_size for head in heads]
        self.noise_sizes = [head.noise_size for head in heads]
        self.mask_sizes = [head.mask_size or 0 for head in heads]
        self.parameter_size, self.noise_size = sum(self.parameter_sizes), sum(self.noise_sizes)
        self.mask_size = sum(self.mask_sizes) or None
        self.cloning_settles_entropy = any(head.cloning_settles_entropy for head in heads)

    def forward(self, features: Tensor) -> Tensor:
        return torch.cat([head(features) for head in self.heads.values()], dim=-1)

    def _masked(self, parameters: Any, masks: Any) -> Any:
        parts = zip(
            self.heads.values(),
            split(parameters, self.parameter_sizes),
            split(masks, self.mask_sizes),
            strict=True,
        )
        masked = [part if head.mask_size is None else head.masked(part, mask) for head, part, mask in parts]
        return (
            torch.cat(masked, dim=-1) if isinstance(parameters, Tensor) else np.concatenate(masked, axis=-1)
        )

    def _has_choice(self, masks: Array) -> bool:
        parts = zip(self.heads.values(), split(masks, self.mask_sizes), strict=True)
        return all(head.mask_size is None or head._has_choice(mask) for head, mask in parts)

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return np.concatenate([head.noise(rng, shape) for head in self.heads.values()], axis=-1)

    def sample(self, parameters: Array, noise: Array) -> dict[str, Array]:
        return {
            path: head.sample(part, part_noise)
            for (path, head), part, part_noise in zip(
                self.heads.items(),
                split(parameters, self.parameter_sizes),
                split(noise, self.noise_sizes),
                strict=True,
            )
        }

    def mode(self, parameters: Array) -> dict[str, Array]:
        return self._by_path(lambda head, part: head.mode(part), parameters)

    def describe(self, parameters: Array) -> Any:
        """Return what the parts say, in tuples and dictionaries like the actions."""
        return nested(self.space, self._by_path(lambda head, part: head.describe(part), parameters))

    def log_prob(self, parameters: Tensor, actions: dict[str, Tensor]) -> Tensor:
        parts = self._by_path(lambda head, part: part, parameters)
        return total([head.log_prob(parts[path], actions[path]) for path, head in self.heads.items()])

    def entropy(self, parameters: Tensor) -> Tensor:
        return total(list(self._by_path(lambda head, part: head.entropy(part), parameters).values()))

    def log_prob_and_entropy(self, parameters: Tensor, actions: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        parts = self._by_path(lambda head, part: part, parameters)
        both = [head.log_prob_and_entropy(parts[path], actions[path]) for path, head in self.heads.items()]
        return total([log_prob for log_prob, _ in both]), total([entropy for _, entropy in both])

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        old_parts, new_parts = split(old, self.parameter_sizes), split(new, self.parameter_sizes)
        parts = zip(self.heads.values(), old_parts, new_parts, strict=True)
        return total([head.kl(old_part, new_part) for head, old_part, new_part in parts])

    def imitation_loss(self, parameters: Tensor, actions: dict[str, Tensor]) -> Tensor:
        """Return the sum (…) of the parts' losses."""
        parts = self._by_path(lambda head, part: part, parameters)
        return total([head.imitation_loss(parts[path], actions[path]) for path, head in self.heads.items()])

    def imitation_entropy(self, parameters: Tensor) -> Tensor:
        """Return the sum (…) of the entropies of those parts that the loss holds."""
        parts = self._by_path(lambda head, part: part, parameters)
        held = {path: head for path, head in self.heads.items() if head.cloning_settles_entropy}
        return total([head.imitation_entropy(parts[path]) for path, head in held.items()])

    def _by_path(self, function: Callable[[Head, Any], Any], parameters: Any) -> dict[str, Any]:
        parts = zip(self.heads.items(), split(parameters, self.parameter_sizes), strict=True)
        return {path: function(head, part) for (path, head), part in parts}


def split(values: Any, sizes: list[int]) -> list[Any]:
    """Return the parts of these sizes along the last axis, of a tensor or an array."""
    if isinstance(values, Tensor):
        return list(values.split(sizes, dim=-1))
    return np.split(values, np.cumsum(sizes)[:-1], axis=-1)
