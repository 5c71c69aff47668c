"""Environment wrappers, and applying a config's wrappers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from zoo.config.user_files import own_class
from zoo.envs.config import EnvConfig
from zoo.envs.masks import ActionMasker
from zoo.envs.spaces import (
    ACHIEVED,
    DESIRED,
    Env,
    Info,
    Space,
    channels_first,
    describe,
    flat_parts,
    flat_space,
    is_composite,
    is_goal_space,
    is_image,
    layers,
    mask_size,
)
from zoo.errors import ZooError, install_command, nearest

Wrapper = gym.Wrapper[Any, Any, Any, Any]

MASK_KEY = "action_mask"
"""The key of a Dict observation under which PettingZoo and RLlib have the mask of valid actions."""

VELOCITIES = {
    "Acrobot": (4, 5),
    "BipedalWalker": (1, 2, 3, 5, 7, 10, 12),
    "BipedalWalkerHardcore": (1, 2, 3, 5, 7, 10, 12),
    "CartPole": (1, 3),
    "LunarLander": (2, 3, 5),
    "LunarLanderContinuous": (2, 3, 5),
    "MountainCar": (1,),
    "MountainCarContinuous": (1,),
    "Pendulum": (2,),
}
"""Name of an environment → where velocities stand in its observation."""


def apply_wrappers(env: Env, config: EnvConfig) -> Env:
    """Return ``env`` with the wrappers of ``config``; raw returns are summed below the user's own."""
    if config.action_repeat > 1:
        env = ActionRepeat(env, config.action_repeat)
    if config.mask_velocities:
        env = MaskVelocities(env)
    if config.wrappers:
        if find_wrapper(env, EpisodeStatistics) is None:
            env = EpisodeStatistics(env)
        for wrapper in config.wrappers:
            env = _apply_wrapper(env, wrapper)
    env = flatten_env(env, masked=config.mask_actions)
    if config.history is not None:
        env = History(env, config.history)
    if config.time_feature is not False:
        env = TimeFeature(env, **(config.time_feature if isinstance(config.time_feature, dict) else {}))
    return env


def find_wrapper(env: Env, wrapper_class: type[Any]) -> Any:
    """Return the outermost wrapper of a class around ``env``, or None."""
    return next((layer for layer in layers(env) if isinstance(layer, wrapper_class)), None)


class FlatObservation(gym.ObservationWrapper):
    """Shows nested observations as a dictionary by path, and `MASK_KEY` as mask, if it ``has_mask``."""

    def __init__(self, env: Env, space: Space, *, has_mask: bool) -> None:
        super().__init__(env)
        self.observation_space = flat_space(space)
        self._is_nested, self._has_mask = self.observation_space is not space, has_mask
        self._mask: Any = None
        if has_mask and not env.has_wrapper_attr("action_masks"):
            self.action_masks = lambda: self._mask

    def observation(self, observation: Any) -> Any:
        """Return the observation as a policy sees it, and store the mask."""
        if self._has_mask:
            self._mask = observation[MASK_KEY]
            observation = {key: part for key, part in observation.items() if key != MASK_KEY}
        if self._is_nested and isinstance(self.observation_space, spaces.Dict):
            return dict(flat_parts(self.observation_space, observation))
        return observation


def flatten_env(env: Env, *, masked: bool = True) -> Env:
    """Return ``env`` with observations that a policy can read: see `FlatObservation`."""
    if not (hasattr(env, "observation_space") and hasattr(env, "action_space")):
        return env  # which is refused by its check
    if has_mission(env.observation_space):
        env = MiniGridObservation(env)
    space: Any = env.observation_space
    may_have_mask = masked and isinstance(space, spaces.Dict) and mask_size(env.action_space) is not None
    if has_mask := may_have_mask and MASK_KEY in space.spaces and len(space) > 1:
        space = spaces.Dict([(key, part) for key, part in space.items() if key != MASK_KEY])
    is_flat = flat_space(space) is space
    return env if is_flat and not has_mask else FlatObservation(env, space, has_mask=has_mask)


