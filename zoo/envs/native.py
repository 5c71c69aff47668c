"""Environments that are vectorised by themselves: Gymnasium's, ALE's and EnvPool's."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space

from zoo.envs.atari import silence_emulator
from zoo.envs.config import NO_LIMIT_OF_FRAMES, AtariConfig, EnvConfig, atari_config, frames_shown
from zoo.envs.registry import ENVPOOL, missing_packages_named, resolve
from zoo.envs.replay import derived_seeds, random_seed, small_seeds
from zoo.envs.spaces import check_supported
from zoo.envs.transition import Games
from zoo.errors import ZooError

AnyVectorEnv = VectorEnv[Any, Any, Any]


def make_native(config: EnvConfig, n_envs: int, seed: int | None) -> AnyVectorEnv:
    """Return the environment's own vector form, or raise `ZooError` if it has none."""
    is_envpool = config.id.startswith(ENVPOOL)
    if is_envpool and config.vectorization in ("sync", "workers"):
        raise ZooError(f"env.vectorization={config.vectorization}: {config.id} has a vector form only")
    advice = "" if is_envpool else "; use sync or workers"
    of_single_envs = {
        "wrappers": bool(config.wrappers),
        "history": config.history is not None,
        "time_feature": config.time_feature is not False,
        "mask_velocities": config.mask_velocities,
        "frame_stack": config.frame_stack not in (None, 1) and not config.is_atari,
        "action_repeat": config.action_repeat > 1,
        "atari": bool(config.atari) and not config.is_atari,
        "n_workers": config.n_workers is not None,
        "step_timeout": config.step_timeout is not None,
        "reseed_every": config.reseed_every is not None,
        "renew": config.renew is True,
        "info_keywords": bool(config.info_keywords) and config.is_atari and not is_envpool,
    }
    for name, is_asked in of_single_envs.items():
        if is_asked:
            raise ZooError(f"env.{name} works on single environments only{advice}")
    form = f"the vector form of {config.id}"
    if config.max_episode_steps is None and (is_envpool or not config.is_atari):
        raise ZooError(f"env.max_episode_steps=null: {form} needs a number")
    if config.render_mode is not None and (is_envpool or config.is_atari):
        raise ZooError(f"env.render_mode={config.render_mode}: {form} can't be drawn{advice}")
    if config.atari is False and config.is_atari:
        raise ZooError(f"env.atari=false: {form} has Atari's preprocessing{advice}")
    spec = resolve(config.id)
    make: Any = _make_envpool if is_envpool else _make_ale if config.is_atari else _make_gymnasium
    try:
        with missing_packages_named(spec):
            env: AnyVectorEnv = make(config, spec, n_envs, seed)
    except (TypeError, ValueError, AssertionError, RuntimeError, gym.error.Error) as error:
        raise ZooError(f"{form} cannot be made: {error}") from error
    check_supported(env.single_observation_space, env.single_action_space)
    if seed is not None and not is_envpool:  # so that even a first reset without a seed follows from it
        env.reset(seed=seed)
        env.action_space.seed(derived_seeds(seed, 1)[0])
    return env


def _make_envpool(config: EnvConfig, spec: EnvSpec, n_envs: int, seed: int | None) -> EnvPool:
    """Return EnvPool's environments. Raises `ZooError` for a setting that they do not have."""
    options: dict[str, Any] = {}
    if (atari := atari_config(config)) is not None:
        options = {
            **_image_options(config, atari),
            "frame_skip": atari.frame_skip,
            "episodic_life": atari.terminal_on_life_loss,
            "reward_clip": atari.clip_reward,
        }
        if atari.noop_max < 1:
            raise ZooError(f"env.atari.noop_max=0: {config.id} needs at least 1")
        if atari.action_repeat_probability is not None:
            options["repeat_action_probability"] = atari.action_repeat_probability
    if config.max_episode_steps != "auto":
        options["max_episode_steps"] = config.max_episode_steps
    if clashing := {*options, "seed", "num_envs"} & config.kwargs.keys():
        raise ZooError(f"env.kwargs.{min(clashing)}: other settings of the run decide that")
    return EnvPool(spec, n_envs, seed, {**options, **copy.deepcopy(config.kwargs)})


