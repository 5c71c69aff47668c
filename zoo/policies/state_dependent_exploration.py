"""Exploring by noise that is a function of the state: when its weights are drawn, and how long they stay."""

from __future__ import annotations

import numpy as np

from zoo.memory.arrays import Column
from zoo.policies.acting import ActingPolicy
from zoo.policies.codecs import Codec
from zoo.policies.exploration import (
    NormalNoise,
    OrnsteinUhlenbeckNoise,
    Seen,
    StochasticExploration,
    n_rows,
)
from zoo.policies.heads import Array, Head


class HeldNoise:
    """The noise of a head, of each environment its own, drawn anew every ``every`` steps; -1: only once.

    One object is for one collection, which always begins with a new draw. So nothing of it outlasts an
    update, and a checkpoint needs none of it.
    """

    def __init__(self, head: Head, every: int) -> None:
        self.head, self.every = head, every
        self._n_steps = 0
        self._noise: Array | None = None

    def next(self, rng: np.random.Generator, n_envs: int) -> Array:
        """Return the noise (n_envs, …) of the next step."""
        if self._noise is None or self._n_steps == self.every:
            self._noise, self._n_steps = self.head.noise(rng, (n_envs,)), 0
        self._n_steps += 1
        return self._noise


class StateDependentExploration(StochasticExploration):
    """Actions whose noise is held for ``every`` steps, also ``at_warmup``, in the place of random ones.

    Draws the weights of the noise where they are due, also while actions are random, then as
    `StochasticExploration`.
    """

    def __init__(
        self,
        acting: ActingPolicy,
        codec: Codec,
        noise: NormalNoise | OrnsteinUhlenbeckNoise | None = None,
        random_share: float = 0.0,
        *,
        every: int = -1,
        at_warmup: bool = False,
    ) -> None:
        super().__init__(acting, codec, noise, random_share)
        self.every, self.at_warmup = every, at_warmup
        self.start()

    def start(self) -> None:
        self._held = HeldNoise(self.acting.head, self.every)

    def warm_up(self, seen: Seen, rng: np.random.Generator) -> Column:
        if self.at_warmup:
            return self.act(seen, rng, 0.0)
        self._own_noise(rng, n_rows(seen))
        return self.random(seen, rng)

    def _own_noise(self, rng: np.random.Generator, n: int) -> Array:
        return self._held.next(rng, n)
