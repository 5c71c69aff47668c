"""From a config, an id or a function to a vector environment."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import VectorEnv

from zoo.envs import ids
from zoo.envs.config import EnvConfig, env_config, normalize_config
from zoo.envs.in_process import InProcessVectorEnv
from zoo.envs.monitor import EpisodeMonitor
from zoo.envs.normalize import VecNormalize
from zoo.errors import ZooError

Env = gym.Env[Any, Any]


def make_vec_env(
    env: str | EnvConfig | Env | Callable[[], Env],
    n_envs: int = 1,
    seed: int | None = None,
    *,
    gamma: float = 0.99,
    monitor_dir: str | Path | None = None,
    training: bool = True,
    **options: Any,
) -> VectorEnv[Any, Any, Any]:
    """Return ``n_envs`` environments as one `gymnasium.vector.VectorEnv`.

    ``env`` is an id, a config, a function that makes a `gymnasium.Env`, or one such environment; ``options``
    are fields of `EnvConfig`. Environment i gets ``seed + i`` at the first reset. With ``normalize`` a
    `VecNormalize` comes out, whose statistics stand still unless ``training``. Episodes that an `EnvStepper`
    steps to their end are written to ``monitor_dir``. Raises `ZooError` for what the user can mend.
    """
    if n_envs < 1:
        raise ZooError(f"n_envs={n_envs}: at least one environment is needed")
    config = env_config(env, **options)
    vector_env = _vector_env(env, config, n_envs, seed)
    vector_env.info_keywords = tuple(config.info_keywords)  # type: ignore[attr-defined]
    if monitor_dir is not None:
        vector_env.monitor = EpisodeMonitor(  # type: ignore[attr-defined]
            monitor_dir, n_envs, env_id=config.id, info_keywords=config.info_keywords
        )
    normalize = normalize_config(config)
    if normalize is not None:
        return VecNormalize(vector_env, normalize, gamma=gamma, training=training)
    return vector_env


def make_env(config: EnvConfig, source: EnvSpec | Callable[[], Env]) -> Env:
    """Return one environment as ``config`` says; ``source`` is what the bare one is made from."""
    if isinstance(source, EnvSpec):
        return _registered(config, source)
    env = source()
    if config.max_episode_steps is not None:
        env = gym.wrappers.TimeLimit(env, config.max_episode_steps)
    return env


def _vector_env(
    env: str | EnvConfig | Env | Callable[[], Env], config: EnvConfig, n_envs: int, seed: int | None
) -> VectorEnv[Any, Any, Any]:
    source = _source(env, config, n_envs)
    make_envs = [functools.partial(make_env, config, source)] * n_envs
    if config.vectorization != "workers":
        vector_env: VectorEnv[Any, Any, Any] = InProcessVectorEnv(make_envs, seed=seed)
    else:
        from zoo.envs.workers import WorkersVectorEnv

        vector_env = WorkersVectorEnv(
            make_envs, n_workers=config.n_workers, start_method=config.start_method, seed=seed
        )
    if isinstance(source, EnvSpec):
        vector_env.spec = source
    return vector_env


def _source(
    env: str | EnvConfig | Env | Callable[[], Env], config: EnvConfig, n_envs: int
) -> EnvSpec | Callable[[], Env]:
    """Return what the bare environment is made from: what its id stands for, or a function."""
    if isinstance(env, str | EnvConfig):
        return ids.resolve(config.id)
    if isinstance(env, gym.Env):
        if n_envs != 1:
            raise ZooError(f"n_envs={n_envs} of one {type(env).__name__}: give a function that makes one")
        return lambda: env
    if not callable(env):
        raise ZooError(
            f"env is a {type(env).__name__}; "
            "expected an id, an EnvConfig, a gymnasium.Env or a function that makes one"
        )
    return env


def _registered(config: EnvConfig, spec: EnvSpec) -> Env:
    """Return the bare environment of a registered id, with its time limit alone around it."""
    spec = copy.deepcopy(spec)
    spec.order_enforce = False
    spec.disable_env_checker = True
    arguments: dict[str, Any] = dict(config.kwargs)
    if config.render_mode is not None:
        arguments["render_mode"] = config.render_mode
    if config.max_episode_steps is not None:
        arguments["max_episode_steps"] = config.max_episode_steps
    with ids.missing_packages_named(spec):
        try:
            return gym.make(spec, **_plain(arguments))
        except TypeError as error:
            raise ZooError(f"{config.id} does not take these env.kwargs: {error}") from error


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a deep copy, so that no two environments share a mutable argument."""
    return copy.deepcopy(dict(values))
