"""Environments that are vectorised by themselves: Gymnasium's, ALE's and EnvPool's."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space

from zoo.envs.atari import silence_emulator
from zoo.envs.config import ATARI_FRAMES, NO_LIMIT_OF_FRAMES, AtariConfig, EnvConfig, atari_config, is_atari
from zoo.envs.registry import ENVPOOL_PREFIX, missing_packages_named, resolve
from zoo.envs.replay import derived_seeds, random_seed, small_seeds
from zoo.envs.spaces import check_supported
from zoo.envs.transition import Games
from zoo.envs.wrappers import flatten_vector_env
from zoo.errors import ZooError, nearest

AnyVectorEnv = VectorEnv[Any, Any, Any]

SINGLE_ENV_OPTIONS = ("wrappers", "history", "time_feature", "mask_velocities")
"""What works around one environment, and so cannot be had where there is none."""


def make_native(config: EnvConfig, n_envs: int, seed: int | None) -> AnyVectorEnv:
    """Return the environment's own vector form, or raise `ZooError` if it has none."""
    _refuse_wrappers(config)
    is_game = is_atari(config)
    if config.render_mode is not None and (is_game or config.id.startswith(ENVPOOL_PREFIX)):
        raise ZooError(
            f"env.render_mode={config.render_mode}: the vector form of {config.id} can't be drawn; "
            "use sync or workers"
        )
    if config.max_episode_steps is None and not is_game:
        raise ZooError(
            f"env.max_episode_steps=null: the vector form of {config.id} can't do without a time limit; "
            "give a number"
        )
    if config.id.startswith(ENVPOOL_PREFIX):
        return _seeded(make_envpool(config, n_envs), seed)
    spec = resolve(config.id)
    if is_game:
        with missing_packages_named(spec):
            return _seeded(_make_ale(config, spec, n_envs), seed)
    if spec.vector_entry_point is None:
        raise ZooError(
            f"env.vectorization=native: {spec.id} has no vector form of its own; use sync or workers"
        )
    if config.frame_stack not in (None, 1):
        raise ZooError(f"env.frame_stack cannot be put around the vector form of {spec.id}")
    arguments: dict[str, Any] = copy.deepcopy(config.kwargs)
    if config.render_mode is not None:
        arguments["render_mode"] = config.render_mode
    if config.max_episode_steps != "auto":
        arguments["max_episode_steps"] = config.max_episode_steps
    with missing_packages_named(spec):
        try:
            made = gym.make_vec(spec, n_envs, vectorization_mode="vector_entry_point", **arguments)
        except (TypeError, gym.error.Error) as error:
            raise ZooError(f"the vector form of {spec.id} cannot be made: {error}") from error
    return _seeded(made, seed, masked=config.mask_actions)


def _refuse_wrappers(config: EnvConfig) -> None:
    asked = [name for name in SINGLE_ENV_OPTIONS if getattr(config, name)]
    if config.action_repeat > 1:
        asked.append("action_repeat")
    if asked:
        raise ZooError(
            f"env.{asked[0]} wraps single environments, of which env.vectorization=native has none; "
            "use sync or workers"
        )


def _seeded(env: AnyVectorEnv, seed: int | None, *, masked: bool = True) -> AnyVectorEnv:
    """Return ``env`` seeded, so that even a first reset without a seed follows from it."""
    env = flatten_vector_env(env, masked=masked)
    check_supported(env.single_observation_space, env.single_action_space)
    if seed is not None:
        env.reset(seed=seed)
        env.action_space.seed(derived_seeds(seed, 1)[0])
    return env


def _make_ale(config: EnvConfig, spec: EnvSpec, n_envs: int) -> AnyVectorEnv:
    """Return ALE's games, stepped in C++ threads, with same-step autoreset."""
    from ale_py.vector_env import AtariVectorEnv

    silence_emulator()
    options = atari_config(config) or AtariConfig(terminal_on_life_loss=False, clip_reward=False)
    arguments = {**spec.kwargs, **copy.deepcopy(config.kwargs)}
    arguments.pop("frameskip", None)
    arguments.pop("obs_type", None)
    if options.action_repeat_probability is not None:
        arguments["repeat_action_probability"] = options.action_repeat_probability
    if isinstance(config.max_episode_steps, int):
        arguments["max_num_frames_per_episode"] = config.max_episode_steps * options.frame_skip
    elif config.max_episode_steps is None:
        arguments["max_num_frames_per_episode"] = NO_LIMIT_OF_FRAMES
    try:
        games = AtariVectorEnv(
            num_envs=n_envs,
            autoreset_mode=AutoresetMode.SAME_STEP,
            stack_num=config.frame_stack or ATARI_FRAMES,
            frameskip=config.kwargs.get("frameskip", options.frame_skip),
            noop_max=options.noop_max,
            img_height=options.screen_size,
            img_width=options.screen_size,
            use_fire_reset=options.fire_on_reset,
            episodic_life=False,
            reward_clipping=False,
            **arguments,
        )
    except TypeError as error:
        raise ZooError(f"the vector form of {spec.id} does not take these env.kwargs: {error}") from error
    games.spec = spec
    return AleGames(games, options)


class AleGames(VectorWrapper):
    """Life loss, clipped rewards and records of whole games around `ale_py`'s `AtariVectorEnv`.

    The emulator's own life-loss option starts a new game at each lost life; here the game goes on: the
    episode's last observation is also the first of the next. ``games`` says how they stood at the last end.
    """

    games: Games | None = None

    def __init__(self, env: AnyVectorEnv, options: AtariConfig) -> None:
        super().__init__(env)
        self._options = options

    def reset(
        self, *, seed: int | Sequence[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start new games."""
        seeds: Any = seed if seed is None else np.array(small_seeds(seed, self.num_envs))
        observations, infos = self.env.reset(seed=seeds, options=options)
        self._returns = np.zeros(self.num_envs)
        self._lengths = np.zeros(self.num_envs, dtype=np.int64)
        self._lives = infos["lives"].copy()
        return observations, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step all games."""
        actions = np.asarray(actions, dtype=self.single_action_space.dtype)
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        self._returns += rewards
        self._lengths += 1
        over = terminated | truncated
        lost = (infos["lives"] > 0) & (infos["lives"] < self._lives) & ~over
        self._lives = infos["lives"].copy()
        if self._options.terminal_on_life_loss and lost.any():
            terminated = terminated | lost
            final = infos.get("final_obs", observations).copy()
            final[lost] = observations[lost]
            infos = {**infos, "final_obs": final}
        if over.any() or lost.any():
            self.games = Games(self._returns.copy(), self._lengths.copy(), lost)
            self._returns[over] = 0.0
            self._lengths[over] = 0
        if self._options.clip_reward:
            rewards = np.sign(rewards)
        return observations, rewards.astype(np.float64), terminated, truncated, infos


def make_envpool(config: EnvConfig, n_envs: int) -> EnvPoolVecEnv:
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
    return EnvPoolVecEnv(name, n_envs, arguments)


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


class EnvPoolVecEnv(VectorEnv[Any, Any, Any]):
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
