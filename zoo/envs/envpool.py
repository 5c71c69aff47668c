"""EnvPool's environments, which reset in the step after an episode's end."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from zoo.envs.config import ATARI_FRAMES, AtariConfig, EnvConfig, atari_config
from zoo.envs.ids import ENVPOOL_PREFIX
from zoo.envs.seeds import random_seed, small_seeds
from zoo.envs.vector_facts import Games
from zoo.errors import ZooError, nearest


def make_envpool(config: EnvConfig, n_envs: int) -> EnvPoolVectorEnv:
    """Return EnvPool's environments, or raise `ZooError`."""
    try:
        envpool = importlib.import_module("envpool")
    except ImportError as error:
        raise ZooError(f"{config.id} needs: pip install envpool ({error})") from error
    name = config.id.removeprefix(ENVPOOL_PREFIX)
    known = envpool.list_all_envs()
    if name not in known:
        raise ZooError(f"unknown EnvPool environment {name}{nearest(name, known)}")
    arguments: dict[str, Any] = copy.deepcopy(config.kwargs)
    if config.max_episode_steps != "auto":
        arguments["max_episode_steps"] = config.max_episode_steps
    games = hasattr(envpool.make_spec(name).config, "noop_max")
    if games and config.atari is not False:
        arguments = {**_envpool_game_arguments(config), **arguments}
    elif config.frame_stack not in (None, 1):
        raise ZooError(f"env.frame_stack cannot be put around {config.id}")
    return EnvPoolVectorEnv(name, n_envs, arguments)


def _envpool_game_arguments(config: EnvConfig) -> dict[str, Any]:
    options = atari_config(config) or AtariConfig()
    arguments: dict[str, Any] = {
        "noop_max": options.noop_max,
        "frame_skip": options.frame_skip,
        "img_height": options.screen_size,
        "img_width": options.screen_size,
        "episodic_life": options.terminal_on_life_loss,
        "reward_clip": options.clip_reward,
        "use_fire_reset": options.fire_on_reset,
        "stack_num": config.frame_stack or ATARI_FRAMES,
    }
    if options.action_repeat_probability is not None:
        arguments["repeat_action_probability"] = options.action_repeat_probability
    return arguments


class EnvPoolVectorEnv(VectorEnv[Any, Any, Any]):
    """An EnvPool as Gymnasium means a vector environment: batched spaces, and resets that honour seeds.

    EnvPool takes seeds only when a pool is made, so a seeded reset makes the pool anew. Games that end an
    episode at each lost life are summed up whole and before the rewards are clipped, into ``games``.
    """

    games: Games | None = None

    def __init__(self, name: str, num_envs: int, arguments: dict[str, Any]) -> None:
        self._name, self._arguments = name, arguments
        self.num_envs = num_envs
        self._pool = self._made(random_seed())
        self.metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}
        self.single_observation_space = self._pool.observation_space
        self.single_action_space = self._pool.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(
        self, *, seed: int | Sequence[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset all environments; with seeds, in a new pool."""
        if seed is not None:
            self._pool.close()
            self._pool = self._made(seed)
        self._returns = np.zeros(self.num_envs)
        self._lengths = np.zeros(self.num_envs, dtype=np.int64)
        self._to_reset = np.zeros(self.num_envs, dtype=np.bool_)
        observations, infos = self._pool.reset()
        return observations, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step all environments."""
        observations, rewards, terminated, truncated, infos = self._pool.step(
            np.ascontiguousarray(actions, dtype=self.single_action_space.dtype)
        )
        done = terminated | truncated
        if "lives" in infos:
            self._returns += infos["reward"]
            self._lengths += ~self._to_reset
            if done.any():
                over = done & ((infos["terminated"] > 0) | truncated)
                self.games = Games(self._returns.copy(), self._lengths.copy(), done & ~over)
                self._returns[over] = 0.0
                self._lengths[over] = 0
        self._to_reset = done
        return observations, rewards, terminated, truncated, infos

    def close_extras(self, **kwargs: Any) -> None:
        """Close the pool."""
        if hasattr(self, "_pool"):
            self._pool.close()

    def _made(self, seed: int | Sequence[int]) -> Any:
        envpool = importlib.import_module("envpool")
        try:
            return envpool.make(
                self._name,
                env_type="gymnasium",
                num_envs=self.num_envs,
                seed=small_seeds(seed, self.num_envs),
                **self._arguments,
            )
        except (TypeError, AssertionError, ValueError) as error:
            raise ZooError(f"EnvPool's {self._name} does not take these env.kwargs: {error}") from error
