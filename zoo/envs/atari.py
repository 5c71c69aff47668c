"""Preprocessing of Atari games, one game at a time: what SB3's AtariWrapper does, on Gymnasium's own wrapper.

Its life-loss option starts a new game at each lost life; here the game goes on, and returns are summed over
whole games, before the rewards are clipped.
"""

from __future__ import annotations

import importlib
from typing import Any

import gymnasium as gym
import numpy as np

from zoo.envs.config import AtariConfig
from zoo.envs.spaces import Env, Info
from zoo.envs.wrappers import EpisodeStatistics, LifeLoss, Wrapper
from zoo.errors import ZooError, install_command


def silence_emulator() -> None:
    """Keep the emulator from introducing itself once a game."""
    ale_py = importlib.import_module("ale_py")
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)


def wrap_atari(env: Env, config: AtariConfig, max_episode_steps: int | None) -> Env:
    """Return a bare game with everything around it but the stacked frames; a time limit counts steps."""
    try:
        import cv2
    except ImportError as error:
        raise ZooError(f"Atari preprocessing needs: {install_command('atari')} ({error})") from error
    cv2.setNumThreads(1)  # Many games run side by side, and OpenCV's threads don't survive a fork.
    env = gym.wrappers.AtariPreprocessing(
        env,
        noop_max=config.noop_max,
        frame_skip=config.frame_skip,
        screen_size=config.screen_size,
        terminal_on_life_loss=False,
    )
    if max_episode_steps is not None:
        env = gym.wrappers.TimeLimit(env, max_episode_steps)
    env = EpisodeStatistics(env)
    if config.terminal_on_life_loss:
        env = LifeLoss(env)
    if config.fire_on_reset:
        meanings = env.unwrapped.get_action_meanings()  # type: ignore[attr-defined]
        if len(meanings) >= 3 and meanings[1] == "FIRE":
            env = FireOnReset(env)
    if config.clip_reward:
        env = gym.wrappers.TransformReward(env, lambda reward: float(np.sign(float(reward))))
    return env


class FireOnReset(Wrapper):
    """Presses FIRE, and then the next button, where a game does not begin by itself."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Info]:
        observation, info = self.env.reset(seed=seed, options=options)
        for button in (1, 2):
            observation, _, terminated, truncated, info = self.env.step(button)
            if terminated or truncated:
                observation, info = self.env.reset()
        return observation, info
