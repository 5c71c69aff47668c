"""Check an environment before training, with random actions, by Gymnasium's own checks and more."""

from __future__ import annotations

import contextlib
import copy
import random
import re
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.utils import passive_env_checker as gymnasium_checks

from zoo.envs.config import EnvConfig, env_config, is_renewed
from zoo.envs.goals import COMPUTE_REWARD, GoalFunction
from zoo.envs.make_env import make_env, source_of
from zoo.envs.masks import masks_of, sample_valid_action
from zoo.envs.registry import ENVPOOL, close_reporting, env_error, in_env_folder
from zoo.envs.replay import random_seed, seed_spaces
from zoo.envs.spaces import (
    ACHIEVED,
    DESIRED,
    Env,
    check_supported,
    describe,
    is_goal_space,
    is_image,
    leaf_spaces,
    misfit,
)
from zoo.envs.wrappers import find_wrapper, flatten_env, unsaved_statistics
from zoo.errors import ZooError

TRIED_STEPS, TRIED_SECONDS = 100, 1.0
"""How far an environment is stepped to see what it returns."""
REPEATED_SECONDS = 0.2
"""How long these steps are repeated to see whether the seed repeats it."""
SLOW_TO_MAKE = 1.0
"""Seconds from which on an environment is not made again to be compared with."""

LARGEST_REWARD = float(np.finfo(np.float32).max) ** 0.5
"""Rewards above have infinite squared errors in 32 bits."""

FAR, NARROW = 5.0, 0.2
"""A bound of an action, and a width between bounds, that a standard deviation of 1 does not suit."""

SEED_ADVICE = (
    "it does not honour its seed, so runs cannot be repeated or resumed exactly; "
    "call super().reset(seed=seed) and draw from self.np_random alone"
)

HARMLESS = re.compile(
    "expecting a numpy array|dtype to be|should be an int|to be a boolean|Casting input|not within the obs"
)
"""Warnings of Gymnasium about what training converts by itself, or what `_Checker` reports more exactly."""
FIVE_VALUES = "step() must return five values: obs, reward, terminated, truncated, info"
SMALLEST_SIDE = 20
"""Numbers a side from which on an observation looks like a picture; fewer are a board."""


def check_env(env: str | EnvConfig | Env | Callable[..., Env], seed: int = 0, **options: Any) -> list[str]:
    """Try an environment for a moment, with all the wrappers that ``options`` (`EnvConfig`) put around it.

    Raises `ZooError` for what would fail or spoil training later, and returns what is merely suspicious. An
    environment of its own is made for the trial, and reset with ``seed``; only a given instance is tried
    itself, with a seed that is drawn, and left open.
    """
    return find_problems(env, env_config(env, **options), advises=True, seed=seed)


@in_env_folder(making=True)
def find_problems(
    env: str | EnvConfig | Env | Callable[..., Env],
    config: EnvConfig,
    *,
    advises: bool = False,
    seed: int = 0,
) -> list[str]:
    """Return warnings; with ``advises`` also those that concern some algorithms only."""
    with contextlib.ExitStack() as generators, contextlib.ExitStack() as opened:
        generators.callback(random.setstate, random.getstate())
        generators.callback(np.random.set_state, np.random.get_state())
        if isinstance(env, gym.Env):
            checker = _Checker(flatten_env(env, masked=config.mask_actions), config, random_seed())
            env.unwrapped.last_stepped_by = None  # type: ignore[attr-defined]  # `VecEnvAdapter.was_disturbed`
            findings = checker.run(advises)
            return findings + (unsaved_statistics(checker.env) or checker.compare_with_itself())
        if config.id.startswith(ENVPOOL):
            raise ZooError(f"{config.id} has a vector form only; single environments are tried here")
        source = source_of(env, config, 1)
        # No video of the trial is left behind.
        wrappers = [wrapper for wrapper in config.wrappers if "RecordVideo" not in str(wrapper)]
        config = replace(config, wrappers=wrappers)

        def make() -> Env:
            try:
                made = make_env(config, source)
            except (Exception, SystemExit) as error:
                raise env_error(error, config.id, "while it was made") from error
            opened.callback(close_reporting(config.id)(made.close))
            return made

        started = time.monotonic()
        checker = _Checker(make(), config, seed)
        is_slow, statistics = time.monotonic() - started > SLOW_TO_MAKE, unsaved_statistics(checker.env)
        findings = checker.run(advises) + statistics
        if is_slow or statistics:
            return findings
        try:
            second = make()
        except ZooError:  # there may be one alone at a time
            return findings
        if second.unwrapped is checker.env.unwrapped:  # the function keeps it, so it stays open
            opened.pop_all()
            return findings + checker.compare_with_itself()
        if where := checker.difference(second):
            findings.append(
                f"{config.id}: two new ones with the same seed and actions {where}; {SEED_ADVICE}"
            )
        elif not is_renewed(config) and (where := checker.difference(checker.env)):
            findings.append(
                f"{config.id} needs env.renew=true for exact resume: with the same seed and actions, a used "
                f"one and a new one {where}; or let reset() set everything back"
            )
        return findings


