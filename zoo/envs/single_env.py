"""From a config, an id or a function to one environment with its wrappers around it."""

from __future__ import annotations

import copy
import inspect
import re
import weakref
from collections.abc import Callable, Sequence
from types import MethodType
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from zoo.envs import ids
from zoo.envs.config import ATARI_FRAMES, NO_LIMIT_OF_FRAMES, AtariConfig, EnvConfig, atari_config
from zoo.envs.wrappers import FrameStack, find_wrapper, wrapped
from zoo.errors import ZooError, nearest

Env = gym.Env[Any, Any]


def source_of(
    env: str | EnvConfig | Env | Callable[..., Env], config: EnvConfig, n_envs: int
) -> EnvSpec | Callable[..., Env]:
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
        if config.kwargs:
            raise ZooError(
                f"env.kwargs: {config.id} is made already; give the class or a function, or no kwargs"
            )
        if config.render_mode not in (None, env.render_mode):
            raise ZooError(
                f"env.render_mode={config.render_mode}: {config.id} is made already, with "
                f"render_mode={env.render_mode!r}; make it with the one that is wanted"
            )
        return lambda **_: env
    if not callable(env):
        raise ZooError(
            f"env is a {type(env).__name__}; "
            "expected an id, an EnvConfig, a gymnasium.Env or a function that makes one"
            f"{'; gymnasium.vector.SyncVectorEnv(functions) is one env too' if isinstance(env, list) else ''}"
        )
    return env


def make_env(config: EnvConfig, source: EnvSpec | Callable[..., Env]) -> Env:
    """Return one environment as ``config`` says; ``source`` is what the bare one is made from."""
    atari = atari_config(config)
    if isinstance(source, EnvSpec):
        env = _registered(config, source, atari)
    else:
        if atari is not None and atari.action_repeat_probability is not None:
            raise ZooError(
                f"env.atari.action_repeat_probability needs an id; {config.id} makes the game itself"
            )
        env = _limited(_called(source, config), config, atari)
    _check_render_mode(env, config)
    if atari is not None:
        from zoo.envs.atari import preprocessed

        limit = config.max_episode_steps
        env = preprocessed(env, atari, limit if isinstance(limit, int) else None)
    env = wrapped(env, config)
    frames = config.frame_stack or (ATARI_FRAMES if atari is not None else 1)
    env = FrameStack(env, frames) if frames > 1 or atari is not None else env
    pass_options_if_any(env)
    return env


def _called(source: Callable[..., Any], config: EnvConfig) -> Env:
    """Return what the user's function or class makes, if that is an environment."""
    arguments = copy.deepcopy(config.kwargs)
    if config.render_mode is not None:
        arguments["render_mode"] = config.render_mode
    if arguments:
        try:
            inspect.signature(source).bind(**arguments)
        except TypeError as error:
            given = "env.render_mode" if list(arguments) == ["render_mode"] else "these env.kwargs"
            raise ZooError(
                f"{config.id} does not take {given}: {error}; add the argument to what makes the environment"
            ) from error
    made = source(**arguments)
    if not isinstance(made, gym.Env):
        old = any(base.__module__.partition(".")[0] == "gym" for base in type(made).__mro__)
        advice = " (it is one of the old `gym`: derive it from gymnasium.Env)" if old else ""
        raise ZooError(f"{config.id} made a {type(made).__name__}; expected a gymnasium.Env{advice}")
    return made


