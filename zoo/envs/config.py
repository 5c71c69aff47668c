"""Configuration of environments: dataclasses of plain values, and the choices that follow from them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import gymnasium as gym

from zoo.config.fields import build, hyperparameter
from zoo.config.user_files import named_class
from zoo.envs.registry import ENVPOOL, folder_name, is_atari_game
from zoo.errors import ZooError

ATARI_FRAMES = 4
"""Default number of stacked frames of an Atari game."""

NO_LIMIT_OF_FRAMES = 2**31 - 1
"""Replaces the emulator's own limit where the config sets or removes the time limit."""

DEFAULT_RESEED_EVERY, ATARI_RESEED_EVERY = 1_000, 10_000
"""Steps between two seeds of an environment; more for the emulator, whose seeding loads the game again."""

NEEDS_RENEWAL = r"(.+:)?(BipedalWalker.*|.*BulletEnv-v\d+|MinAtar/.+)"
"""Ids of environments whose reset keeps state, so that the same seed can give different episodes."""


@dataclass
class NormalizeConfig:
    """Running normalisation of observations and rewards."""

    observations: bool = hyperparameter(True, "normalise observations (images and discrete ones never are)")
    rewards: bool | str = hyperparameter(
        True,
        "divide rewards by the standard deviation of the running return; scaled: also keep returns within"
        " return_bound, without clipping",
    )
    return_bound: float = hyperparameter(5.0, "largest absolute return of scaled rewards", gt=0)
    clip_obs: float = hyperparameter(10.0, "largest absolute normalised observation", gt=0)
    clip_reward: float = hyperparameter(10.0, "largest absolute normalised reward", gt=0)
    epsilon: float = hyperparameter(1e-8, "added to the variance before its root is taken", gt=0)
    gamma: float | None = hyperparameter(
        None, "discount of the running return; null: the algorithm's gamma", ge=0, le=1
    )
    keys: list[str] | None = hyperparameter(
        None, "keys of a dictionary observation to normalise; null: every vector of floats"
    )


@dataclass
class AtariConfig:
    """Preprocessing of Atari games; with the names and defaults of SB3's AtariWrapper."""

    noop_max: int = hyperparameter(30, "most no-op actions at a game's start", ge=0)
    frame_skip: int = hyperparameter(4, "frames that an action is repeated for", unit="frames", ge=1)
    screen_size: int = hyperparameter(84, "side of the square grey image", unit="pixels", ge=1)
    terminal_on_life_loss: bool = hyperparameter(True, "a lost life ends the episode that the agent sees")
    clip_reward: bool = hyperparameter(True, "train on the sign of the reward")
    fire_on_reset: bool = hyperparameter(True, "press FIRE where a game waits for it")
    action_repeat_probability: float | None = hyperparameter(
        None, "probability of repeating the last action; null: the id's", ge=0, le=1
    )


@dataclass
class EnvConfig:
    """An environment: its id and arguments, where it is stepped, and its wrappers."""

    id: str = hyperparameter(help="Gymnasium id; `module:Id-v0` imports the module first")
    kwargs: dict[str, Any] = hyperparameter(help="arguments of the environment", default_factory=dict)
    vectorization: str = hyperparameter(
        "auto",
        "sync: in this process; workers: in worker processes (for slow environments, where cores are idle); "
        "native: the environment's own vector form; auto: sync, native for EnvPool",
        choices=("auto", "sync", "workers", "native"),
    )
    n_workers: int | None = hyperparameter(None, "worker processes; null: one a core", ge=1)
    start_method: str = hyperparameter(
        "forkserver", "how worker processes start", choices=("fork", "forkserver", "spawn")
    )
    step_timeout: float | None = hyperparameter(
        None,
        "time limit for a step of one environment, with workers only; null: none",
        unit="seconds",
        gt=0,
    )
    wrappers: list[str | dict[str, Any]] = hyperparameter(
        help="wrappers by name, class path or {_target_: class path, argument: value}, innermost first",
        default_factory=list,
    )
    max_episode_steps: int | Literal["auto"] | None = hyperparameter(
        "auto", "time limit; auto: the registered one; null: none", unit="environment steps", ge=1
    )
    normalize: bool | dict[str, Any] = hyperparameter(False, "true, or the values of NormalizeConfig")
    frame_stack: int | None = hyperparameter(
        None, "last observations seen at once; null: 4 for Atari", ge=1, le=10_000
    )
    history: int | None = hyperparameter(None, "last observations and actions seen at once", ge=1)
    action_repeat: int = hyperparameter(1, "steps that an action is repeated for, rewards summed", ge=1)
    time_feature: bool | dict[str, Any] = hyperparameter(
        False, "append the time left to the observation: true, or {max_steps, test_mode}"
    )
    mask_actions: bool = hyperparameter(
        True, "choose among valid actions only, if the environment has masks; false: among all"
    )
    mask_velocities: bool = hyperparameter(False, "set velocities to zero, so that memory is needed")
    atari: bool | dict[str, Any] | None = hyperparameter(
        None, "Atari preprocessing: true, false or the values of AtariConfig; null: for Atari ids"
    )
    reseed_every: int | None = hyperparameter(
        None,
        "steps after which the next episode begins with a new seed; "
        f"null: {DEFAULT_RESEED_EVERY:,}, and {ATARI_RESEED_EVERY:,} for Atari",
        unit="steps of each environment",
        ge=1,
    )
    renew: bool | str = hyperparameter(
        "auto",
        "create the environment again for each seed, if its reset keeps state; "
        "auto: BipedalWalker, PyBullet and MinAtar",
        choices=("auto", True, False),
    )
    nan_check: bool = hyperparameter(False, "stop at the first NaN or infinity and say where it came from")
    check: bool = hyperparameter(True, "check the environment by a few steps before training")
    info_keywords: list[str] = hyperparameter(
        help="values of `info` at an episode's end that are logged", default_factory=list
    )
    render_mode: str | None = hyperparameter(None, "human, rgb_array, …")

    def __post_init__(self) -> None:
        normalize_config(self)
        atari_config(self)

    @property
    def is_atari(self) -> bool:
        """Whether the id names an Atari game with image observations."""
        from_memory = self.kwargs.get("obs_type") == "ram" or "-ram" in self.id
        return not from_memory and is_atari_game(self.id)

    def is_greedy(self, deterministic: bool | None) -> bool:
        """Return whether an agent takes the most likely action; None: not in Atari and MiniGrid."""
        is_drawn = self.is_atari or self.id.rpartition(":")[2].startswith("MiniGrid-")
        return not is_drawn if deterministic is None else deterministic

    @property
    def tuned_names(self) -> list[str]:
        """The names that its tuned file may have, the first choice first."""
        names = [self.id, folder_name(self.id), folder_name(self.id.rpartition(":")[2])]
        return [*names, "atari"] if self.is_atari else names


