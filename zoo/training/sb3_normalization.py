"""The running statistics of Stable-Baselines3's VecNormalize as those of our normaliser."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from zoo.agents.sb3_zip import Moments, VecNormalizeStatistics
from zoo.envs.normalize import SINGLE, Normalizer
from zoo.envs.spaces import describe, is_image
from zoo.errors import ZooError
from zoo.files.printing import one_line
from zoo.files.tensors import Arrays

Space = spaces.Space[Any]


def normalize_section(statistics: VecNormalizeStatistics) -> dict[str, Any]:
    """Return the section ``normalize`` of the environment's config that stands for the statistics."""
    keys = [key for key in statistics.observations if key is not None]
    return {
        "observations": bool(statistics.observations),
        "rewards": statistics.rewards,
        **statistics.settings,
        "keys": keys or None,
    }


def normalization(
    statistics: VecNormalizeStatistics, observation_space: Space
) -> tuple[Arrays, dict[str, Any]]:
    """Return the state of our normaliser, as an agent's files have it.

    Raises `ZooError` for statistics of other observations.
    """
    parts = _by_key(observation_space)
    arrays: Arrays = {"returns": np.zeros(1), **_arrays("return", statistics.returns)}
    for key, moments in statistics.observations.items():
        part = parts.get(key)
        if part is None or not isinstance(part, spaces.Box) or part.shape != moments.mean.shape:
            where = "" if key is None else f" of `{one_line(key, 40)}`"
            raise ZooError(
                f"the statistics{where} in the file of normalize= have shape {list(moments.mean.shape)},"
                f" but its observations are {describe(observation_space)}"
            )
        if is_image(part):
            raise ZooError("its images are normalised by running statistics, which Zoo does not do")
        arrays |= _arrays("observations" if key is None else f"observations/{key}", moments)
    values = {
        "keys": [SINGLE if key is None else key for key in statistics.observations],
        "rewards": statistics.rewards,
        **statistics.settings,
    }
    state = Normalizer.from_state({"arrays": arrays, "values": values}).state()
    return state["arrays"], state["values"]


def _by_key(space: Space) -> dict[str | None, Space]:
    if not isinstance(space, spaces.Dict):
        return {None: space}
    return dict(space.items())


def _arrays(name: str, moments: Moments) -> Arrays:
    return {
        f"{name}.mean": moments.mean,
        f"{name}.squares": moments.var * moments.count,
        f"{name}.count": np.array(moments.count),
    }