CELL_CODES = (11, 6, 4)
"""Numbers of objects, colours and states (with `FullyObsWrapper` also directions) of MiniGrid's cells."""


def has_mission(space: Space) -> bool:
    """Return whether observations have a MiniGrid mission with known words (BabyAI's are free text)."""
    parts = space.spaces if isinstance(space, spaces.Dict) else {}
    return type(parts.get("mission")).__module__ == "minigrid.core.mission" and "image" in parts


class MiniGridObservation(gym.ObservationWrapper):
    """Shows MiniGrid's cells as a board of zeros and ones, and a mission as numbers of its variable words.

    A mission without such words is left out. Pixels, as of `RGBImgPartialObsWrapper`, stay as they are.
    """

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        parts: dict[str, Any] = dict(env.observation_space.spaces)  # type: ignore[attr-defined]
        mission = parts.pop("mission")
        words = mission.ordered_placeholders or []
        self._numbers_of = {
            mission.mission_func(*map(list.__getitem__, words, numbers)): np.array(numbers)
            for numbers in itertools.product(*[range(len(group)) for group in words])
        }
        if words:
            parts["mission"] = spaces.MultiDiscrete([len(group) for group in words])
        *sides, n_channels = parts["image"].shape
        is_drawn = any(type(layer).__name__.startswith("RGBImg") for layer in layers(env))
        self._has_cells = n_channels == 3 and parts["image"].dtype == np.uint8 and not is_drawn
        if self._has_cells:
            parts["image"] = spaces.Box(0, 1, (*sides, sum(CELL_CODES)), np.uint8)
        self._keys, self.observation_space = list(parts), spaces.Dict(parts)

    def observation(self, observation: Any) -> Any:
        parts = {key: observation[key] for key in self._keys}
        if "mission" in parts:
            parts["mission"] = self._numbers_of[observation["mission"]]
        if self._has_cells:
            codes = zip(np.moveaxis(observation["image"], -1, 0)[..., None], CELL_CODES, strict=True)
            parts["image"] = np.concatenate([part == np.arange(n) for part, n in codes], -1).astype(np.uint8)
        return parts


NORMALIZING = (
    gym.wrappers.NormalizeObservation,
    gym.wrappers.NormalizeReward,
    gym.wrappers.vector.NormalizeObservation,
    gym.wrappers.vector.NormalizeReward,
)
"""Gymnasium's wrappers whose running statistics stay in the environment that they are around."""


def unsaved_statistics(env: Any) -> list[str]:
    """Return, in a line, which wrappers around ``env`` normalise by statistics of their own."""
    names = [type(layer).__name__ for layer in layers(env) if isinstance(layer, NORMALIZING)][::-1]
    advice = (
        f"{' and '.join(names)}: these statistics are neither saved with the agent nor shared with other "
        "environments and evaluations, whose scores depend on how many episodes are played; "
        "env.normalize=true does both"
    )
    return [advice] if names else []


class EpisodeStatistics(Wrapper):
    """Sums raw rewards below the wrappers that change them, under Gymnasium's names."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.episode_returns = 0.0
        self.episode_lengths = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Info]:
        self.episode_returns, self.episode_lengths = 0.0, 0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, Info]:
        result = self.env.step(action)
        self.episode_returns += float(result[1])
        self.episode_lengths += 1
        return result


def statistics_of(env: Env) -> Any:
    """Return the innermost wrapper around ``env`` that sums rewards up: it is the nearest to the raw ones."""
    kinds = EpisodeStatistics | gym.wrappers.RecordEpisodeStatistics
    return next((layer for layer in [*layers(env)][::-1] if isinstance(layer, kinds)), None)


class LifeLoss(Wrapper):
    """Ends an episode at each lost life while the game goes on; a seed or a game's end starts a new one."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self._lives = 0
        self._game_over = True
        self.goes_on = False
        """Whether the last step ended the episode, but not the game."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, Info]:
        """Step; a life lost terminates, while the game ``goes_on``."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._game_over = terminated or truncated
        lives = self.unwrapped.ale.lives()  # type: ignore[attr-defined]
        self.goes_on = 0 < lives < self._lives and not self._game_over
        self._lives = lives
        return observation, reward, terminated or self.goes_on, truncated, info

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Info]:
        """Start a new game after a game, or if a seed is given; else go on with a no-op."""
        if not self._game_over and seed is None and not options:
            observation, _, terminated, truncated, info = self.env.step(0)
            if terminated or truncated:
                observation, info = self.env.reset()
        else:
            observation, info = self.env.reset(seed=seed, options=options)
        self._game_over = False
        self._lives = self.unwrapped.ale.lives()  # type: ignore[attr-defined]
        return observation, info


