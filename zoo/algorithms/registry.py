"""The one list of algorithms: imports, messages and docs read it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from zoo.errors import ZooError, nearest

if TYPE_CHECKING:
    from gymnasium import spaces

ALGORITHMS = {
    "a2c": "zoo.algorithms.a2c:A2C",
    "acer": "zoo.algorithms.acer:ACER",
    "acktr": "zoo.algorithms.acktr:ACKTR",
    "ars": "zoo.algorithms.ars:ARS",
    "bc": "zoo.imitation.bc:BC",
    "ddpg": "zoo.algorithms.ddpg:DDPG",
    "dqn": "zoo.algorithms.dqn:DQN",
    "gail": "zoo.imitation.gail:GAIL",
    "ppo1": "zoo.algorithms.ppo:PPO1",
    "ppo2": "zoo.algorithms.ppo:PPO2",
    "qrdqn": "zoo.algorithms.qrdqn:QRDQN",
    "sac": "zoo.algorithms.sac:SAC",
    "td3": "zoo.algorithms.td3:TD3",
    "tqc": "zoo.algorithms.tqc:TQC",
    "trpo": "zoo.algorithms.trpo:TRPO",
}
"""Where each algorithm's class is, by the name that configs and agents use."""

CLASSES = {place.rpartition(":")[2]: place.partition(":")[0] for place in ALGORITHMS.values()}
"""In which module each algorithm's class is, by its own name."""

PRESETS = {
    "ppo": "PPO",
    "maskable_ppo": "MaskablePPO",
    "recurrent_ppo": "RecurrentPPO",
    "her_ddpg": "HerDDPG",
    "her_dqn": "HerDQN",
    "her_sac": "HerSAC",
    "her_td3": "HerTD3",
    "her_tqc": "HerTQC",
}
"""Classes of the presets that come with Zoo, which stand in `zoo.algorithms.presets`."""


def algorithm_class(name: str) -> type[Any]:
    """Return the class of the algorithm called ``name``, importing only that one.

    Raises `ZooError` with the nearest name.
    """
    if name not in ALGORITHMS:
        raise ZooError(
            f"unknown algorithm '{name}'{nearest(name, ALGORITHMS)} (known: {', '.join(ALGORITHMS)})"
        )
    module, _, class_name = ALGORITHMS[name].partition(":")
    return getattr(importlib.import_module(module), class_name)


def sharing() -> str:
    """Return, for a message, which algorithms can learn as several processes."""
    return ", ".join(name for name in ALGORITHMS if algorithm_class(name).can_share)


def acting_in(space: spaces.Space[Any]) -> str:
    """Return, for the end of a message, which algorithms take actions of a space."""
    names = [name for name in ALGORITHMS if isinstance(space, algorithm_class(name).supported_actions)]
    return f"; {', '.join(names)} can take them" if names else ""
