"""Seeds: the sequence that each environment has of its own, and those of its spaces."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np


def env_seed(first: int, n: int) -> int:
    """Return the seed ``n`` of the sequence that begins with ``first``: that one itself for 0."""
    return first if n == 0 else _of_31_bits(np.random.SeedSequence([first, n]))


def random_seed() -> int:
    """Return a seed by chance."""
    return _of_31_bits(np.random.SeedSequence())


def derived_seeds(seed: int, n: int) -> list[int]:
    """Return the seeds of ``n`` streams of random numbers that come from one seed."""
    return [int(word) for word in np.random.SeedSequence(seed, spawn_key=(0,)).generate_state(n)]


def seed_spaces(env: gym.Env[Any, Any], seed: int) -> None:
    """Seed every space of ``env``, for some environments draw from their own spaces.

    Each gets a seed of its own: drawn from the same numbers, actions and states would go together.
    """
    found: dict[int, gym.spaces.Space[Any]] = {}
    while True:
        for space in (env.action_space, env.observation_space):
            found.setdefault(id(space), space)
        if not isinstance(env, gym.Wrapper):
            break
        env = env.env
    for space, own_seed in zip(found.values(), derived_seeds(seed, len(found)), strict=True):
        space.seed(own_seed)


def _of_31_bits(sequence: np.random.SeedSequence) -> int:
    """Return a seed that every simulator takes, C++'s with a sign among them."""
    return int(sequence.generate_state(1)[0]) >> 1
