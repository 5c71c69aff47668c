"""Keeping weights small: half the sum of their squares as a part of a loss."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from zoo.optim.parameters import Parameters


class WeightDecay:
    """Adds ``coefficient``·½Σw² to a loss, over the weights of layers, without biases and ``spared`` ones.

    Normalisation layers have no weights in this sense: only what has two dimensions or more counts.
    """

    def __init__(self, parameters: Parameters, coefficient: float, *, spared: Collection[str] = ()) -> None:
        self.coefficient = coefficient
        self._parts = [
            (parameters.slices[name], float(leaf.dim() > 1 and name not in spared))
            for name, leaf in parameters.leaves.items()
        ]

    def gradient(self, vector: Tensor) -> Tensor:
        """Return what it adds to the gradient of the parameters in ``vector``."""
        return torch.cat([vector[part] * (self.coefficient * decays) for part, decays in self._parts])

    def loss(self, vector: Tensor) -> Tensor:
        """Return what it adds to the loss."""
        return 0.5 * (self.gradient(vector) * vector).sum()
