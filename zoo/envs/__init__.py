"""Environments: made, stepped side by side, normalised, watched, checked; toys are registered here."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

TOYS: dict[str, tuple[str, int | None, dict[str, Any]]] = {
    "Masked": ("Masked", 20, {}),
    "Memory": ("Memory", 20, {}),
    "BitFlipping": ("BitFlipping", None, {}),
    "BitFlippingContinuous": ("BitFlipping", None, {"continuous": True}),
}
"""Name → class, time limit, and arguments."""

WITHOUT_VELOCITIES = {
    "CartPoleNoVel-v1": "CartPole-v1",
    "MountainCarNoVel-v0": "MountainCar-v0",
    "MountainCarContinuousNoVel-v0": "MountainCarContinuous-v0",
    "PendulumNoVel-v1": "Pendulum-v1",
    "LunarLanderNoVel-v3": "LunarLander-v3",
    "LunarLanderContinuousNoVel-v3": "LunarLanderContinuous-v3",
}
"""Id without velocities, as in RL Baselines3 Zoo → the id with them."""


def _register() -> None:
    for name, (toy, limit, kwargs) in TOYS.items():
        point = f"zoo.envs.toys:{toy}"
        gym.register(f"Zoo/{name}-v0", entry_point=point, max_episode_steps=limit, kwargs=kwargs)
    for env_id, base in WITHOUT_VELOCITIES.items():
        spec, kwargs = gym.spec(base), {"base": base}
        limits: Any = {"max_episode_steps": spec.max_episode_steps, "reward_threshold": spec.reward_threshold}
        gym.register(env_id, entry_point="zoo.envs.toys:make", **limits, kwargs=kwargs)


_register()
