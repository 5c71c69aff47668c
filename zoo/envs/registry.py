"""Environment ids: registered specs, packages to install, folder names; errors and folders of envs."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import os
import re
import sys
import traceback
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec, parse_env_id

from zoo.config.aliases import VERY_CLOSE
from zoo.config.user_files import import_own
from zoo.core.printing import one_line, print_message, say
from zoo.errors import ZooError, install_command, nearest, nearest_name

PACKAGES = {
    r"ALE/.+|.*NoFrameskip-v\d+": "ale_py",
    r".*BulletEnv-v\d+": "pybullet_envs_gymnasium",
    r"Panda\w+-v\d+": "panda_gym",
    r"(MiniGrid|BabyAI)-.+": "minigrid",
    r"MinAtar/.+": "minatar",
    r"MiniWorld-.+": "miniworld",
    r"(Fetch|HandManipulate|HandReach|AntMaze|PointMaze|Adroit|FrankaKitchen).+": "gymnasium_robotics",
    r"(highway|merge|roundabout|parking|intersection|racetrack)-.*v\d+": "highway_env",
    r"dm_control/.+": "shimmy",
    r"procgen.+": "procgen",
}
"""Ids → the package that registers them when it is imported."""

INSTALLS = {
    "ale_py": install_command("atari"),
    "gymnasium.envs.box2d": install_command("box2d"),
    "gymnasium.envs.classic_control": "pip install pygame",
    "gymnasium.envs.mujoco": install_command("mujoco"),
    "gymnasium.envs.toy_text": "pip install pygame",
    "gymnasium_robotics": install_command("robotics"),
    "highway_env": install_command("robotics"),
    "minatar": install_command("minatar"),
    "minigrid": install_command("minigrid"),
    "miniworld": "pip install miniworld",
    "panda_gym": install_command("robotics"),
    "procgen": "pip install procgen",
    "pybullet_envs_gymnasium": install_command("pybullet"),
    "shimmy": 'pip install "shimmy[dm-control]"',
}
"""Package of environments → what installs all that they need."""

ENVPOOL = "envpool:"
"""How the ids of EnvPool's environments begin, of which there are only vector forms."""

MINATAR_STEPS = 5_000
"""Time limit of MinAtar's games, which have none: in Seaquest an agent could wait at the surface for ever."""

LEGACY_GAME = r"\w+?(-ram)?(Deterministic)?-v[04]"
"""Ids of Atari games as the first Gym had them, `Pong-v4`; many that are no game look the same."""


def folder_name(env_id: str) -> str:
    """Return ``env_id`` as the name of a folder: ``ALE/Pong-v5`` → ``ALE-Pong-v5``."""
    name = re.sub(r"[^A-Za-z0-9._+-]+", "-", env_id).strip("-.")
    return name or "env"


def resolve(env_id: str) -> EnvSpec:
    """Return the spec of ``env_id``; imports the package that registers it."""
    if env_id.startswith(ENVPOOL):
        return _envpool_spec(env_id.removeprefix(ENVPOOL))
    name = _import_module_of(env_id)
    package = next((package for pattern, package in PACKAGES.items() if re.fullmatch(pattern, name)), None)
    if package is None:
        _register_if_legacy_game(name)
    elif name not in gym.registry:
        if importlib.util.find_spec(package) is None:
            raise ZooError(f"{name} needs: {INSTALLS[package]}")
        importlib.import_module(package)
        if package == "minatar":
            importlib.import_module("minatar.gym").register_envs()
    if package == "minatar" and name in gym.registry and gym.registry[name].max_episode_steps is None:
        gym.registry[name].max_episode_steps = MINATAR_STEPS
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return gym.spec(name)
        except gym.error.Error as error:
            raise ZooError(_unknown(name, env_id.removesuffix(name))) from error


@functools.cache
def _envpool_spec(name: str) -> EnvSpec:
    """Return the spec of an EnvPool environment, with ``is_atari`` among its arguments."""
    if importlib.util.find_spec("envpool") is None:
        raise ZooError(f"{ENVPOOL}{name} needs: {install_command('envpool')}")
    import envpool

    if name not in (names := envpool.list_all_envs()):
        hint = nearest(f"{ENVPOOL}{name}", [ENVPOOL + other for other in names])
        raise ZooError(f"unknown environment {ENVPOOL}{name}{hint}")
    is_atari = hasattr(envpool.make_spec(name).config, "noop_max")
    return EnvSpec(f"{ENVPOOL}{name}", kwargs={"is_atari": is_atari})


