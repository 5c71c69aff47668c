"""From a config, an id or a function to a vector environment."""

from __future__ import annotations

import contextlib
import copy
import functools
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import VectorEnv

from zoo.envs import ids
from zoo.envs.config import (
    ATARI_FRAMES,
    AtariConfig,
    EnvConfig,
    atari_config,
    env_config,
    normalize_config,
)
from zoo.envs.in_process import InProcessVectorEnv, explained
from zoo.envs.monitor import EpisodeMonitor
from zoo.envs.nan_check import NanCheck
from zoo.envs.normalize import VecNormalize
from zoo.envs.trial import try_out
from zoo.envs.wrappers import FrameStack, wrapped
from zoo.errors import ZooError, nearest

Env = gym.Env[Any, Any]

KNOWN_GOOD = ("gymnasium.envs.", "zoo.envs.", "ale_py.")
"""Where the entry points of environments begin that need no trial before the first step."""


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
    _check_seed(seed)
    config = env_config(env, **options)
    if training and _needs_check(env, config):
        for finding in findings(env, config):
            warnings.warn(finding, stacklevel=2)
    vector_env = _vector_env(env, config, n_envs, seed)
    if config.nan_check:
        vector_env = NanCheck(vector_env)
    vector_env.info_keywords = tuple(config.info_keywords)  # type: ignore[attr-defined]
    if monitor_dir is not None:
        vector_env.monitor = EpisodeMonitor(  # type: ignore[attr-defined]
            monitor_dir, n_envs, env_id=config.id, info_keywords=config.info_keywords
        )
    normalize = normalize_config(config)
    if normalize is not None:
        return VecNormalize(vector_env, normalize, gamma=gamma, training=training)
    return vector_env


def _check_seed(seed: Any) -> None:
    if seed is not None and not (isinstance(seed, int | np.integer) and seed >= 0):
        raise ZooError(f"seed={seed!r}: expected a whole number, 0 or more")


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


def _vector_env(
    env: str | EnvConfig | Env | Callable[[], Env], config: EnvConfig, n_envs: int, seed: int | None
) -> VectorEnv[Any, Any, Any]:
    """Return the bare vector environment: in this process, in worker processes, or the environment's own."""
    if config.vectorization == "native" or (
        config.vectorization == "auto" and config.id.startswith(ids.ENVPOOL_PREFIX)
    ):
        if not isinstance(env, str | EnvConfig):
            raise ZooError("env.vectorization=native needs an id; a function makes single environments")
        from zoo.envs.native import make_native

        return make_native(config, n_envs, seed)
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
        )
    return env


def findings(env: str | EnvConfig | Env | Callable[[], Env], config: EnvConfig) -> list[str]:
    """Try one environment out; a given one cannot be made again, so it is tried with a seed by chance."""
    if isinstance(env, gym.Env):
        return try_out(env, config.id, int(np.random.SeedSequence().generate_state(1)[0]))
    source = _source(env, config, 1)
    try:
        tried = make_env(_without_recorders(config), source)
    except Exception as error:
        raise explained(error, config.id, "while it was made") from error
    try:
        found = try_out(tried, config.id, seed=0)
    except BaseException:
        with contextlib.suppress(Exception):
            tried.close()
        raise
    try:
        tried.close()
    except Exception as error:
        found.append(f"{config.id}: close() raised {type(error).__name__}: {error}")
    return found


def _without_recorders(config: EnvConfig) -> EnvConfig:
    """Return the config without wrappers that would leave videos of the trial behind."""
    names = [
        wrapper if isinstance(wrapper, str) else wrapper.get("_target_", "") for wrapper in config.wrappers
    ]
    kept = zip(config.wrappers, names, strict=True)
    return replace(config, wrappers=[wrapper for wrapper, name in kept if "RecordVideo" not in str(name)])


def _needs_check(env: str | EnvConfig | Env | Callable[[], Env], config: EnvConfig) -> bool:
    """Whether an environment is tried first: not those of well-kept packages, nor vector forms."""
    if not config.check or config.vectorization == "native" or config.id.startswith(ids.ENVPOOL_PREFIX):
        return False
    if config.wrappers or not isinstance(env, str | EnvConfig):
        return True
    entry_point = ids.resolve(config.id).entry_point
    return not (isinstance(entry_point, str) and entry_point.startswith(KNOWN_GOOD))


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
            raise ZooError(f"{config.id} does not take these env.kwargs: {error}") from error
    _check_render_mode(env, config)
    return env


def _check_render_mode(env: Env, config: EnvConfig) -> None:
    """Raise `ZooError` for a mode that the environment would only warn of."""
    mode, known = config.render_mode, env.metadata.get("render_modes", [])
    if mode is not None and known and mode not in known and not mode.endswith("_list"):
        hint = nearest(mode, known)
        raise ZooError(f"env.render_mode={mode}: {config.id} can {', '.join(known)}{hint}")
