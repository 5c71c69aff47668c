"""Which stored transitions a batch is made of, and how much each of them counts."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

Array = np.ndarray


class Drawn(NamedTuple):
    """Places in the rings of all environments; ``weights`` are None where all count alike."""

    positions: Array
    envs: Array
    weights: Array | None = None


class Sampler(Protocol):
    """Draws transitions from rings whose newest rows stand before ``heads`` and that hold ``sizes`` rows."""

    def draw(
        self, rng: np.random.Generator, shape: tuple[int, ...], heads: Array, sizes: Array, length: int
    ) -> Drawn:
        """Return places of that shape; every ring has ``length`` rows."""
        ...


class UniformSampler:
    """Every transition is equally likely, and may come more than once."""

    def draw(
        self, rng: np.random.Generator, shape: tuple[int, ...], heads: Array, sizes: Array, length: int
    ) -> Drawn:
        """Number all transitions, the newest of each environment first, and draw numbers."""
        numbers = rng.integers(0, int(sizes.sum()), size=shape)
        if (sizes == sizes[0]).all():
            ages, envs = np.divmod(numbers, len(sizes))
        else:
            ends = np.cumsum(sizes)
            envs = np.searchsorted(ends, numbers, side="right")
            ages = numbers - (ends - sizes)[envs]
        return Drawn((heads[envs] - 1 - ages) % length, envs)