@dataclass
class _Checker:
    """Steps one environment with random valid actions and collects errors and warnings."""

    env: Any
    config: EnvConfig
    seed: int
    findings: dict[str, None] = field(default_factory=dict)
    actions: list[Any] = field(default_factory=list)
    outcomes: list[Any] = field(default_factory=list)
    """Results of the reset and of each step, as vectors."""
    goals: list[tuple[Any, Any, float]] = field(default_factory=list)
    """Goals that were achieved and desired, and rewards, of an environment with goals."""

    def run(self, advises: bool) -> list[str]:
        """Try the environment and return warnings: see `find_problems`."""
        deadline = time.monotonic() + TRIED_SECONDS
        self._check_spaces(advises)
        space = copy.deepcopy(self.env.action_space)  # an environment may draw from its own
        seed_spaces(self.env, self.seed)
        space.seed(self.seed)
        observation, info = self._reset(self.seed)
        self.outcomes.append(_flat(observation))
        masks = masks_of([self.env], lambda _: self.config.id, used=self.config.mask_actions)
        masks.detect([info])
        n_ended = 0
        while len(self.actions) < TRIED_STEPS and time.monotonic() < deadline:
            if masks.size is None and "action_mask" in info:
                masks.refuse_late_mask(0)
            mask = None if masks.size is None else masks.read([0], [info])[0]
            action = space.sample() if mask is None else sample_valid_action(space, mask)
            self.actions.append(copy.deepcopy(action))
            observation, reward, terminated, truncated, info = self._step(action)
            self.outcomes.append(np.append(_flat(observation), (float(reward), terminated, truncated)))
            if terminated or truncated:
                n_ended += 1
                observation, info = self._reset(None)
                self.outcomes[-1] = np.append(self.outcomes[-1], _flat(observation))
        if self.goals:
            self._check_goals()
        limit = self.config.max_episode_steps
        has_limit = isinstance(limit, int) or find_wrapper(self.env, gym.wrappers.TimeLimit) is not None
        if advises and not n_ended and not has_limit:
            self._warn(
                f"no episode ended within {len(self.actions)} random steps, and there is no time limit: an"
                " evaluation may never end; set env.max_episode_steps"
            )
        return [f"{self.config.id}: {finding}" for finding in self.findings]

    def difference(self, env: Env) -> str | None:
        """Repeat the trial in an environment, and describe where it first differs; None if it does not."""
        deadline = time.monotonic() + REPEATED_SECONDS
        seed_spaces(env, self.seed)
        if not np.array_equal(self.outcomes[0], _flat(env.reset(seed=self.seed)[0]), equal_nan=True):
            return "began differently"
        for n, (action, expected) in enumerate(zip(self.actions, self.outcomes[1:], strict=True), start=1):
            observation, reward, terminated, truncated, _ = env.step(copy.deepcopy(action))
            outcome = np.append(_flat(observation), (float(reward), terminated, truncated))
            if terminated or truncated:
                outcome = np.append(outcome, _flat(env.reset()[0]))
            if not np.array_equal(outcome, expected, equal_nan=True):
                return f"went apart at step {n}"
            if time.monotonic() > deadline:
                break
        return None

    def compare_with_itself(self) -> list[str]:
        """Return a warning if the same environment shows something else with the same seed."""
        where = self.difference(self.env)
        finding = f"{self.config.id}: the same seed and actions, given twice, {where}; {SEED_ADVICE}"
        return [] if where is None else [finding]

    def _fail(self, message: str) -> ZooError:
        return ZooError(f"{self.config.id}: {message}")

    def _warn(self, message: str) -> None:
        self.findings.setdefault(message)

    def _run_check(self, when: str, check: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Run one of Gymnasium's checks, collect its warnings, and raise its assertions as `ZooError`."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                result = check(*arguments, **options)
            except (Exception, SystemExit) as error:
                *_, (frame, _) = traceback.walk_tb(error.__traceback__)
                is_gymnasiums = frame.f_code.co_filename == gymnasium_checks.__file__
                if is_gymnasiums and isinstance(error, AssertionError):
                    raise self._fail(str(error)) from error
                if isinstance(error, TypeError) and "unexpected keyword argument 'seed'" in str(error):
                    expected = "expected reset(self, *, seed=None, options=None)"
                    raise self._fail(f"reset() takes no seed; {expected}") from error
                if "gymnasium" in frame.f_code.co_filename and "(expected 5, got 4)" in str(error):
                    raise self._fail(FIVE_VALUES) from error
                raise env_error(error, self.config.id, when) from error
        for warning in caught:
            text = re.sub(r"\x1b\[\d+m", "", str(warning.message))
            if text.startswith("WARN: ") and not HARMLESS.search(text):
                self._warn(text.removeprefix("WARN: "))
        return result

    def _check_spaces(self, advises: bool) -> None:
        for name in ("action_space", "observation_space"):
            space = getattr(self.env, name, None)
            if not isinstance(space, spaces.Space):
                raise self._fail(f"{name} is {space!r}; set self.{name} to a gymnasium.spaces.Space")
            if name == "action_space" and isinstance(space, spaces.Box) and (space.high > space.low).any():
                high = np.where(space.high > space.low, space.high, space.low + 1)  # a fixed part is no error
                space = spaces.Box(space.low, high.astype(space.dtype), dtype=space.dtype.type)
            self._run_check(f"in {name}", getattr(gymnasium_checks, f"check_{name}"), space)
            if name == "action_space" and self.findings:
                raise self._fail(next(reversed(self.findings)))
        try:
            check_supported(self.env.observation_space, self.env.action_space)
        except ZooError as error:
            raise self._fail(str(error)) from error
        for path, space in leaf_spaces(self.env.observation_space):
            if isinstance(space, spaces.Box) and not is_image(space):
                has_sides = len(space.shape) == 3 or (len(space.shape) == 2 and space.dtype == np.uint8)
                if has_sides and sorted(space.shape)[-2] >= SMALLEST_SIDE:
                    self._warn(
                        f"observation_space{f' `{path}`' if path else ''}: {describe(space)} looks like an "
                        "image, but is read as numbers; declare images as uint8 from 0 to 255"
                    )
        for path, space in leaf_spaces(self.env.action_space):
            where = f"action_space `{path}`" if path else "action_space"
            if isinstance(space, spaces.Box) and not space.is_bounded():
                self._warn(f"{where} has infinite bounds; algorithms that scale actions need finite ones")
            elif isinstance(space, spaces.Box) and advises:
                low, high = space.low.astype(np.float64), space.high.astype(np.float64)
                if (np.maximum(-low, high) > FAR).any() or (high - low < NARROW).any():
                    self._warn(
                        f"{where} goes from {low.min():g} to {high.max():g}, but Gaussian policies (A2C, "
                        "ACER, ACKTR, PPO, TRPO) start with actions of -1 to 1; for them scale it by "
                        "gymnasium.wrappers.RescaleAction (DDPG, SAC, TD3 and TQC scale it themselves)"
                    )

    def _reset(self, seed: int | None) -> tuple[Any, Mapping[str, Any]]:
        result = self._run_check(
            "in reset()", gymnasium_checks.env_reset_passive_checker, self.env, seed=seed
        )
        if not isinstance(result, tuple) or len(result) != 2:
            raise self._fail("reset() must return two values: observation, info")
        self._check_observation(result[0], "reset()")
        return result

    def _step(self, action: Any) -> tuple[Any, Any, bool, bool, Mapping[str, Any]]:
        when = f"in step({action!r})"
        result = self._run_check(when, gymnasium_checks.env_step_passive_checker, self.env, action)
        if len(result) != 5:
            raise self._fail(FIVE_VALUES)
        observation, reward, terminated, truncated, _ = result
        self._check_observation(observation, "step()")
        if np.shape(reward) or np.asarray(reward).dtype.kind not in "biuf":
            raise self._fail(f"the reward is {reward!r}; return one number")
        if not abs(float(reward)) <= LARGEST_REWARD:
            raise self._fail(f"the square of the reward {reward} is not finite in 32 bits; scale rewards")
        for name, value in (("terminated", terminated), ("truncated", truncated)):
            if not isinstance(value, bool | np.bool_ | int | np.integer):
                raise self._fail(f"step() returned {name}={value!r}; expected True or False")
        if is_goal_space(self.env.observation_space):
            achieved, desired = (np.array(observation[key]) for key in (ACHIEVED, DESIRED))
            self.goals.append((achieved, desired, float(reward)))
        checked: tuple[Any, Any, bool, bool, Mapping[str, Any]] = result
        return checked

    def _check_observation(self, observation: Any, where: str) -> None:
        """Raise `ZooError` for what would be broadcast, cut off or spread as NaN where it is stored."""
        space = self.env.observation_space
        for key, part in space.items() if isinstance(space, spaces.Dict) else [(None, space)]:
            name = f"the observation{'' if key is None else f' `{key}`'} of {where}"
            try:
                array = np.asarray(observation if key is None else observation[key])
            except ValueError:
                array = np.asarray(None)
            if array.dtype.kind not in "biuf":
                raise self._fail(f"{name} is no array of numbers: {describe(part)}")
            if array.dtype.kind == "f" and not (is_finite := np.abs(array) <= np.finfo(np.float32).max).all():
                raise self._fail(f"{name} is NaN, or infinite in 32 bits: {array[~is_finite][0]}")
            if (problem := misfit(array, part)) is not None:
                raise self._fail(f"{name} has {problem}; observation_space is {describe(part)}")
            if isinstance(part, spaces.Box) and ((array < part.low) | (array > part.high)).any():
                self._warn(f"{name} is outside the bounds of observation_space; widen them")

    def _check_goals(self) -> None:
        """Compare the rewards of steps with what `compute_reward` returns for their goals."""
        if not self.env.has_wrapper_attr("compute_reward"):
            self._warn(
                f"there are goals, but no method {COMPUTE_REWARD}, which hindsight replay needs;"
                " replay=uniform learns without"
            )
            return
        function = GoalFunction(self.env.get_wrapper_attr("compute_reward"), "compute_reward")
        achieved, desired, rewards = (np.array(column) for column in zip(*self.goals, strict=True))
        try:
            answers = function(achieved, desired)
        except ZooError as error:
            self._warn(str(error))
            return
        if len(others := np.flatnonzero(~np.isclose(answers, rewards, rtol=1e-4, atol=1e-5))):
            step = int(others[0])
            self._warn(
                f"step {step + 1} gave the reward {rewards[step]:g}, but compute_reward gives"
                f" {answers[step]:g} for its goals ({len(others)} of {len(rewards)} steps differ): let step()"
                f" return what {COMPUTE_REWARD} does, or set replay.hindsight.copy_info_dict=true if that"
                " needs the info of the step"
            )
        if not function.is_vectorized:
            self._warn(
                "compute_reward answers for one goal at a time, so hindsight replay asks it row by row; let"
                " it take arrays of goals (n, …) and return rewards (n,)"
            )


def _flat(observation: Any) -> Any:
    """Return a copy of an observation as one vector."""
    if isinstance(observation, Mapping):
        return np.concatenate([_flat(observation[key]) for key in sorted(observation)])
    return np.array(observation, dtype=np.float64).ravel()
