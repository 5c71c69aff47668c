"""Make environments and vector environments from a config, an id or a function."""

from __future__ import annotations

import copy
import functools
import inspect
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import VectorEnv

from zoo.config.aliases import refuse_unknown_arguments
from zoo.core.free_memory import refuse_what_does_not_fit
from zoo.envs import registry
from zoo.envs.config import (
    ATARI_RESEED_EVERY,
    DEFAULT_RESEED_EVERY,
    NO_LIMIT_OF_FRAMES,
    AtariConfig,
    EnvConfig,
    atari_config,
    env_config,
    frames_shown,
    is_native,
    is_renewed,
    normalize_config,
)
from zoo.envs.normalize import VecNormalize
from zoo.envs.replay import random_seed
from zoo.envs.spaces import Env
from zoo.envs.vec_env import SyncVecEnv
from zoo.envs.wrappers import FrameStack, apply_wrappers, find_wrapper
from zoo.errors import ZooError, ZooWarning


def source_of(
    env: str | EnvConfig | Env | Callable[..., Env], config: EnvConfig, n_envs: int
) -> EnvSpec | Callable[..., Env]:
    """Return the source of the bare environment: the spec of an id, or a function that makes it."""
    if isinstance(env, str | EnvConfig):
        return registry.resolve(config.id)
    if isinstance(env, gym.Env):
        if n_envs != 1:
            raise ZooError(f"n_envs={n_envs} of one {type(env).__name__}: give a function that makes one")
        if config.kwargs or config.render_mode not in (None, env.render_mode):
            raise ZooError(
                f"env.{'kwargs' if config.kwargs else 'render_mode'}: {config.id} is made already, with "
                f"render_mode={env.render_mode!r}; give the class or a function that makes it"
            )
        return lambda **_: env
    if not callable(env):
        raise ZooError(
            f"env is a {type(env).__name__}; "
            "expected an id, an EnvConfig, a gymnasium.Env or VectorEnv, or a function that makes an Env"
        )
    return env


def make_env(config: EnvConfig, source: EnvSpec | Callable[..., Env]) -> Env:
    """Make one environment by ``config``; ``source`` makes the bare one."""
    atari, limit = atari_config(config), config.max_episode_steps
    arguments: dict[str, Any] = copy.deepcopy(config.kwargs)
    if config.render_mode is not None:
        arguments["render_mode"] = config.render_mode
    if isinstance(source, EnvSpec):
        env = _make_registered(config, source, atari, arguments)
    else:
        env = _call_factory(config, source, atari, arguments)
    if atari is not None:
        from zoo.envs.atari import wrap_atari

        env = wrap_atari(env, atari, limit if isinstance(limit, int) else None)
    elif isinstance(limit, int) and not isinstance(source, EnvSpec):
        env = gym.wrappers.TimeLimit(env, limit)
    env = apply_wrappers(env, config)
    frames = frames_shown(config)
    return FrameStack(env, frames) if frames > 1 or atari is not None else env


def _call_factory(
    config: EnvConfig, source: Callable[..., Any], atari: AtariConfig | None, arguments: dict[str, Any]
) -> Env:
    """Make an environment by the user's function or class. Raises `ZooError` if it is none."""
    if atari is not None and atari.action_repeat_probability is not None:
        raise ZooError(f"env.atari.action_repeat_probability needs an id; {config.id} makes the game itself")
    if arguments:
        try:
            inspect.signature(source).bind(**arguments)
        except TypeError as error:
            name = "env.render_mode" if list(arguments) == ["render_mode"] else "these env.kwargs"
            raise ZooError(f"{config.id} does not take {name}: {error}") from error
    made = source(**arguments)
    if not isinstance(made, gym.Env):
        raise ZooError(f"{config.id} made a {type(made).__name__}; expected a gymnasium.Env")
    inner, limit = find_wrapper(made, gym.wrappers.TimeLimit), config.max_episode_steps
    if limit != "auto" and inner is not None and (limit is None or limit > inner._max_episode_steps):
        raise ZooError(
            f"env.max_episode_steps={'null' if limit is None else limit}: {config.id} comes with a TimeLimit "
            f"of {inner._max_episode_steps} steps around it; make it without"
        )
    return made


def _make_registered(
    config: EnvConfig, spec: EnvSpec, atari: AtariConfig | None, arguments: dict[str, Any]
) -> Env:
    """Return a registered bare environment with its time limit alone (Atari games get theirs later)."""
    spec = copy.deepcopy(spec)
    spec.order_enforce = False
    spec.disable_env_checker = True
    if atari is not None:
        from zoo.envs.atari import silence_emulator

        silence_emulator()
        arguments["frameskip"] = 1  # the preprocessing repeats actions
        if atari.action_repeat_probability is not None:
            arguments["repeat_action_probability"] = atari.action_repeat_probability
    if config.max_episode_steps != "auto":
        if registry.is_atari_game(config.id):
            arguments.setdefault("max_num_frames_per_episode", NO_LIMIT_OF_FRAMES)
        if atari is None:
            spec.max_episode_steps = config.max_episode_steps
    is_drawn = config.render_mode is not None and "camera_id" not in arguments
    if is_drawn and str(spec.entry_point).startswith("gymnasium.envs.mujoco."):
        arguments.setdefault("camera_name", "track")  # without a name it stands still from Gymnasium 1.4 on
    with registry.missing_packages_named(spec):
        try:
            return gym.make(spec, **arguments)
        except TypeError as error:
            if "must inherit from the gymnasium.Env" in str(error):
                text = f"{config.id} makes no environment; expected a subclass of gymnasium.Env"
                raise ZooError(text) from error
            raise ZooError(f"{config.id} does not take these env.kwargs: {error}") from error