def env_config(
    env: str | EnvConfig | gym.Env[Any, Any] | Callable[[], gym.Env[Any, Any]], **options: Any
) -> EnvConfig:
    """Return the checked config of ``env`` with ``options`` (fields of `EnvConfig`) laid over it."""
    if isinstance(env, EnvConfig):
        values = asdict(env)
    elif isinstance(env, str):
        values = {"id": env}
    elif isinstance(env, gym.Env):
        values = {"id": env.spec.id if env.spec is not None else type(env.unwrapped).__name__}
    else:
        values = {"id": getattr(env, "__name__", type(env).__name__)}
    if isinstance(options.get("wrappers"), list | tuple):
        options["wrappers"] = [named_class(wrapper, "env.wrappers") for wrapper in options["wrappers"]]
    return build(EnvConfig, {**values, **options}, "env")


def normalize_config(config: EnvConfig) -> NormalizeConfig | None:
    """Return the settings of normalisation, or None if nothing is normalised."""
    if config.normalize is False:
        return None
    values = config.normalize if isinstance(config.normalize, dict) else {}
    normalize = build(NormalizeConfig, values, "env.normalize")
    if isinstance(normalize.rewards, str) and normalize.rewards != "scaled":
        raise ZooError(f"`env.normalize.rewards={normalize.rewards}`: expected true, false or scaled")
    return normalize if normalize.observations or normalize.rewards else None


def atari_config(config: EnvConfig) -> AtariConfig | None:
    """Return the Atari preprocessing, or None if there is none."""
    setting = config.is_atari if config.atari is None else config.atari
    if setting is False:
        return None
    atari = build(AtariConfig, setting if isinstance(setting, dict) else {}, "env.atari")
    instead = {"frameskip": "set env.atari.frame_skip, or ", "obs_type": ""}
    if atari.action_repeat_probability is not None:
        instead["repeat_action_probability"] = "set env.atari.action_repeat_probability, or "
    for argument in set(instead) & set(config.kwargs):
        raise ZooError(
            f"`env.kwargs.{argument}={config.kwargs[argument]}`: the Atari preprocessing decides that; "
            f"{instead[argument]}go without by env.atari=false"
        )
    return atari


def frames_shown(config: EnvConfig) -> int:
    """Return how many frames an observation shows: one, but where they are stacked."""
    return config.frame_stack or (ATARI_FRAMES if atari_config(config) is not None else 1)


def is_renewed(config: EnvConfig) -> bool:
    """Whether a seed goes to a new environment; never to one in a window, which would close each time."""
    if isinstance(config.renew, bool):
        return config.renew
    return config.render_mode != "human" and re.fullmatch(NEEDS_RENEWAL, config.id) is not None


def is_native(config: EnvConfig) -> bool:
    """Whether the environment's own vector form is stepped; EnvPool has no other."""
    return config.vectorization == "native" or config.id.startswith(ENVPOOL)


def without_workers(config: EnvConfig) -> EnvConfig:
    """Return the config without worker processes."""
    return replace(config, vectorization="auto", n_workers=None, step_timeout=None)