class ActionRepeat(Wrapper):
    """Repeats each action ``n`` times, or until the episode ends, and sums the rewards."""

    def __init__(self, env: Env, n: int) -> None:
        super().__init__(env)
        self._n = n

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Info]:
        self._elapsed_steps = 0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, Info]:
        total = 0.0
        for _ in range(self._n):
            observation, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            self._elapsed_steps += 1
            if terminated or truncated:
                break
        return observation, total, terminated, truncated, info


class MaskVelocities(gym.ObservationWrapper):
    """Sets the velocities in an observation to zero; ``indices`` says where they stand."""

    def __init__(self, env: Env, indices: tuple[int, ...] | list[int] | None = None) -> None:
        super().__init__(env)
        name = env.unwrapped.spec.name if env.unwrapped.spec is not None else type(env.unwrapped).__name__
        if indices is None and (indices := VELOCITIES.get(name)) is None:
            raise ZooError(
                f"env.mask_velocities: where {name} has velocities is not known; known: "
                f"{', '.join(VELOCITIES)}; for others: "
                "{_target_: zoo.envs.wrappers.MaskVelocities, indices: [...]} in env.wrappers"
            )
        space = _vector_space(env, "env.mask_velocities")
        self._mask = np.ones(space.shape, dtype=space.dtype)
        self._mask[list(indices)] = 0

    def observation(self, observation: Any) -> Any:
        return observation * self._mask


class TimeFeature(Wrapper):
    """Appends the fraction of time that is left, 1 − t/T, so that a time limit is part of the state.

    ``max_steps`` is T (the time limit by default), in steps of the environment itself. With ``test_mode`` the
    feature stays 1. Of a Dict observation the part ``observation`` is extended.
    """

    def __init__(self, env: Env, max_steps: int | None = None, test_mode: bool = False) -> None:
        super().__init__(env)
        self._key = "observation" if isinstance(env.observation_space, spaces.Dict) else None
        space = _vector_space(env, "env.time_feature", self._key)
        low, high = np.append(space.low, 0.0), np.append(space.high, 1.0)
        extended: Space = spaces.Box(low.astype(space.dtype), high.astype(space.dtype), dtype=_dtype(space))
        if isinstance(env.observation_space, spaces.Dict):
            extended = spaces.Dict({**env.observation_space.spaces, "observation": extended})
        self.observation_space = extended
        if max_steps is None and env.has_wrapper_attr("_max_episode_steps"):
            max_steps = env.get_wrapper_attr("_max_episode_steps")
        if max_steps is None:
            raise ZooError("env.time_feature needs a time limit: set env.max_episode_steps or {max_steps: N}")
        self._max_steps, self._test_mode = max_steps, test_mode
        self._clock = find_wrapper(env, gym.wrappers.TimeLimit) or find_wrapper(env, ActionRepeat) or self

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Info]:
        observation, info = self.env.reset(seed=seed, options=options)
        self._elapsed_steps = 0
        return self._with_time_left(observation), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, Info]:
        observation, *rest = self.env.step(action)
        self._elapsed_steps += 1
        return self._with_time_left(observation), *rest

    def _with_time_left(self, observation: Any) -> Any:
        left = 1.0 if self._test_mode else 1.0 - self._clock._elapsed_steps / self._max_steps
        part = observation if self._key is None else observation[self._key]
        extended = np.append(part, np.asarray(left, dtype=part.dtype))
        return extended if self._key is None else {**observation, self._key: extended}


