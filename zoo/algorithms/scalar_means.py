"""Scalars recorded while training, read as means once in a logging interval."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor


class ScalarMeans:
    """Sums of recorded values by name. Tensors stay tensors until they are read, so recording never waits.

    Rows are values of one step, which have no mean with those of others: an evaluation's.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._sums: dict[tuple[str, ...], tuple[Any, int]] = {}
        self._rows: dict[int, dict[str, float]] = {}

    def record(self, name: str, value: float | Tensor | np.ndarray) -> None:
        """Add one value."""
        self.record_all((name,), value)

    def record_all(self, names: Sequence[str], values: Any) -> None:
        """Add one value to each name; with several names, a vector of them."""
        key = tuple(names)
        total, count = self._sums.get(key, (0.0, 0))
        self._sums[key] = (total + values, count + 1)

    def record_row(self, timesteps: int, scalars: Mapping[str, float]) -> None:
        """Keep the values of one step."""
        self._rows.setdefault(timesteps, {}).update(scalars)

    def read_rows(self, before: int) -> dict[int, dict[str, float]]:
        """Return the rows of steps below ``before`` since the last call, by their steps."""
        return {step: self._rows.pop(step) for step in sorted(self._rows) if step < before}

    def read(self) -> dict[str, float]:
        """Return the means since the last call, and of the rows that were not read the latest values."""
        totals, counts = Counter[str](), Counter[str]()
        for names, (total, count) in self._sums.items():
            values = total.reshape(-1).tolist() if isinstance(total, Tensor) else [float(total)]
            totals.update(dict(zip(names, values, strict=True)))
            counts.update(dict.fromkeys(names, count))
        means = {name: total / counts[name] for name, total in totals.items()}
        for _, row in sorted(self._rows.items()):
            means.update(row)
        self._sums, self._rows = {}, {}
        return means

    def state(self) -> dict[str, Any]:
        """Return the sums as numbers for JSON."""
        return {
            "names": [list(names) for names in self._sums],
            "totals": [
                total.tolist() if isinstance(total, Tensor) else float(total)
                for total, _ in self._sums.values()
            ],
            "counts": [count for _, count in self._sums.values()],
            "rows": [[step, row] for step, row in self._rows.items()],
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` returned."""
        self._rows = {int(step): dict(row) for step, row in state.get("rows", ())}
        self._sums = {
            tuple(names): (
                torch.tensor(total, device=self._device) if isinstance(total, list) else total,
                count,
            )
            for names, total, count in zip(state["names"], state["totals"], state["counts"], strict=True)
        }
