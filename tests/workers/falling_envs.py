"""Environments in which one worker alone comes to grief, at a step of its own."""

from __future__ import annotations

import os
import signal
from typing import Any

import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv

AT = 150
"""The step of the process at which it happens."""

_n_steps = 0


class Falling(CartPoleEnv):
    """CartPole; FALL says what happens in the second worker. The first is the process FIRST."""

    def step(self, action: Any) -> Any:
        global _n_steps
        _n_steps += 1
        if _n_steps == AT and os.environ["FIRST"] != str(os.getpid()):
            fall()
        return super().step(action)


def fall() -> None:
    what = os.environ.get("FALL")
    if what == "raise":
        raise ValueError("the pole is broken")
    if what == "lose":
        raise RuntimeError("Connection to the simulator is lost")
    if what == "exit":
        os._exit(7)
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)


gym.register("Falling-v0", Falling, max_episode_steps=100)
