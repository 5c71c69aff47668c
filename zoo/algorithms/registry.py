"""The one list of algorithms: imports, messages and docs read it."""

from __future__ import annotations

import importlib
from typing import Any

from zoo.errors import ZooError, nearest

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
"""The module and class of each algorithm, by the name that configs and agents use."""

PRESETS = {
    "ppo": "zoo.algorithms.ppo:PPO",
    "maskable_ppo": "zoo.algorithms.ppo:MaskablePPO",
    "recurrent_ppo": "zoo.algorithms.ppo:RecurrentPPO",
    "her_ddpg": "zoo.algorithms.ddpg:HerDDPG",
    "her_dqn": "zoo.algorithms.dqn:HerDQN",
    "her_sac": "zoo.algorithms.sac:HerSAC",
    "her_td3": "zoo.algorithms.td3:HerTD3",
    "her_tqc": "zoo.algorithms.tqc:HerTQC",
}
"""The module and class of each preset that comes with Zoo."""

_PLACES = {name: place.split(":") for name, place in (ALGORITHMS | PRESETS).items()}
CLASS_NAMES = {name: class_name for name, (_, class_name) in _PLACES.items()}
"""The name of the class of each algorithm and preset."""
MODULES = {class_name: module for module, class_name in _PLACES.values()}
"""The module in which each of these classes is."""


LEARN_CALLBACKS: list[str] = []
"""The module and name of what `callbacks_of_learn` calls: `zoo` puts it here, as it stands above."""


def callbacks_of_learn(*arguments: Any) -> list[Any]:
    """Return the callbacks that arguments of an algorithm and of its `learn` stand for."""
    return list(_imported(LEARN_CALLBACKS[0])(*arguments))


def algorithm_class(name: str, preset: str | None = None) -> type[Any]:
    """Import the class of an algorithm, or of a preset of it. Raises `ZooError` with the nearest name."""
    if name not in ALGORITHMS:
        raise ZooError(
            f"unknown algorithm '{name}'{nearest(name, ALGORITHMS)} (known: {', '.join(ALGORITHMS)})"
        )
    algorithm, of_preset = (_imported(place) for place in (ALGORITHMS[name], PRESETS.get(preset or "")))
    # A user's preset of the same name may build on another algorithm.
    return of_preset if of_preset and issubclass(of_preset, algorithm) else algorithm


def _imported(place: str | None) -> Any:
    module, _, name = (place or "").partition(":")
    return getattr(importlib.import_module(module), name) if name else None
