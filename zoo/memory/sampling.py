"""Which stored transitions a batch is made of, and how much each of them counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

Array = np.ndarray


class Drawn(NamedTuple):
    """Places in the rings of all environments; ``weights`` are None where all count alike."""

    positions: Array
    envs: Array
    weights: Array | None = None


class Rings(NamedTuple):
    """The rings of all environments, of ``length`` rows each.

    Their newest rows stand before ``heads`` (n_envs,), and they hold ``sizes`` (n_envs,) rows.
    """

    heads: Array
    sizes: Array
    length: int


class Sampler(Protocol):
    """Draws transitions from rings."""

    def added(self, positions: Array, envs: Array) -> None:
        """Take note that transitions were written there; the arrays change when it returns."""
        ...

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...], rings: Rings, progress: float) -> Drawn:
        """Return places of that shape. ``progress`` is that of training."""
        ...

    def learned(self, td_errors: Array, rows: Array | slice = slice(None)) -> None:
        """Take note of the sizes of the errors of what was drawn last, of some rows (…, flat) alone."""
        ...

    def state(self) -> dict[str, Any]:
        """Return all that the next draws depend on."""
        ...

    def load_state(self, state: Mapping[str, Any], rings: Rings) -> None:
        """Take over what `state` returned, of what these rings hold."""
        ...


class UniformSampler:
    """Every transition is equally likely, and may come more than once."""

    def added(self, positions: Array, envs: Array) -> None:
        """Need not know."""

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...], rings: Rings, progress: float) -> Drawn:
        """Number all transitions, the newest of each environment first, and draw numbers."""
        heads, sizes, length = rings
        each = sizes.tolist()
        numbers = rng.integers(0, sum(each), size=shape)
        if len(each) == 1:
            ages, envs = numbers, np.zeros(shape, np.int64)
        elif min(each) == max(each):
            ages, envs = np.divmod(numbers, len(each))
        else:
            ends = np.cumsum(sizes)
            envs = np.searchsorted(ends, numbers, side="right")
            ages = numbers - (ends - sizes)[envs]
        are_equal = len(set(heads.tolist())) == 1
        newest = (heads[0] if are_equal else heads.take(envs)) - 1
        return Drawn((newest - ages) % length, envs)

    def learned(self, td_errors: Array, rows: Array | slice = slice(None)) -> None:
        """Need not know."""

    def state(self) -> dict[str, Any]:
        """Return nothing: a draw depends on the rings alone."""
        return {}

    def load_state(self, state: Mapping[str, Any], rings: Rings) -> None:
        """Take over nothing."""
