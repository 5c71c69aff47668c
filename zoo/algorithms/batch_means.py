"""Means over the steps of a batch that count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor


def batch_mean(column: Tensor, batch: Mapping[str, Any]) -> Tensor:
    """Return the mean of a column of a batch, over the steps that count.

    These are all, unless the batch has ``weights``: 0 for the steps that merely reset an environment.
    """
    weights = batch.get("weights")
    return column.mean() if weights is None else (weights * column).sum() / weights.sum()
