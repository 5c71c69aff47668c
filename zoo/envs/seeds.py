"""Seeds: the sequence that each environment has of its own, and those of its spaces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np

LARGEST_SEED = 2**31 - 1
"""C++ takes seeds of 32 bits with a sign."""


def seeds_of(first: int, n: int, n_spaces: int) -> tuple[int, list[int]]:
    """Return seed ``n`` of the sequence that begins with ``first`` (itself for 0), and those of spaces."""
    own, *others = np.random.SeedSequence([first, n]).generate_state(1 + n_spaces).tolist()
    return (first if n == 0 else own >> 1), others


def random_seed() -> int:
    """Return a seed by chance, small enough for every simulator: C++'s have a sign."""
    return int(np.random.SeedSequence().generate_state(1)[0]) >> 1


def derived_seeds(seed: int, n: int) -> list[int]:
    """Return the seeds of ``n`` streams of random numbers that come from one seed."""
    return [int(word) for word in np.random.SeedSequence(seed, spawn_key=(0,)).generate_state(n)]


def small_seeds(seed: int | Sequence[int], n: int) -> list[int]:
    """Return a seed for each of ``n`` simulators in C++; one number gives i ``seed + i``."""
    each = [seed + i for i in range(n)] if isinstance(seed, int | np.integer) else seed
    return [int(single) % LARGEST_SEED for single in each]


def worker_seed(seed: int, rank: int) -> int:
    """Return the seed of one of several processes that learn as one."""
    return int(np.random.SeedSequence(seed, spawn_key=(1, rank)).generate_state(1)[0])


def spaces_of(env: gym.Env[Any, Any]) -> list[gym.spaces.Space[Any]]:
    """Return every space of ``env`` and of what it wraps, for some environments draw from their own spaces.

    Each is seeded by itself: drawn from the same numbers, actions and states would go together.
    """
    found: dict[int, gym.spaces.Space[Any]] = {}
    while True:
        for space in (env.action_space, env.observation_space):
            found.setdefault(id(space), space)
        if not isinstance(env, gym.Wrapper):
            return list(found.values())
        env = env.env


def seed_spaces(env: gym.Env[Any, Any], seed: int) -> None:
    """Seed every space of ``env`` with a seed of its own that comes from one number."""
    found = spaces_of(env)
    for space, own_seed in zip(found, seeds_of(seed, 0, len(found))[1], strict=True):
        space.seed(own_seed)
