"""Classic environments that do not show velocities: what matters has to be remembered.

They are registered by the names that RL Baselines3 Zoo gave them, when `zoo.envs` is imported. Any other
environment loses its velocities by ``env.mask_velocities=true``.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from zoo.envs.wrappers import MaskVelocities

HIDDEN = {
    "CartPoleNoVel-v1": "CartPole-v1",
    "MountainCarNoVel-v0": "MountainCar-v0",
    "MountainCarContinuousNoVel-v0": "MountainCarContinuous-v0",
    "PendulumNoVel-v1": "Pendulum-v1",
    "LunarLanderNoVel-v3": "LunarLander-v3",
    "LunarLanderContinuousNoVel-v3": "LunarLanderContinuous-v3",
}
"""Id without velocities → the id that shows them."""


def make(shown: str, **options: Any) -> gym.Env[Any, Any]:
    """Return the environment ``shown`` without its velocities, and without its time limit."""
    return MaskVelocities(gym.make(shown, **options).unwrapped)


def register() -> None:
    """Register all of them with Gymnasium, with the time limits of the environments that they hide."""
    for env_id, shown in HIDDEN.items():
        if env_id not in gym.registry:
            spec = gym.spec(shown)
            gym.register(
                env_id,
                entry_point=f"{__name__}:make",
                max_episode_steps=spec.max_episode_steps,
                reward_threshold=spec.reward_threshold,
                kwargs={"shown": shown},
            )
