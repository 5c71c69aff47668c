"""From a config, an id or a function to one environment with its wrappers around it."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from zoo.envs import ids
from zoo.envs.config import ATARI_FRAMES, AtariConfig, EnvConfig, atari_config
from zoo.envs.wrappers import FrameStack, wrapped
from zoo.errors import ZooError, nearest

Env = gym.Env[Any, Any]


def source_of(
    env: str | EnvConfig | Env | Callable[[], Env], config: EnvConfig, n_envs: int
) -> EnvSpec | Callable[[], Env]:
    """Return what the bare environment is made from: what its id stands for, or a function."""
    if isinstance(env, str | EnvConfig):
        if config.id.startswith(ids.ENVPOOL_PREFIX):
            raise ZooError(
                f"{config.id} is stepped by EnvPool itself: use env.vectorization=native (or auto)"
            )
        return ids.resolve(config.id)
    if isinstance(env, gym.Env):
        if n_envs != 1:
            raise ZooError(f"n_envs={n_envs} of one {type(env).__name__}: give a function that makes one")
        return lambda: env
    if not callable(env):
        raise ZooError(
            f"env is a {type(env).__name__}; "
            "expected an id, an EnvConfig, a gymnasium.Env or a function that makes one"
            f"{'; gymnasium.vector.SyncVectorEnv(functions) is one env too' if isinstance(env, list) else ''}"
        )
    return env


def make_env(config: EnvConfig, source: EnvSpec | Callable[[], Env]) -> Env:
    """Return one environment as ``config`` says; ``source`` is what the bare one is made from."""
    atari = atari_config(config)
    if isinstance(source, EnvSpec):
        env = _registered(config, source, atari)
    else:
        env = _called(source, config.id)
        if config.max_episode_steps is not None and atari is None:
            env = gym.wrappers.TimeLimit(env, config.max_episode_steps)
    if atari is not None:
        from zoo.envs.atari import preprocessed

        env = preprocessed(env, atari, config.max_episode_steps)
    env = wrapped(env, config)
    frames = config.frame_stack or (ATARI_FRAMES if atari is not None else 1)
    return FrameStack(env, frames) if frames > 1 or atari is not None else env


def _called(source: Callable[[], Any], name: str) -> Env:
    """Return what the user's function makes, if that is an environment."""
    made = source()
    if not isinstance(made, gym.Env):
        old = any(base.__module__.partition(".")[0] == "gym" for base in type(made).__mro__)
        advice = " (it is one of the old `gym`: derive it from gymnasium.Env)" if old else ""
        raise ZooError(f"{name} made a {type(made).__name__}; expected a gymnasium.Env{advice}")
    return made


def _registered(config: EnvConfig, spec: EnvSpec, atari: AtariConfig | None) -> Env:
    """Return the bare environment of a registered id, with its time limit alone around it.

    Atari games get theirs later, for it counts steps, and here a step would be one frame.
    """
    spec = copy.deepcopy(spec)
    spec.order_enforce = False
    spec.disable_env_checker = True
    arguments: dict[str, Any] = copy.deepcopy(config.kwargs)
    if config.render_mode is not None:
        arguments["render_mode"] = config.render_mode
    if atari is not None:
        from zoo.envs.atari import atari_arguments, silence_emulator

        silence_emulator()
        arguments.update(atari_arguments(atari))
    elif config.max_episode_steps is not None:
        arguments["max_episode_steps"] = config.max_episode_steps
    with ids.missing_packages_named(spec):
        try:
            env = gym.make(spec, **arguments)
        except TypeError as error:
            if "must inherit from the gymnasium.Env" in str(error):
                made = re.sub(r".*<class '(.*?)'>.*", r"\1", str(error))
                raise ZooError(f"{config.id} makes a {made}; expected a subclass of gymnasium.Env") from error
            raise ZooError(f"{config.id} does not take these env.kwargs: {error}") from error
    _check_render_mode(env, config)
    return env


def _check_render_mode(env: Env, config: EnvConfig) -> None:
    """Raise `ZooError` for a mode that the environment would only warn of."""
    mode, known = config.render_mode, env.metadata.get("render_modes", [])
    if mode is not None and known and mode not in known and not mode.endswith("_list"):
        hint = nearest(mode, known)
        raise ZooError(f"env.render_mode={mode}: {config.id} can {', '.join(known)}{hint}")