def with_registered_env(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings in which a class or function as ``env`` is registered, in this process, by its name.

    Raises `ZooError` for a function without one.
    """
    make, name = settings.get("env"), getattr(settings.get("env"), "__name__", "")
    if not callable(make):
        return dict(settings)
    if not name.isidentifier():
        raise ZooError("env is a function without a name; expected a class, or a function made by def")
    entry_points = (make, f"{make.__module__}:{make.__qualname__}")  # its module may have registered it
    for env_id, spec in gym.registry.items():
        if env_id != name and spec.entry_point in entry_points:
            return {**settings, "env": env_id}
    if name not in gym.registry or gym.registry.pop(name).entry_point is not make:
        print_message(
            f"env={name} is known in this process alone: workers=2, zoo tune and commands for its run need a"
            f" module that registers it, env=MODULE:{name}-v0"
        )
    gym.register(name, entry_point=make)
    return {**settings, "env": name}


def is_atari_game(env_id: str) -> bool:
    """Whether an id, with or without its module, names an Atari game in an emulator."""
    module, _, name = env_id.rpartition(":")
    if env_id.startswith(ENVPOOL):
        return bool(_envpool_spec(name).kwargs["is_atari"])
    if re.match(r"ALE/|.*NoFrameskip-v", name):
        return True
    if module in ("", "ale_py"):
        _register_if_legacy_game(name)
    entry_point = gym.registry[name].entry_point if name in gym.registry else None
    return isinstance(entry_point, str) and entry_point.startswith("ale_py.")


def _register_if_legacy_game(name: str) -> None:
    """Import what registers Atari games, where it is installed, if ``name`` looks like one of the old ids."""
    if name not in gym.registry and re.fullmatch(LEGACY_GAME, name):
        with contextlib.suppress(ImportError):
            importlib.import_module("ale_py")


@contextlib.contextmanager
def missing_packages_named(spec: EnvSpec) -> Iterator[None]:
    """Turn a failed import while an environment is made into the command that mends it."""
    try:
        yield
    except (gym.error.DependencyNotInstalled, ImportError) as error:
        missing = getattr(error, "name", None)
        commands = [
            command for package, command in INSTALLS.items() if str(spec.entry_point).startswith(package)
        ]
        if commands or missing:
            raise ZooError(
                f"{spec.id} needs: {(*commands, f'pip install {missing}')[0]} ({error})"
            ) from error
        newer = [other for other in _other_versions(spec.id) if other > spec.id][-1:]
        hint = f"; there is {newer[0]}" if newer else ""
        raise ZooError(f"{spec.id} cannot be made: {one_line(error).rstrip('.')}{hint}") from error


def _import_module_of(env_id: str) -> str:
    """Import the module of ``module:Id`` and return the id alone."""
    module, colon, name = env_id.rpartition(":")
    if not colon:
        return env_id
    if not module or not name:
        raise ZooError(f"unknown environment {env_id}; expected `module:Id`")
    try:
        import_own(module)
    except ModuleNotFoundError as error:
        missing = error.name or module
        if missing != module and not module.startswith(f"{missing}."):
            raise ZooError(f"{env_id}: module `{module}` needs `{missing}`: pip install {missing}") from error
        hint = "is it installed, or in the working folder?"
        raise ZooError(f"{env_id}: there is no module `{module}` here; {hint}") from error
    return name


def _unknown(name: str, module: str) -> str:
    """Return the message for an unregistered id; suggestions begin with the same module."""
    with contextlib.suppress(ImportError):
        importlib.import_module("ale_py")
    spaced = [spec.id for spec in gym.registry.values() if spec.id.rpartition("/")[2] == name]
    if spaced and not module:
        return f"unknown environment {name}; did you mean '{spaced[0]}'?"
    if others := [module + other for other in _other_versions(name)]:
        return f"unknown environment {module}{name}; there is {', '.join(others)}"
    if near := nearest_name(name, gym.registry, VERY_CLOSE):
        hint = f"did you mean '{module}{near}'?" + ("" if module else f" One of your own is `module:{name}`")
    elif module:
        hint = f"{module[:-1]} has none: gymnasium.register('{name.rpartition('-v')[0] or name}-v0', …)"
    else:
        hint = f"if a package registers it, write `module:{name}`"
    return f"unknown environment {module}{name}; {hint}"


def _other_versions(name: str) -> list[str]:
    """Return the registered ids that differ from ``name`` in nothing but the version."""
    try:
        namespace, base, _ = parse_env_id(name)
    except gym.error.Error:
        return []
    return [spec.id for spec in gym.registry.values() if (spec.namespace, spec.name) == (namespace, base)]


def env_error(error: BaseException, who: str, when: str) -> ZooError:
    """Return an environment's own error, with its own traceback, as one for the user."""
    if isinstance(error, ZooError):
        is_named = when == "while it was made" or str(error).startswith(who)
        return error if is_named else ZooError(f"{who}: {error}")
    if isinstance(error, gym.error.DependencyNotInstalled):
        return ZooError(f"{who} needs a package: {error}")
    frames = error.__traceback__.tb_next if error.__traceback__ is not None else None
    text = "".join(traceback.format_exception(type(error), error, frames)).rstrip()
    return ZooError(f"{who} raised {type(error).__name__} {when}:\n{text}")


class _Moved:
    folder: str | None = None
    """Working folder of this process's environments after one called os.chdir, or None."""


@contextlib.contextmanager
def in_env_folder(*, making: bool = False) -> Iterator[None]:
    """Let environments within the block work where they have gone, and return to the working folder after it.

    Simulators change it. Whoever trains in one would otherwise find the run's files in another folder. New
    environments are made in the working folder.
    """
    folder = os.getcwd()
    if _Moved.folder is not None and not making:
        with contextlib.suppress(OSError):  # it was removed since
            os.chdir(_Moved.folder)
    try:
        yield
    finally:
        envs_folder = None
        with contextlib.suppress(OSError):
            envs_folder = os.getcwd()
        if envs_folder != folder:
            os.chdir(folder)
            _Moved.folder = envs_folder
        elif not making:
            _Moved.folder = None


@contextlib.contextmanager
def close_reporting(name: str) -> Iterator[None]:
    """Print an exception from closing an environment as one line."""
    try:
        yield
    except (Exception, SystemExit) as error:
        say(f"zoo: {name}: close() raised {type(error).__name__}: {one_line(error)}", sys.stderr)
