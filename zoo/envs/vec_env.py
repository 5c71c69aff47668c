"""From a config, an id or a function to a vector environment."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import VectorEnv

from zoo.envs import ids
from zoo.envs.config import EnvConfig, env_config, is_renewed, normalize_config, steps_between_seeds
from zoo.envs.in_process import InProcessVectorEnv
from zoo.envs.monitor import EpisodeMonitor
from zoo.envs.nan_check import NanCheck
from zoo.envs.normalize import VecNormalize
from zoo.envs.single_env import make_env, source_of
from zoo.envs.trial import findings
from zoo.errors import ZooError
from zoo.files.free_memory import refuse_what_does_not_fit

Env = gym.Env[Any, Any]

ENV_BYTES = 4096
"""What an environment takes at least; CartPole takes 6,500."""

KNOWN_GOOD = ("gymnasium.envs.", "zoo.envs.", "ale_py.")
"""Where the entry points of environments begin that need no trial before the first step."""


def make_vec_env(
    env: str | EnvConfig | Env | Callable[..., Env],
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
    refuse_what_does_not_fit(f"`n_envs={n_envs}`", n_envs * ENV_BYTES)
    config = env_config(env, **options)
    if training and _needs_check(env, config):
        for finding in findings(env, config, n_envs):
            warnings.warn(finding, stacklevel=2)
    vector_env = _vector_env(env, config, n_envs, seed)
    if config.nan_check:
        vector_env = NanCheck(vector_env)
    vector_env.info_keywords = tuple(config.info_keywords)  # type: ignore[attr-defined]
    vector_env.mask_actions = config.mask_actions  # type: ignore[attr-defined]
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


def _vector_env(
    env: str | EnvConfig | Env | Callable[..., Env], config: EnvConfig, n_envs: int, seed: int | None
) -> VectorEnv[Any, Any, Any]:
    """Return the bare vector environment: in this process, in worker processes, or the environment's own."""
    if config.step_timeout is not None and config.vectorization != "workers":
        raise ZooError(
            f"env.step_timeout={config.step_timeout:g} needs env.vectorization=workers: "
            "in this process a step that hangs can't be given up"
        )
    if config.vectorization == "native" or (
        config.vectorization == "auto" and config.id.startswith(ids.ENVPOOL_PREFIX)
    ):
        if not isinstance(env, str | EnvConfig):
            raise ZooError("env.vectorization=native needs an id; a function makes single environments")
        from zoo.envs.native import make_native

        return make_native(config, n_envs, seed)
    source = source_of(env, config, n_envs)
    make_envs = [functools.partial(make_env, config, source)] * n_envs
    if config.renew is True and isinstance(env, gym.Env):
        raise ZooError("env.renew: one given environment can't be made anew; give a function that makes it")
    life: dict[str, Any] = {
        "seed": seed,
        "reseed_every": steps_between_seeds(config),
        "renew": is_renewed(config) and not isinstance(env, gym.Env),
        "mask_actions": config.mask_actions,
    }
    if config.vectorization != "workers":
        is_own = isinstance(source, EnvSpec)  # nobody holds what is made of an id
        vector_env: VectorEnv[Any, Any, Any] = InProcessVectorEnv(make_envs, watched=not is_own, **life)
    else:
        from zoo.envs.workers import WorkersVectorEnv

        vector_env = WorkersVectorEnv(
            make_envs,
            n_workers=config.n_workers,
            start_method=config.start_method,
            step_timeout=config.step_timeout,
            **life,
        )
    if isinstance(source, EnvSpec):
        vector_env.spec = source
    return vector_env


def _needs_check(env: str | EnvConfig | Env | Callable[..., Env], config: EnvConfig) -> bool:
    """Whether an environment is tried first: not those of well-kept packages, nor vector forms."""
    if not config.check or config.vectorization == "native" or config.id.startswith(ids.ENVPOOL_PREFIX):
        return False
    if config.wrappers or not isinstance(env, str | EnvConfig):
        return True
    entry_point = ids.resolve(config.id).entry_point
    return not (isinstance(entry_point, str) and entry_point.startswith(KNOWN_GOOD))
