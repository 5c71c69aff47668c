"""Masks that a policy is asked with: one row an observation, whatever form they are given in."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from zoo.envs.masks import flat_mask
from zoo.envs.spaces import describe
from zoo.errors import ZooError, ZooWarning

Array = np.ndarray


def rows_of_masks(action_masks: Any, n: int, action_space: spaces.Space[Any], size: int | None) -> Array:
    """Return an array of masks, or ``n`` masks in whatever form, as rows (n, ``size``).

    Raises `ZooError` for masks that don't fit, and for actions without any: ``size`` is None.
    """
    if size is None:
        raise ZooError(f"`action_masks` can't be taken: {describe(action_space)} has no masks")
    if isinstance(action_masks, Mapping):
        raise ZooError(
            f"`action_masks` are a dictionary, but {n} observations take {n} of them: a list, a mask each"
        )
    is_one_row = n == 1 and isinstance(action_masks, np.ndarray) and action_masks.ndim == 1
    masks = [action_masks] if is_one_row else action_masks
    rows = _stacked([flat_mask(mask, action_space) for mask in masks])
    if rows.shape != (n, size):
        raise ZooError(
            f"`action_masks` of shape {rows.shape} don't fit: expected {n} × {size},"
            f" a row an observation and an entry for each choice of {describe(action_space)}"
        )
    return rows


def tell_of_missing_masks() -> None:
    """Warn of a question without masks to an agent that learned with them."""
    warnings.warn(
        "this agent learned to choose among valid actions only, and is asked without `action_masks`: any"
        " action may be its answer",
        ZooWarning,
        stacklevel=4,
    )


def _stacked(masks: Sequence[Array]) -> Array:
    """Return masks as rows. Raises `ZooError` for masks of several lengths."""
    sizes = sorted({len(mask) for mask in masks})
    if len(sizes) > 1:
        raise ZooError(f"`action_masks` of {sizes[0]} and of {sizes[-1]} actions: all must have one length")
    return np.stack(masks) if masks else np.zeros((0, 0), np.bool_)