class EnvPool(VectorEnv[Any, Any, Any]):
    """Environments of EnvPool, stepped in C++ threads; they reset in the step after an episode's end.

    They get seeds when they are made, so a reset with seeds makes them anew. ``games`` says how the games of
    Atari stand after each step.
    """

    games: Games | None = None

    def __init__(self, spec: EnvSpec, num_envs: int, seed: int | None, options: dict[str, Any]) -> None:
        import envpool

        name = spec.id.removeprefix(ENVPOOL)
        self.spec, self.num_envs, self._is_atari = spec, num_envs, spec.kwargs["is_atari"]
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        declared = envpool.make_spec(name, num_envs=num_envs, **options)
        self.single_observation_space = declared.gymnasium_observation_space
        self.single_action_space = declared.gymnasium_action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        seed = random_seed(seed)
        self.action_space.seed(derived_seeds(seed, 1)[0])
        self._first_seeds = small_seeds(seed, num_envs)
        self._time_limit = options.get("max_episode_steps", math.inf)
        self._make = functools.partial(envpool.make_gymnasium, name, num_envs=num_envs, **options)
        self._pool: Any = None

    def reset(
        self, *, seed: int | Sequence[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin new episodes: of environments that are made anew, if there is a seed."""
        if seed is not None or self._pool is None:
            self.close_extras()
            seeds = self._first_seeds if seed is None else small_seeds(seed, self.num_envs)
            self._pool = self._make(seed=seeds)
        self._returns = np.zeros(self.num_envs)
        observations, infos = self._pool.reset()
        return observations, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step all environments. Raises `ZooError` for one that goes on after the time limit."""
        actions = np.asarray(actions, self.single_action_space.dtype)
        observations, rewards, terminated, truncated, infos = self._pool.step(actions)
        lengths = infos["elapsed_step"].astype(np.int64)
        if lengths.max() > self._time_limit:
            raise ZooError(f"env.max_episode_steps: {self.spec.id} has no time limit of its own")  # type: ignore[union-attr]
        if self._is_atari:
            self._returns[lengths == 0] = 0.0  # a new game
            self._returns += infos["reward"]
            is_life = terminated & (infos["terminated"] == 0) & ~truncated
            self.games = Games(self._returns.copy(), lengths, is_life)
        return observations, rewards, terminated, truncated, infos

    def close_extras(self, **_: Any) -> None:
        if self._pool is not None:
            self._pool.close()


def _make_gymnasium(config: EnvConfig, spec: EnvSpec, n_envs: int, _: int | None) -> AnyVectorEnv:
    if spec.vector_entry_point is None:
        raise ZooError(
            f"env.vectorization=native: {spec.id} has no vector form of its own; use sync or workers"
        )
    arguments: dict[str, Any] = copy.deepcopy(config.kwargs)
    if config.render_mode is not None:
        arguments["render_mode"] = config.render_mode
    if config.max_episode_steps != "auto":
        arguments["max_episode_steps"] = config.max_episode_steps
    return gym.make_vec(spec, n_envs, vectorization_mode="vector_entry_point", **arguments)


def _make_ale(config: EnvConfig, spec: EnvSpec, n_envs: int, _: int | None) -> AnyVectorEnv:
    """Return ALE's games, stepped in C++ threads, with same-step autoreset."""
    from ale_py.vector_env import AtariVectorEnv

    silence_emulator()
    options = atari_config(config)
    assert options is not None
    arguments = {**spec.kwargs, "frameskip": options.frame_skip, **copy.deepcopy(config.kwargs)}
    arguments.pop("obs_type", None)
    if options.action_repeat_probability is not None:
        arguments["repeat_action_probability"] = options.action_repeat_probability
    if config.max_episode_steps != "auto":
        steps = config.max_episode_steps
        arguments["max_num_frames_per_episode"] = steps * options.frame_skip if steps else NO_LIMIT_OF_FRAMES
    games = AtariVectorEnv(
        num_envs=n_envs,
        autoreset_mode=AutoresetMode.SAME_STEP,
        episodic_life=False,
        reward_clipping=False,
        **_image_options(config, options),
        **arguments,
    )
    games.spec = spec
    buttons = games.ale.get_action_set()
    waits = options.fire_on_reset and options.terminal_on_life_loss and len(buttons) > 2
    return AleGames(games, options, fires=waits and buttons[1].name == "FIRE")


def _image_options(config: EnvConfig, atari: AtariConfig) -> dict[str, Any]:
    """Return the options of games that EnvPool and ALE call the same."""
    return {
        "stack_num": frames_shown(config),
        "noop_max": atari.noop_max,
        "img_height": atari.screen_size,
        "img_width": atari.screen_size,
        "use_fire_reset": atari.fire_on_reset,
    }


FIRE = 1
"""The button that begins a game, where there is one."""


class AleGames(VectorWrapper):
    """Life loss, clipped rewards and records of whole games around `ale_py`'s `AtariVectorEnv`.

    At a lost life the game goes on: the episode's last observation is also the first of the next, and where
    it ``fires``, FIRE takes the place of the first action. ``games`` says how they stood at the last end.
    """

    games: Games | None = None

    def __init__(self, env: AnyVectorEnv, options: AtariConfig, *, fires: bool = False) -> None:
        super().__init__(env)
        self._options, self._fires = options, fires

    def reset(
        self, *, seed: int | Sequence[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        seeds: Any = seed if seed is None else np.array(small_seeds(seed, self.num_envs))
        observations, infos = self.env.reset(seed=seeds, options=options)
        self._returns = np.zeros(self.num_envs)
        self._lengths = np.zeros(self.num_envs, dtype=np.int64)
        self._lives = infos["lives"].copy()
        self._waiting = np.zeros(self.num_envs, np.bool_)
        return observations, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        actions = np.asarray(actions, dtype=self.single_action_space.dtype)
        if self._fires:
            actions = np.where(self._waiting, FIRE, actions).astype(actions.dtype)
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        self._returns += rewards
        self._lengths += 1
        over = terminated | truncated
        lost = (infos["lives"] > 0) & (infos["lives"] < self._lives) & ~over
        self._lives, self._waiting = infos["lives"].copy(), lost
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