ENV_BYTES = 4096
"""What an environment takes at least."""

KNOWN_GOOD = ("gymnasium.envs.", "zoo.envs.", "ale_py.")
"""Where the entry points of environments begin that need no trial before the first step."""


@refuse_unknown_arguments
def make_vec_env(
    env: str | EnvConfig | Env | Callable[..., Env] | Sequence[Callable[..., Env]],
    n_envs: int = 1,
    seed: int | None = None,
    *,
    gamma: float = 0.99,
    monitor_dir: str | Path | None = None,
    training: bool = True,
    **options: Any,
) -> VectorEnv[Any, Any, Any]:
    """Return ``n_envs`` environments as one `gymnasium.vector.VectorEnv`.

    ``env`` is an id, a config, a function that makes a `gymnasium.Env`, a list with a function for each, or
    one such environment; ``options`` are fields of `EnvConfig`. Environment i gets ``seed + i`` at the first
    reset. With ``normalize`` a `VecNormalize` comes out, whose statistics stand still unless ``training``.
    Episodes that end are written to ``monitor_dir``.
    """
    first: Any = env
    functions: list[Any] = []
    if isinstance(env, list | tuple):
        if not env or not all(map(callable, env)) or n_envs not in (1, len(env)):
            raise ZooError(f"env is a list of {len(env)}; expected a function for each of n_envs={n_envs}")
        functions, n_envs, first = list(env), len(env), env[0]
    if n_envs < 1:
        raise ZooError(f"n_envs={n_envs}: at least one environment is needed")
    seed = None if seed is None else random_seed(seed)
    refuse_what_does_not_fit(f"`n_envs={n_envs}`", n_envs * ENV_BYTES)
    config = env_config(first, **options)
    is_known = _is_known(first, config)
    if training and config.check and not is_known:
        from zoo.envs.env_checker import find_problems

        for finding in find_problems(first, config):
            warnings.warn(finding, ZooWarning, stacklevel=3)
    with registry.in_env_folder(making=True):
        vector_env: Any = _vector_env(first, config, n_envs, seed, functions)
    vector_env.may_move = not is_known and config.vectorization != "workers"
    vector_env.info_keywords = tuple(config.info_keywords)
    vector_env.frame_stack = frames_shown(config)
    vector_env.mask_actions, vector_env.nan_check = config.mask_actions, config.nan_check
    if monitor_dir is not None:
        from zoo.envs.monitor import EpisodeMonitor

        keywords = config.info_keywords
        vector_env.monitor = EpisodeMonitor(monitor_dir, n_envs, env_id=config.id, info_keywords=keywords)
    if (normalize := normalize_config(config)) is not None:
        vector_env = VecNormalize(vector_env, normalize, gamma=gamma, training=training)
    return vector_env


def _vector_env(
    env: Any, config: EnvConfig, n_envs: int, seed: int | None, functions: list[Any]
) -> VectorEnv[Any, Any, Any]:
    """Return the bare vector environment: in this process, in worker processes, or the environment's own."""
    if is_native(config):
        if not isinstance(env, str | EnvConfig):
            raise ZooError("env.vectorization=native needs an id; a function makes single environments")
        from zoo.envs.native import make_native

        return make_native(config, n_envs, seed)
    for name, value in {"n_workers": config.n_workers, "step_timeout": config.step_timeout}.items():
        if value is not None and config.vectorization != "workers":
            raise ZooError(f"env.{name}={value:g} needs env.vectorization=workers")
    source = source_of(env, config, n_envs)
    make_envs = [functools.partial(make_env, config, make) for make in functions or [source] * n_envs]
    if config.renew is True and isinstance(env, gym.Env):
        raise ZooError("env.renew: one given environment can't be made anew; give a function that makes it")
    default = ATARI_RESEED_EVERY if registry.is_atari_game(config.id) else DEFAULT_RESEED_EVERY
    options: dict[str, Any] = {
        "seed": seed,
        "reseed_every": config.reseed_every or default,
        "renew": is_renewed(config) and not isinstance(env, gym.Env),
        "mask_actions": config.mask_actions,
    }
    vector_env: VectorEnv[Any, Any, Any]
    if config.vectorization == "workers":
        from zoo.envs.subproc_vec_env import SubprocVecEnv

        for name in ("n_workers", "start_method", "step_timeout"):
            options[name] = getattr(config, name)
        vector_env = SubprocVecEnv(make_envs, **options)
    else:
        vector_env = SyncVecEnv(make_envs, **options)
        vector_env.users_env = env.unwrapped if isinstance(env, gym.Env) else None
    if isinstance(source, EnvSpec):
        vector_env.spec = source
    return vector_env


def _is_known(env: str | EnvConfig | Env | Callable[..., Env], config: EnvConfig) -> bool:
    """Whether an environment needs no trial: it is of a well-kept package, or a vector form."""
    if is_native(config):
        return True
    if config.wrappers or not isinstance(env, str | EnvConfig):
        return False
    entry_point = registry.resolve(config.id).entry_point
    return isinstance(entry_point, str) and entry_point.startswith(KNOWN_GOOD)
