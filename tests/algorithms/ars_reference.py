"""ARS as slowly and plainly as it can be written: one candidate after the other, one number at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from zoo.envs.replay import seeds_of, spaces_of


def moved(
    weights: Sequence[float],
    deltas: Sequence[Sequence[float]],
    plus: Sequence[float],
    minus: Sequence[float],
    *,
    learning_rate: float,
    n_top: int,
) -> list[float]:
    """Return the weights after an update by the paper's algorithms 1 and 2, line 7."""
    order = sorted(range(len(deltas)), key=lambda i: max(plus[i], minus[i]), reverse=True)[:n_top]
    used = [plus[i] for i in order] + [minus[i] for i in order]
    mean = math.fsum(used) / len(used)
    deviation = math.sqrt(math.fsum((score - mean) ** 2 for score in used) / (len(used) - 1))
    step = learning_rate / (n_top * deviation + 1e-6)
    return [
        weight + step * math.fsum((plus[i] - minus[i]) * deltas[i][j] for i in order)
        for j, weight in enumerate(weights)
    ]


def episode(
    env: gym.Env[Any, Any], seed: int, weights: np.ndarray, mean: Any, scale: Any
) -> tuple[float, list[Any]]:
    """Play an episode by the sign of W·(o − mean)·scale with two rows; return the score and what was seen."""
    own_seed, space_seeds = seeds_of(seed, 0, len(spaces_of(env)))
    for space, space_seed in zip(spaces_of(env), space_seeds, strict=True):
        space.seed(space_seed)
    observation, _ = env.reset(seed=own_seed)
    total, seen, ended = 0.0, [], False
    while not ended:
        seen.append(np.array(observation, np.float64))
        shown = np.clip((observation - mean) * scale, -10, 10).astype(np.float32)
        left, right = (float(np.float64(row) @ np.float64(shown)) for row in weights.reshape(2, -1))
        observation, reward, terminated, truncated, _ = env.step(int(right > left))
        total, ended = total + float(reward), terminated or truncated
    return total, seen
