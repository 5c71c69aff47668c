"""Stepping an environment for a moment and checking all that it returns: what was expected, what came."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from zoo.envs.action_masks import AllowedActions
from zoo.envs.composite_spaces import leaf_spaces
from zoo.envs.env_error import env_error
from zoo.envs.goal_check import GoalCheck
from zoo.envs.seeds import seed_spaces
from zoo.envs.spaces import Space, check_supported, describe, is_image
from zoo.errors import ZooError, nearest

Env = gym.Env[Any, Any]

RESET = "def reset(self, *, seed=None, options=None): … return observation, info"
STEP = "def step(self, action): … return observation, reward, terminated, truncated, info"

SMALLEST_SIDE = 20
"""Numbers a side from which on an observation looks like a picture; fewer are a board."""


FAR, NARROW = 5.0, 0.2
"""A bound of an action, and a width between bounds, from which on a standard deviation of 1 does not suit."""


def try_out(
    env: Env,
    name: str,
    seed: int,
    *,
    masked: bool = True,
    advises: bool = False,
    n_steps: int = 100,
    seconds: float = 1.0,
) -> list[str]:
    """Step ``env`` up to ``n_steps`` times or for ``seconds``, whichever is less.

    Actions are valid ones, if it is ``masked`` and says which are. Raises `ZooError` for what would fail or
    spoil training later. Returns, in words, what is merely suspicious; if it ``advises``, also what suits
    only some algorithms.
    """
    trial = _Trial(env, name, seed, masked=masked)
    found = trial.run(n_steps, seconds)
    return found + trial.advice() if advises else found


class _Trial:
    """One environment being tried."""

    def __init__(self, env: Any, name: str, seed: int, *, masked: bool) -> None:
        self.env, self.name, self.seed, self._masked = env, name, seed, masked
        self._info: Mapping[str, Any] = {}
        self._actions: AllowedActions | None = None
        self.findings: list[str] = []
        self._goals: GoalCheck | None = None
        self._told_of_bounds: set[int] = set()
        """Parts of the observation, by the `id` of their space, that are known to be outside their bounds."""

    def run(self, n_steps: int, seconds: float) -> list[str]:
        start = time.monotonic()
        self._check_spaces()
        self._goals = GoalCheck(self.env)
        seed_spaces(self.env, self.seed)
        self._reset(self.seed)
        lengths, length = [], 0
        for _ in range(n_steps):
            length += 1
            if self._step():
                lengths.append(length)
                length = 0
                self._reset(None)
            if time.monotonic() - start > seconds:
                break
        if len(lengths) >= 5 and max(lengths) == 1:
            self._suspect(
                f"each of {len(lengths)} episodes ended at its first step; "
                "unless that is meant, look at `terminated` and at what reset() sets back"
            )
        for finding in self._goals.findings():
            self._suspect(finding)
        return self.findings

    def advice(self) -> list[str]:
        """Return what is wrong with the actions for policies that draw them from a Gaussian."""
        advice = []
        for path, part in leaf_spaces(self.env.action_space):
            if not isinstance(part, spaces.Box) or not part.is_bounded():
                continue
            low, high = part.low.astype(np.float64), part.high.astype(np.float64)
            unfit = np.argwhere((np.maximum(-low, high) > FAR) | (high - low < NARROW))
            if len(unfit):
                at = tuple(unfit[0].tolist())
                advice.append(
                    f"{self.name}: {_action_part(path)} goes from {low[at]:g} to {high[at]:g} at {list(at)}, "
                    "but Gaussian policies (A2C, ACER, ACKTR, PPO, TRPO) start with actions of -1 to 1; "
                    "for them scale it by gymnasium.wrappers.RescaleAction (DDPG, SAC, TD3 and TQC scale it "
                    "themselves)"
                )
        return advice

    def _fail(self, message: str) -> ZooError:
        return ZooError(f"{self.name}: {message}")

    def _suspect(self, message: str) -> None:
        text = f"{self.name}: {message}"
        if text not in self.findings:
            self.findings.append(text)

    def _check_spaces(self) -> None:
        for name in ("observation_space", "action_space"):
            space = getattr(self.env, name, None)
            if not isinstance(space, spaces.Space):
                raise self._fail(
                    f"{name} is {space!r}; set self.{name} to a gymnasium.spaces.Space in __init__"
                )
        try:
            check_supported(self.env.observation_space, self.env.action_space)
        except ZooError as error:
            raise self._fail(str(error)) from error
        for where, space in _parts("observation_space", self.env.observation_space):
            self._check_bounds(where, space)
            self._check_picture(where, space)
        self._check_action_bounds()

    def _check_bounds(self, where: str, space: Space) -> None:
        if not isinstance(space, spaces.Box):
            return
        crossed = np.argwhere(space.low > space.high)
        if len(crossed):
            at = tuple(crossed[0].tolist())
            raise self._fail(
                f"{where}: low {space.low[at]:g} is above high {space.high[at]:g} at {list(at)}; swap them"
            )

    def _check_action_bounds(self) -> None:
        for path, part in leaf_spaces(self.env.action_space):
            self._check_action_part(_action_part(path), part)

    def _check_action_part(self, where: str, space: Space) -> None:
        self._check_bounds(where, space)
        if not isinstance(space, spaces.Box):
            return
        equal = np.argwhere(space.low == space.high)
        if len(equal):
            at = tuple(equal[0].tolist())
            raise self._fail(
                f"{where}: low equals high ({space.low[at]:g}) at {list(at)}, so nothing can be chosen "
                "there; widen the bounds or leave that part out"
            )
        if not space.is_bounded():
            self._suspect(f"{where} has infinite bounds; algorithms that scale actions need finite ones")

    def _check_picture(self, where: str, space: Space) -> None:
        if not isinstance(space, spaces.Box) or is_image(space):
            return
        has_sides = len(space.shape) == 3 or (len(space.shape) == 2 and space.dtype == np.uint8)
        if has_sides and sorted(space.shape)[-2] >= SMALLEST_SIDE:
            self._suspect(
                f"{where}: {describe(space)} from {space.low.min():g} to {space.high.max():g} looks like a "
                "picture, but is read as numbers; declare pictures as uint8 from 0 to 255"
            )

    def _reset(self, seed: int | None) -> Any:
        try:
            result = self.env.reset(seed=seed)
        except TypeError as error:
            if "unexpected keyword argument 'seed'" in str(error):
                raise self._fail(f"reset() does not take `seed` (the old API); expected: {RESET}") from error
            raise env_error(error, self.name, "in reset()") from error
        except (Exception, SystemExit) as error:
            raise env_error(error, self.name, "in reset()") from error
        if not isinstance(result, tuple) or len(result) != 2:
            raise self._fail(f"reset() returned {_kind(result)} (the old API?); expected two values: {RESET}")
        observation, info = result
        self._check_info(info, "reset()")
        self._check_observation(observation, "reset()")
        return observation

    def _step(self) -> bool:
        """Take one step, and return whether the episode ended."""
        action = self._action()
        try:
            result = self.env.step(action)
        except (Exception, SystemExit) as error:
            raise env_error(error, self.name, f"in step({action!r})") from error
        if not isinstance(result, tuple) or len(result) != 5:
            old = isinstance(result, tuple) and len(result) == 4
            advice = " (the old API: split `done` into terminated and truncated)" if old else ""
            raise self._fail(f"step() returned {_kind(result)}{advice}; expected five values: {STEP}")
        observation, reward, terminated, truncated, info = result
        self._check_observation(observation, "step()")
        self._check_reward(reward)
        for name, value in (("terminated", terminated), ("truncated", truncated)):
            if not isinstance(value, bool | np.bool_ | int | np.integer):
                raise self._fail(f"step() returned {name}={value!r}, {_kind(value)}; expected True or False")
        self._check_info(info, "step()")
        if self._goals is not None:
            self._goals.note(observation, reward)
        return bool(terminated or truncated)

    def _action(self) -> Any:
        try:
            if self._actions is None:
                self._actions = AllowedActions(
                    self.env, self.env.action_space, self._info, masked=self._masked
                )
            return self._actions.draw(self._info)
        except ZooError as error:
            raise self._fail(str(error)) from error

    def _check_reward(self, reward: Any) -> None:
        if isinstance(reward, np.ndarray) and reward.ndim > 0:
            raise self._fail(
                f"the reward is an array of shape {reward.shape}; return one number: float(reward)"
            )
        try:
            number = float(reward)
        except (TypeError, ValueError):
            raise self._fail(f"the reward is {reward!r}, {_kind(reward)}; return one number") from None
        if not abs(number) <= np.finfo(np.float32).max:
            raise self._fail(f"the reward is {number:g}; rewards must be finite in 32 bits")

    def _check_info(self, info: Any, where: str) -> None:
        if not isinstance(info, dict):
            raise self._fail(f"{where} returned {_kind(info)} as info; expected a dict (an empty one: {{}})")
        self._info = info

    def _check_observation(self, observation: Any, where: str) -> None:
        space = self.env.observation_space
        if not isinstance(space, spaces.Dict):
            self._check_part(observation, space, f"the observation of {where}")
            return
        if not isinstance(observation, Mapping):
            raise self._fail(
                f"{where} returned {_kind(observation)} as observation; "
                f"expected a dict with the keys {', '.join(space)}"
            )
        for key, part in space.items():
            if key not in observation:
                raise self._fail(
                    f"the observation of {where} has no `{key}`{nearest(key, observation)}; "
                    f"observation_space has the keys {', '.join(space)}"
                )
            self._check_part(observation[key], part, f"observation `{key}` of {where}")
        for key in observation:
            if key not in space.spaces:
                self._suspect(
                    f"observations have `{key}`{nearest(str(key), space)}, which is not in observation_space "
                    "and so is not seen; add it there or leave it out"
                )

    def _check_part(self, value: Any, space: Space, what: str) -> None:
        """Check one part of an observation against its space."""
        try:
            array = np.asarray(value)
        except (TypeError, ValueError):
            array = np.asarray(None)
        if array.dtype.kind not in "biuf":
            raise self._fail(f"{what} is {_kind(value)}; expected numbers: {describe(space)}")
        if array.shape != space.shape:
            raise self._fail(
                f"{what} has shape {array.shape}; observation_space says {space.shape} ({describe(space)})"
            )
        assert space.dtype is not None
        if not np.can_cast(array.dtype, space.dtype, "same_kind") and not _fits(array, space.dtype):
            raise self._fail(
                f"{what} is {array.dtype}, which does not fit in {space.dtype}; return "
                f"observation.astype(np.{space.dtype}), or declare the space with dtype=np.{array.dtype}"
            )
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            at = tuple(np.argwhere(~np.isfinite(array))[0].tolist())
            found = "NaN" if np.isnan(array[at]) else "infinite"
            raise self._fail(
                f"{what} is {found} at {list(at)}; look for a division by zero or an unset value"
            )
        self._check_inside(array, space, what)

    def _check_inside(self, array: Any, space: Space, what: str) -> None:
        if isinstance(space, spaces.Box):
            self._check_within_bounds(array, space, what)
        elif not space.contains(array.astype(space.dtype)) and not space.contains(array.item(0)):
            raise self._fail(f"{what} is {array.tolist()}, which is not in {space}")

    def _check_within_bounds(self, array: Any, space: spaces.Box, what: str) -> None:
        outside = np.argwhere((array < space.low) | (array > space.high))
        if len(outside) and id(space) not in self._told_of_bounds:
            self._told_of_bounds.add(id(space))
            at = tuple(outside[0].tolist())
            self._suspect(
                f"{what} is {array[at]:g} at {list(at)}, outside the bounds "
                f"[{space.low[at]:g}, {space.high[at]:g}] of observation_space; widen them"
            )


def _parts(name: str, space: Space) -> list[tuple[str, Space]]:
    """Return a space, or the parts of a Dict space, each with its name."""
    if isinstance(space, spaces.Dict):
        return [(f"{name}[{key!r}]", part) for key, part in space.items()]
    return [(name, space)]


def _action_part(path: str) -> str:
    return f"action_space `{path}`" if path else "action_space"


def _kind(value: Any) -> str:
    """Say in a few words what a value is."""
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    if isinstance(value, tuple):
        return f"{len(value)} values"
    return "nothing" if value is None else f"a {type(value).__name__}"


def _fits(array: Any, dtype: Any) -> bool:
    """Whether whole numbers of another kind survive the conversion to ``dtype``."""
    return bool(array.dtype.kind in "biu" and (array.astype(dtype) == array).all())