class History(Wrapper):
    """Shows the last observations and (one-hot) actions as one vector, oldest first, at first zeros."""

    def __init__(self, env: Env, horizon: int = 2) -> None:
        super().__init__(env)
        space = _vector_space(env, "env.history")
        if is_composite(env.action_space) or not math.prod(env.action_space.shape or ()):
            raise ZooError(
                f"env.history: actions of {describe(env.action_space)} cannot be shown as a vector"
            )
        actions: Any = spaces.flatten_space(env.action_space)
        self._observations = np.zeros((horizon, *space.shape), dtype=np.float32)
        self._actions = np.zeros((horizon, *actions.shape), dtype=np.float32)
        bounds = [
            np.concatenate([np.tile(getattr(part, bound), horizon) for part in (space, actions)])
            for bound in ("low", "high")
        ]
        low, high = np.minimum(bounds[0], 0).astype(np.float32), np.maximum(bounds[1], 0).astype(np.float32)
        self.observation_space = spaces.Box(low, high, dtype=np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Info]:
        observation, info = self.env.reset(seed=seed, options=options)
        self._observations[:] = 0.0
        self._actions[:] = 0.0
        self._observations[-1] = observation
        return self._shown(), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, Info]:
        flat: Any = spaces.flatten(self.env.action_space, action)
        observation, reward, terminated, truncated, info = self.env.step(action)
        for history in (self._observations, self._actions):
            history[:-1] = history[1:]
        self._observations[-1] = observation
        self._actions[-1] = flat
        return self._shown(), reward, terminated, truncated, info

    def _shown(self) -> NDArray[np.float32]:
        return np.concatenate([self._observations.ravel(), self._actions.ravel()])


class FrameStack(gym.ObservationWrapper):
    """Shows the last ``n`` observations as one, the newest last, zeros before the start.

    Vectors are laid end to end; pictures along their channels: (H, W) → (n, H, W), (H, W, C) → (H, W, n·C),
    (C, H, W) → (n·C, H, W). Of a Dict observation each Box is stacked, but for the goals.
    """

    def __init__(self, env: Env, n: int = 4) -> None:
        super().__init__(env)
        space = env.observation_space
        self._stacks: dict[str, _Stack] = {}
        if isinstance(space, spaces.Dict):
            goals = (ACHIEVED, DESIRED) if is_goal_space(space) else ()
            for key, part in space.items():
                if isinstance(part, spaces.Box) and key not in goals:
                    self._stacks[key] = _Stack(part, n)
            stacked = {key: stack.space for key, stack in self._stacks.items()}
            self.observation_space = spaces.Dict({**space.spaces, **stacked})
        elif isinstance(space, spaces.Box):
            self._stacks[""] = _Stack(space, n)
            self.observation_space = self._stacks[""].space
        if not self._stacks:
            raise ZooError(f"env.frame_stack: {describe(space)} cannot be stacked; a Box can")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Info]:
        for stack in self._stacks.values():
            stack.frames = stack.none
        return super().reset(seed=seed, options=options)

    def observation(self, observation: Any) -> Any:
        """Return the last observations and this one."""
        if not isinstance(observation, Mapping):
            return self._stacks[""].push(observation)
        stacked = {key: stack.push(observation[key]) for key, stack in self._stacks.items()}
        return {**observation, **stacked}


