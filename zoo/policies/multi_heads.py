"""Heads of several independent choices at once: MultiDiscrete and MultiBinary actions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor

from zoo.policies.choosing import pick, softmax, total, where
from zoo.policies.heads import INVALID, Array, Choices


class MultiCategorical(Choices):
    """Several independent choices; their logits, and their masks, side by side."""

    def __init__(self, space: spaces.MultiDiscrete, features_dim: int) -> None:
        self.sizes = [int(n) for n in space.nvec.reshape(-1)]
        ends = itertools.accumulate(self.sizes)
        self.slices = [slice(end - size, end) for size, end in zip(self.sizes, ends, strict=True)]
        super().__init__(sum(self.sizes), features_dim)

    def _has_choice(self, masks: Array) -> bool:
        return all(bool(part.any(-1).all()) for part in self._parts(masks))

    def mode(self, parameters: Array) -> Array:
        actions = np.empty((*parameters.shape[:-1], len(self.sizes)), np.int64)
        for index, part in enumerate(self._parts(parameters)):
            actions[..., index] = part.argmax(-1)
        return actions

    def describe(self, parameters: Array) -> list[Array]:
        """Return a list of probabilities (…, n), one array for each choice."""
        return [softmax(part) for part in self._parts(parameters)]

    def _parts(self, parameters: Array) -> list[Array]:
        return [parameters[..., part] for part in self.slices]

    def _tables(self, parameters: Tensor) -> Sequence[Tensor]:
        return [F.log_softmax(logits, dim=-1) for logits in parameters.split(self.sizes, dim=-1)]

    def _chosen(self, tables: Sequence[Tensor], actions: Tensor) -> Tensor:
        return total([pick(table, action) for table, action in zip(tables, actions.unbind(-1), strict=True)])


class Bernoulli(Choices):
    """Independent bits, by the logit of being one; a mask has two entries a bit: may it be 0, may it be 1."""

    def __init__(self, space: spaces.MultiBinary, features_dim: int) -> None:
        super().__init__(math.prod(space.shape), features_dim)
        self.mask_size = 2 * self.parameter_size

    def _masked(self, parameters: Any, masks: Any) -> Any:
        pairs = self._pairs(masks)
        return where(pairs[..., 1], where(pairs[..., 0], parameters, -INVALID), INVALID)

    def _has_choice(self, masks: Array) -> bool:
        return bool(self._pairs(masks).any(-1).all())

    def _pairs(self, masks: Any) -> Any:
        return masks.reshape(*masks.shape[:-1], self.parameter_size, 2)

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return rng.logistic(size=(*shape, self.noise_size)).astype(np.float32)

    def mode(self, parameters: Array) -> Array:
        return (parameters > 0).view(np.int8)

    def describe(self, parameters: Array) -> Array:
        """Return the probability of each bit (…, bits)."""
        return softmax(np.stack([parameters, np.zeros_like(parameters)], axis=-1))[..., 0]

    def _tables(self, parameters: Tensor) -> Sequence[Tensor]:
        return F.logsigmoid(-parameters), F.logsigmoid(parameters)

    def _chosen(self, tables: Sequence[Tensor], actions: Tensor) -> Tensor:
        log_zero, log_one = tables
        return torch.where(actions > 0, log_one, log_zero).sum(-1)

    def _mean(self, tables: Sequence[Tensor], values: Sequence[Tensor]) -> Tensor:
        return total([log.exp() * value for log, value in zip(tables, values, strict=True)]).sum(-1)
