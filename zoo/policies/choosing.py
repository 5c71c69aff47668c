"""Arithmetic of choices among finitely many actions, on arrays for acting and on tensors for updates."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

Array = np.ndarray


def total(parts: Sequence[Tensor]) -> Tensor:
    """Return the sum of the parts."""
    return functools.reduce(operator.add, parts)


def pick(values: Tensor, index: Tensor) -> Tensor:
    """Return from each row of ``values`` (…, n) the entry at ``index`` (…).

    The gradient of ``gather`` would be a scatter, which compiled updates can't fuse.
    """
    is_picked = torch.arange(values.shape[-1], device=values.device) == index.unsqueeze(-1)
    return torch.where(is_picked, values, 0.0).sum(-1)


def gumbel(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Draw standard Gumbel noise: added to logits, its argmax is a sample of their categorical."""
    exponential = rng.standard_exponential(shape, dtype=np.float32)
    return -np.log(np.maximum(exponential, np.float32(1e-30)))


def softmax(logits: Array) -> Array:
    """Return probabilities that add up to one along the last axis."""
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def where(masks: Any, parameters: Any, otherwise: float) -> Any:
    """Return ``parameters``, or the other value where a mask is false; tensors or arrays."""
    if isinstance(parameters, Tensor):
        return torch.where(masks, parameters, otherwise)
    return np.where(masks, parameters, otherwise)