class _Stack:
    """The last frames of one Box, side by side in one array."""

    def __init__(self, space: spaces.Box, n: int) -> None:
        if not 1 <= len(space.shape) <= 3:
            raise ZooError(f"env.frame_stack: {describe(space)} cannot be stacked; a vector or a picture can")
        self._adds_axis = len(space.shape) == 2
        self._axis = 0 if channels_first(space.shape) else -1
        low, high = (self._joined([bound] * n) for bound in (space.low, space.high))
        self.space = spaces.Box(np.minimum(low, 0), np.maximum(high, 0), dtype=_dtype(space))
        self.frames = self.none = [np.zeros_like(space.low)] * n

    def push(self, frame: Any) -> NDArray[Any]:
        self.frames = [*self.frames[1:], np.array(frame)]
        return self._joined(self.frames)

    def _joined(self, frames: list[NDArray[Any]]) -> NDArray[Any]:
        return np.stack(frames) if self._adds_axis else np.concatenate(frames, axis=self._axis)


def _apply_wrapper(env: Env, wrapper: str | Mapping[str, Any]) -> Env:
    """Return ``env`` with one wrapper of the config's list; short names are of this module or Gymnasium."""
    if isinstance(wrapper, str):
        wrapper = {"_target_": wrapper}
    arguments = {str(key): value for key, value in wrapper.items()}
    name = str(arguments.pop("_target_", ""))
    if not name:
        raise ZooError(f"env.wrappers: {dict(wrapper)} has no `_target_`, the path of the wrapper's class")
    if "." in name:
        make: Any = own_class("env.wrappers", name, gym.Wrapper)
    else:
        names = {**vars(gym.wrappers), **globals(), "ActionMasker": ActionMasker}
        wrappers = {n: c for n, c in names.items() if isinstance(c, type) and issubclass(c, gym.Wrapper)}
        if name not in wrappers:
            raise ZooError(f"env.wrappers: unknown wrapper `{name}`{nearest(name, wrappers)}")
        make = wrappers[name]
    try:
        return make(env, **arguments)
    except gym.error.DependencyNotInstalled as error:
        command = install_command("video") if issubclass(make, gym.wrappers.RecordVideo) else "a package"
        raise ZooError(f"env.wrappers: {name} needs: {command} ({error})") from error
    except TypeError as error:
        raise ZooError(f"env.wrappers: {name}: {error}") from error


def _vector_space(env: Env, option: str, key: str | None = None) -> spaces.Box:
    """Return the space of vectors that a wrapper works on, or raise `ZooError`."""
    space: Any = env.observation_space
    if key is not None:
        space = space.spaces.get(key)
    if isinstance(space, spaces.Box) and len(space.shape) == 1 and not is_image(space):
        return space
    expected = "a vector of numbers (or a Dict with `observation`)"
    raise ZooError(f"{option} works on {expected}, not on {describe(env.observation_space)}")


def _dtype(space: spaces.Box) -> Any:
    assert space.dtype is not None
    return space.dtype.type


def check_finite(
    name: str, values: Any, step: int, envs: Sequence[int] | NDArray[Any], key: str = ""
) -> None:
    """Raise `ZooError` for the first number of ``values`` (len(envs), …) that is not finite in 32 bits."""
    if isinstance(values, Mapping | tuple):
        for part, inner in values.items() if isinstance(values, Mapping) else enumerate(values):
            check_finite(name, inner, step, envs, f"{key}[{part!r}]")
        return
    array = np.asarray(values)
    is_finite = np.abs(array) <= np.finfo(np.float32).max if array.dtype.kind == "f" else np.True_
    if not is_finite.all():
        row, *where = np.argwhere(~is_finite)[0].tolist()
        bad = array[(row, *where)]
        raise ZooError(f"{bad} in the {name} env {envs[row]} at step {step}, at {key}{where}")


def check_distinct(envs: Sequence[Any], first_index: int = 0) -> None:
    """Raise `ZooError` if an environment object appears twice."""
    places: dict[int, int] = {}
    for i, env in enumerate(envs, start=first_index):
        before = places.setdefault(id(env.unwrapped), i)
        if before != i:
            raise ZooError(
                f"env {before} and env {i} are the same {type(env.unwrapped).__name__}, which can't play two "
                "episodes at once; expected a function that makes a new one at each call, or n_envs=1"
            )
