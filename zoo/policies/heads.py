"""Action heads: from features to the parameters of a distribution over actions, and what follows from them.

A head is a module with the last layers before an action. Its parameters are the numbers (…,
``parameter_size``) that its forward pass returns, after `Head.masked`: all else is computed from them alone,
on arrays for acting (with noise drawn ahead), on tensors for updates. Actions here are flat and count from
zero; `zoo.policies.codecs` makes what the environment takes. Leading dimensions are free everywhere.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor, nn

from zoo.errors import ZooError
from zoo.policies.choosing import gumbel, pick, softmax, total, where

Array = np.ndarray

INVALID = -1e8
"""The logit of an action that a mask forbids: its probability is exactly 0, and so is its gradient."""


class Head(nn.Module, ABC):
    """How actions of one space are drawn, and how likely they are.

    ``noise_size`` numbers of noise make one action; ``mask_size`` says how wide a mask is, None where actions
    can't be masked.
    """

    parameter_size: int
    noise_size: int
    mask_size: int | None = None
    cloning_settles_entropy: bool = True
    """Whether `imitation_loss` says how random actions shall be: a likelihood does, an error does not."""

    @abstractmethod
    def forward(self, features: Tensor) -> Tensor:
        """Return parameters (…, ``parameter_size``)."""

    def masked(self, parameters: Any, masks: Any | None) -> Any:
        """Return parameters under which only actions whose mask is true can be drawn; tensors or arrays.

        Raises `ZooError` for an array of masks that leaves a row no action, or that does not fit.
        """
        if masks is None:
            return parameters
        if isinstance(masks, np.ndarray):
            self.check_masks(masks)
        return self._masked(parameters, masks)

    def check_masks(self, masks: Array) -> None:
        """Raise `ZooError` for masks (…, ``mask_size``) that leave a row no action, or that do not fit."""
        if self.mask_size is None:
            raise ZooError("the env masks actions, but actions that are numbers (Box) can't be masked")
        if masks.shape[-1] != self.mask_size:
            raise ZooError(
                f"an action mask has {masks.shape[-1]} entries, but this space needs {self.mask_size}"
            )
        if not self._has_choice(masks):
            raise ZooError("an action mask forbids every action; an env must leave at least one")

    def _masked(self, parameters: Any, masks: Any) -> Any:
        return where(masks, parameters, INVALID)

    def _has_choice(self, masks: Array) -> bool:
        return bool(np.logical_or.reduce(masks, axis=-1).all())

    @abstractmethod
    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Draw what `sample` needs, (*shape, ``noise_size``)."""

    @abstractmethod
    def sample(self, parameters: Array, noise: Array) -> Any:
        """Return actions drawn with this noise."""

    @abstractmethod
    def mode(self, parameters: Array) -> Any:
        """Return the likeliest actions."""

    @abstractmethod
    def describe(self, parameters: Array) -> Any:
        """Return what people want to know of the distribution: probabilities, or mean and deviation."""

    @abstractmethod
    def log_prob(self, parameters: Tensor, actions: Any) -> Tensor:
        """Return the actions' log-probabilities (…)."""

    @abstractmethod
    def entropy(self, parameters: Tensor) -> Tensor:
        """Return the distributions' entropies (…)."""

    def log_prob_and_entropy(self, parameters: Tensor, actions: Any) -> tuple[Tensor, Tensor]:
        """Return both, computing only once what they share."""
        return self.log_prob(parameters, actions), self.entropy(parameters)

    @abstractmethod
    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        """Return KL(old ‖ new) (…), summed over action dimensions."""

    def imitation_loss(self, parameters: Tensor, actions: Any) -> Tensor:
        """Return how far (…) the distribution is from an expert's actions: minus their log-probability."""
        return -self.log_prob(parameters, actions)

    def imitation_entropy(self, parameters: Tensor) -> Tensor:
        """Return the entropies (…) of what `imitation_loss` holds; there are none where it settles none."""
        return self.entropy(parameters)


class Choices(Head):
    """What is drawn from finitely many actions, by logits.

    Subclasses turn parameters into tables: log-probabilities (…, n) of each choice's alternatives.
    """

    def __init__(self, n_logits: int, features_dim: int | None) -> None:
        super().__init__()
        self.parameter_size = self.noise_size = self.mask_size = n_logits
        self.logits = nn.Identity() if features_dim is None else nn.Linear(features_dim, n_logits)

    def forward(self, features: Tensor) -> Tensor:
        return self.logits(features)

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return gumbel(rng, (*shape, self.noise_size))

    def sample(self, parameters: Array, noise: Array) -> Array:
        return self.mode(parameters + noise)

    @abstractmethod
    def _tables(self, parameters: Tensor) -> Sequence[Tensor]: ...

    @abstractmethod
    def _chosen(self, tables: Sequence[Tensor], actions: Tensor) -> Tensor: ...

    def _mean(self, tables: Sequence[Tensor], values: Sequence[Tensor]) -> Tensor:
        """Return Σ p·value over all alternatives and choices."""
        return total([(log.exp() * value).sum(-1) for log, value in zip(tables, values, strict=True)])

    def log_prob(self, parameters: Tensor, actions: Tensor) -> Tensor:
        return self._chosen(self._tables(parameters), actions)

    def entropy(self, parameters: Tensor) -> Tensor:
        tables = self._tables(parameters)
        return -self._mean(tables, tables)

    def log_prob_and_entropy(self, parameters: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        tables = self._tables(parameters)
        return self._chosen(tables, actions), -self._mean(tables, tables)

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        tables = self._tables(old)
        return self._mean(tables, [a - b for a, b in zip(tables, self._tables(new), strict=True)])


class Categorical(Choices):
    """One choice out of n."""

    def __init__(self, space: spaces.Discrete, features_dim: int) -> None:
        super().__init__(int(space.n), features_dim)

    def mode(self, parameters: Array) -> Array:
        return parameters.argmax(-1)

    def describe(self, parameters: Array) -> Array:
        """Return the probabilities (…, n)."""
        return softmax(parameters)

    def _tables(self, parameters: Tensor) -> Sequence[Tensor]:
        return (F.log_softmax(parameters, dim=-1),)

    def _chosen(self, tables: Sequence[Tensor], actions: Tensor) -> Tensor:
        return pick(tables[0], actions)
