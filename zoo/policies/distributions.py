"""Action distributions: a network's output to sampled actions, log-probabilities and entropies.

Sampling happens while collecting, on arrays, with noise drawn ahead; log-probabilities and entropies happen
in updates, on tensors. Actions here are flat and count from zero; `to_env` makes what the environment takes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor

from zoo.errors import ZooError

Array = np.ndarray


class ActionDistribution(ABC):
    """How actions of one space are drawn, given the ``parameter_size`` outputs of the actor's last layer."""

    parameter_size: int
    action_shape: tuple[int, ...]
    action_dtype: type[np.generic] = np.float32
    has_log_std = False

    @abstractmethod
    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Draw what `sample` needs for a batch of ``shape`` (steps, environments)."""

    @abstractmethod
    def sample(self, parameters: Array, log_std: Array | None, noise: Array) -> Array:
        """Draw actions (batch, …) from parameters (batch, ``parameter_size``)."""

    @abstractmethod
    def mode(self, parameters: Array) -> Array:
        """Return the likeliest actions."""

    @abstractmethod
    def log_prob_and_entropy(
        self, parameters: Tensor, log_std: Tensor | None, actions: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the actions' log-probabilities and the distribution's entropies, both (batch,)."""

    @abstractmethod
    def to_env(self, actions: Array) -> Array:
        """Return actions as the environment takes them."""


class Categorical(ActionDistribution):
    """One choice out of n."""

    action_shape = ()
    action_dtype = np.int64

    def __init__(self, space: spaces.Discrete) -> None:
        self.parameter_size = int(space.n)
        self.start = int(space.start)

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return gumbel(rng, (*shape, self.parameter_size))

    def sample(self, parameters: Array, log_std: Array | None, noise: Array) -> Array:
        return (parameters + noise).argmax(-1)

    def mode(self, parameters: Array) -> Array:
        return parameters.argmax(-1)

    def log_prob_and_entropy(
        self, parameters: Tensor, log_std: Tensor | None, actions: Tensor
    ) -> tuple[Tensor, Tensor]:
        log_probs = F.log_softmax(parameters, dim=-1)
        chosen = pick(log_probs, actions)
        return chosen, -(log_probs.exp() * log_probs).sum(-1)

    def to_env(self, actions: Array) -> Array:
        return actions + self.start if self.start else actions


class MultiCategorical(ActionDistribution):
    """Several independent choices."""

    action_dtype = np.int64

    def __init__(self, space: spaces.MultiDiscrete) -> None:
        self.sizes = [int(n) for n in space.nvec.reshape(-1)]
        self.splits = np.cumsum(self.sizes)[:-1]
        self.parameter_size = sum(self.sizes)
        self.action_shape = (len(self.sizes),)
        self.space = space

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return gumbel(rng, (*shape, self.parameter_size))

    def sample(self, parameters: Array, log_std: Array | None, noise: Array) -> Array:
        return self.mode(parameters + noise)

    def mode(self, parameters: Array) -> Array:
        parts = np.split(parameters, self.splits, axis=-1)
        return np.stack([part.argmax(-1) for part in parts], axis=-1)

    def log_prob_and_entropy(
        self, parameters: Tensor, log_std: Tensor | None, actions: Tensor
    ) -> tuple[Tensor, Tensor]:
        log_prob = torch.zeros_like(parameters[..., 0])
        entropy = log_prob
        for logits, action in zip(parameters.split(self.sizes, -1), actions.unbind(-1), strict=True):
            log_probs = F.log_softmax(logits, dim=-1)
            log_prob = log_prob + pick(log_probs, action)
            entropy = entropy - (log_probs.exp() * log_probs).sum(-1)
        return log_prob, entropy

    def to_env(self, actions: Array) -> Array:
        shaped = actions.reshape(len(actions), *self.space.nvec.shape) + self.space.start
        return shaped.astype(self.space.dtype, copy=False)


