"""Finding an algorithm's class by its name, importing only that one."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from zoo.errors import ZooError, nearest

if TYPE_CHECKING:
    from zoo.algorithms.base import Algorithm

ALGORITHMS = {
    "a2c": "zoo.algorithms.a2c:A2C",
    "dqn": "zoo.algorithms.dqn:DQN",
    "ppo2": "zoo.algorithms.ppo2:PPO2",
    "sac": "zoo.algorithms.sac:SAC",
}
"""Where each algorithm's class is, by the name that configs and agents use."""


def algorithm_class(name: str) -> type[Algorithm[Any]]:
    """Return the class of the algorithm called ``name``. Raises `ZooError` with the nearest name."""
    if name not in ALGORITHMS:
        raise ZooError(
            f"unknown algorithm '{name}'{nearest(name, ALGORITHMS)} (known: {', '.join(ALGORITHMS)})"
        )
    module, _, class_name = ALGORITHMS[name].partition(":")
    found: type[Algorithm[Any]] = getattr(importlib.import_module(module), class_name)
    return found
