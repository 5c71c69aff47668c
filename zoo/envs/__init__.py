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
    for name, (toy, limit, arguments) in TOYS.items():
        gym.register(
            f"Zoo/{name}-v0", entry_point=f"zoo.envs.toys:{toy}", max_episode_steps=limit, kwargs=arguments
        )
    for env_id, shown in WITHOUT_VELOCITIES.items():
        spec = gym.spec(shown)
        gym.register(
            env_id,
            entry_point="zoo.envs.toys:make",
            max_episode_steps=spec.max_episode_steps,
            reward_threshold=spec.reward_threshold,
            kwargs={"shown": shown},
        )


_register()