class Bernoulli(ActionDistribution):
    """Independent bits."""

    action_dtype = np.int8

    def __init__(self, space: spaces.MultiBinary) -> None:
        self.space = space
        self.parameter_size = math.prod(space.shape)
        self.action_shape = (self.parameter_size,)

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return rng.logistic(size=(*shape, self.parameter_size)).astype(np.float32)

    def sample(self, parameters: Array, log_std: Array | None, noise: Array) -> Array:
        return self.mode(parameters + noise)

    def mode(self, parameters: Array) -> Array:
        return (parameters > 0).astype(np.int8)

    def log_prob_and_entropy(
        self, parameters: Tensor, log_std: Tensor | None, actions: Tensor
    ) -> tuple[Tensor, Tensor]:
        log_one, log_zero = F.logsigmoid(parameters), F.logsigmoid(-parameters)
        log_prob = torch.where(actions > 0, log_one, log_zero).sum(-1)
        return log_prob, -(log_one.exp() * log_one + log_zero.exp() * log_zero).sum(-1)

    def to_env(self, actions: Array) -> Array:
        return actions.reshape(len(actions), *self.space.shape)


class DiagonalGaussian(ActionDistribution):
    """A Gaussian with a standard deviation that does not depend on the state.

    The environment gets the action clipped to its bounds; memory and log-probability keep it as drawn.
    """

    has_log_std = True

    def __init__(self, space: spaces.Box) -> None:
        self.space = space
        self.parameter_size = math.prod(space.shape)
        self.action_shape = (self.parameter_size,)

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return rng.standard_normal((*shape, self.parameter_size), dtype=np.float32)

    def sample(self, parameters: Array, log_std: Array | None, noise: Array) -> Array:
        assert log_std is not None
        return parameters + np.exp(log_std) * noise

    def mode(self, parameters: Array) -> Array:
        return parameters

    def log_prob_and_entropy(
        self, parameters: Tensor, log_std: Tensor | None, actions: Tensor
    ) -> tuple[Tensor, Tensor]:
        assert log_std is not None
        entropy = (log_std + 0.5 * math.log(2 * math.pi * math.e)).sum(-1)
        return gaussian_log_prob(actions, parameters, log_std).sum(-1), entropy.expand(len(parameters))

    def to_env(self, actions: Array) -> Array:
        shaped = actions.reshape(len(actions), *self.space.shape)
        return np.clip(shaped, self.space.low, self.space.high).astype(self.space.dtype, copy=False)


def make_distribution(space: spaces.Space[Any]) -> ActionDistribution:
    """Return the distribution for an action space. Raises `ZooError` for a space that has none."""
    if isinstance(space, spaces.Discrete):
        return Categorical(space)
    if isinstance(space, spaces.MultiDiscrete):
        return MultiCategorical(space)
    if isinstance(space, spaces.MultiBinary):
        return Bernoulli(space)
    if isinstance(space, spaces.Box):
        return DiagonalGaussian(space)
    raise ZooError(f"actions of {space} are not supported; wrap the env to flatten them")


def pick(values: Tensor, index: Tensor) -> Tensor:
    """Return from each row of ``values`` (…, n) the entry at ``index`` (…).

    The gradient of ``gather`` would be a scatter, which compiled updates can't fuse.
    """
    is_picked = torch.arange(values.shape[-1], device=values.device) == index.unsqueeze(-1)
    return torch.where(is_picked, values, 0.0).sum(-1)


def gaussian_log_prob(values: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """Return the log density of each value under its own normal distribution."""
    deviation = (values - mean) * torch.exp(-log_std)
    return -0.5 * deviation.square() - log_std - 0.5 * math.log(2 * math.pi)


def gumbel(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Draw standard Gumbel noise: added to logits, its argmax is a sample of their categorical."""
    exponential = rng.standard_exponential(shape, dtype=np.float32)
    return -np.log(np.maximum(exponential, np.float32(1e-30)))