def _limited(env: Env, config: EnvConfig, atari: AtariConfig | None) -> Env:
    """Return what a function made within the time limit that is asked for.

    Raises `ZooError` where the function has put a shorter one around it, which would stay in force.
    """
    limit = config.max_episode_steps
    if limit == "auto":
        return env
    inner = find_wrapper(env, gym.wrappers.TimeLimit)
    if inner is not None and (limit is None or limit > inner._max_episode_steps):
        asked = "null" if limit is None else limit
        raise ZooError(
            f"env.max_episode_steps={asked}: {config.id} comes with a TimeLimit of "
            f"{inner._max_episode_steps} steps around it; make it without"
        )
    return env if limit is None or atari is not None else gym.wrappers.TimeLimit(env, limit)


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
    if config.max_episode_steps != "auto":
        if ids.is_atari_game(config.id):
            arguments.setdefault("max_num_frames_per_episode", NO_LIMIT_OF_FRAMES)
        if atari is None:
            spec.max_episode_steps = config.max_episode_steps
    with ids.missing_packages_named(spec):
        try:
            env = gym.make(spec, **arguments)
        except TypeError as error:
            if "must inherit from the gymnasium.Env" in str(error):
                made = re.sub(r".*<class '(.*?)'>.*", r"\1", str(error))
                raise ZooError(f"{config.id} makes a {made}; expected a subclass of gymnasium.Env") from error
            raise ZooError(f"{config.id} does not take these env.kwargs: {error}") from error
    return env


def _check_render_mode(env: Env, config: EnvConfig) -> None:
    """Raise `ZooError` for a mode that the environment would only warn of."""
    mode, known = config.render_mode, env.metadata.get("render_modes", [])
    if mode is not None and known and mode not in known and not mode.endswith("_list"):
        hint = nearest(mode, known)
        raise ZooError(f"env.render_mode={mode}: {config.id} can {', '.join(known)}{hint}")


# -- environments that others hold, too -----------------------------------------------------------------


def refuse_one_for_several(envs: Sequence[Any], first_index: int = 0) -> None:
    """Raise `ZooError` if two of these environments are one, which would take the steps of both."""
    places: dict[int, int] = {}
    for i, env in enumerate(envs, start=first_index):
        before = places.setdefault(id(env.unwrapped), i)
        if before != i:
            raise ZooError(
                f"env {before} and env {i} are the same {type(env.unwrapped).__name__}, which can't play two "
                "episodes at once; expected a function that makes a new one at each call, or n_envs=1"
            )


class _Holders(list["weakref.ref[Any]"]):
    """The vector environments that one environment stands in; a copy of it stands in none."""

    def __reduce__(self) -> tuple[type[_Holders], tuple[()]]:
        return _Holders, ()


def watch(env: Any, holder: Any) -> None:
    """Let ``holder.last_stepped_by`` be None from now on after each step and reset of ``env``.

    The instance itself tells, for what is around it sees nothing of those who step it from elsewhere.
    """
    bare = env.unwrapped
    holders = vars(bare).setdefault("_zoo_holders", _Holders())
    holders[:] = [each for each in holders if each() not in (None, holder)]
    holders.append(weakref.ref(holder))
    _put_before(bare, "step", _step)
    _put_before(bare, "reset", _reset)


def pass_options_if_any(env: Env) -> None:
    """Let an environment or wrapper whose reset takes no ``options`` get none unless there are any."""
    while True:
        takes = inspect.signature(env.reset).parameters.values()
        if not any(each.name == "options" or each.kind is each.VAR_KEYWORD for each in takes):
            _put_before(env, "reset", _reset)
        if not isinstance(env, gym.Wrapper):
            return
        env = env.env


def _put_before(bare: Any, name: str, method: Callable[..., Any]) -> None:
    """Call ``method`` in the place of one of its class, unless the instance has one of its own."""
    own = vars(bare).get(name)
    if own is None or getattr(own, "__func__", None) is getattr(type(bare), name):
        vars(bare)[name] = MethodType(method, bare)


def _step(self: Any, *args: Any, **kwargs: Any) -> Any:
    _tell_holders(self)
    return type(self).step(self, *args, **kwargs)


def _reset(self: Any, *args: Any, **kwargs: Any) -> Any:
    _tell_holders(self)
    if not kwargs.get("options"):
        kwargs.pop("options", None)
    return type(self).reset(self, *args, **kwargs)


def _tell_holders(bare: Any) -> None:
    for reference in vars(bare).get("_zoo_holders", ()):
        holder = reference()
        if holder is not None:
            holder.last_stepped_by = None


_step.__name__, _reset.__name__ = "step", "reset"  # by which a bound method is pickled
