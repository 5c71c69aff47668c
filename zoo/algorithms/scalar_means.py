"""Scalars recorded while training, read as means once in a logging interval."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor


class ScalarMeans:
    """Sums of recorded values by name. Tensors stay tensors until they are read, so recording never waits."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[Any, int]] = {}

    def record(self, name: str, value: float | Tensor | np.ndarray) -> None:
        """Add one value; a vector holds several scalars (see `read`)."""
        total, count = self._sums.get(name, (0.0, 0))
        self._sums[name] = (total + value, count + 1)

    def read(self, vector_names: list[str]) -> dict[str, float]:
        """Return the means since the last call; a vector's under ``<its name>/<vector name>``."""
        means: dict[str, float] = {}
        for name, (total, count) in self._sums.items():
            if isinstance(total, Tensor) and total.ndim > 0:
                values = zip(vector_names, (total / count).tolist(), strict=True)
                means.update({f"{name}/{part}": value for part, value in values})
            else:
                means[name] = float(total) / count
        self._sums = {}
        return means

    def state(self) -> dict[str, Any]:
        """Return the sums as numbers for JSON."""
        return {
            name: (total.tolist() if isinstance(total, Tensor) else float(total), count)
            for name, (total, count) in self._sums.items()
        }

    def load_state(self, values: dict[str, Any], device: torch.device) -> None:
        """Take over what `state` returned."""
        self._sums = {
            name: (torch.tensor(total, device=device) if isinstance(total, list) else total, count)
            for name, (total, count) in values.items()
        }
