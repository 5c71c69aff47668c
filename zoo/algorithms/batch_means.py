"""Means over the steps of a batch that count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from zoo.optim import workers

COUNTED = "n_counted"
"""How many steps of a batch count, as a mean over workers."""


def counted(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Return a batch with the number of its steps that count, so that workers have to meet for it only once.

    It is the mean over workers, of whose batches some may have more steps that count than others: so means
    of `batch_mean`, averaged over workers, are those over the batches of all together.
    """
    weights = batch.get("weights")
    return dict(batch) if weights is None else {**batch, COUNTED: workers.averaged(weights.sum())}


def batch_mean(column: Tensor, batch: Mapping[str, Any]) -> Tensor:
    """Return the mean of a column of a batch, over the steps that count.

    These are all, unless the batch has ``weights``: 0 for the steps that merely reset an environment. The sum
    is then divided by how many steps are `counted`, where the batch says that; otherwise by those of its own.
    """
    weights = batch.get("weights")
    if weights is None:
        return column.mean()
    return (weights * column).sum() / (batch[COUNTED] if COUNTED in batch else weights.sum())
