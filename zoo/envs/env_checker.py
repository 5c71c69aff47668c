"""Trying an environment for a moment before the first step: what was expected, what came, how to mend it.

Spaces are judged by Gymnasium's own checks. What is added here is what training needs and these don't see:
results that would fail or spoil it later, whether the seed repeats the environment, goals that can be asked.
"""

from __future__ import annotations

import contextlib
import copy
import random
import re
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.passive_env_checker import check_action_space, check_observation_space

from zoo.envs.config import EnvConfig, env_config, is_renewed
from zoo.envs.goals import ACHIEVED, COMPUTE_REWARD, DESIRED, Asked, is_goal_space
from zoo.envs.masks import AllowedActions
from zoo.envs.registry import closing_told, env_error
from zoo.envs.seeds import random_seed, seed_spaces
from zoo.envs.spaces import Env, Space, check_supported, describe, is_image, leaf_spaces
from zoo.envs.vec_env import make_env, source_of
from zoo.envs.wrappers import flat_env, pass_options_if_any, refuse_one_for_several, statistics_kept_apart
from zoo.errors import ZooError, nearest

RESET = "def reset(self, *, seed=None, options=None): … return observation, info"
STEP = "def step(self, action): … return observation, reward, terminated, truncated, info"

TRIED_STEPS, TRIED_SECONDS = 100, 1.0
"""How far an environment is stepped to see what it returns."""
REPEATED_STEPS, REPEATED_SECONDS = 100, 0.2
"""How far it is stepped to see whether its seed repeats it."""
SLOW_TO_MAKE = 1.0
"""Seconds from which on an environment is not made again to be compared with."""

SMALLEST_SIDE = 20
"""Numbers a side from which on an observation looks like a picture; fewer are a board."""
FAR, NARROW = 5.0, 0.2
"""A bound of an action, and a width between bounds, from which on a standard deviation of 1 does not suit."""

SEED_ADVICE = (
    "it does not honour its seed, so runs cannot be repeated or resumed exactly; "
    "call super().reset(seed=seed) and draw from self.np_random alone"
)


def check_env(env: str | EnvConfig | Env | Callable[..., Env], **options: Any) -> list[str]:
    """Try an environment for a moment, with all the wrappers that ``options`` (`EnvConfig`) put around it.

    Raises `ZooError` for what would fail or spoil training later: what was expected, what came, how to mend
    it. Returns what is merely suspicious. An environment of its own is made for the trial, so those that
    are trained on never notice; only a given instance is tried itself, and left open.
    """
    return findings(env, env_config(env, **options), advises=True)


def findings(
    env: str | EnvConfig | Env | Callable[..., Env],
    config: EnvConfig,
    n_envs: int = 1,
    *,
    advises: bool = False,
) -> list[str]:
    """Try one environment out of ``n_envs``; a given one can't be made again: it gets a seed by chance.

    Findings that matter to some algorithms alone are there only if it ``advises``. Raises `ZooError` for a
    function that gives the same one each time, where several are needed.
    """
    with _global_generators_kept():
        if isinstance(env, gym.Env):
            pass_options_if_any(env)
            return _tried_as_it_is(flat_env(env, masked=config.mask_actions), config, advises)
        source = source_of(env, config, 1)
        config = _without_recorders(config)
        is_function = not isinstance(source, EnvSpec)
        return _tried_anew(lambda: _made(config, source), config, n_envs, is_function, advises)


def _tried_as_it_is(env: Env, config: EnvConfig, advises: bool) -> list[str]:
    """Try a given environment, and compare it with itself."""
    found = _Trial(env, config, random_seed()).run(advises)
    return found + (statistics_kept_apart(env) or _unrepeatable(env, config))


def _tried_anew(
    make: Callable[[], Env], config: EnvConfig, n_envs: int, is_function: bool, advises: bool
) -> list[str]:
    """Try a new environment, and compare it with others, unless these take long to make.

    A used one and a new one are compared first, and if they differ, that one with another new one. A function
    may give the same one at each call: that is the user's own, is compared with itself and stays open.
    """
    started = time.monotonic()
    first = make()
    is_slow = time.monotonic() - started > SLOW_TO_MAKE
    second = None
    with contextlib.ExitStack() as opened:
        opened.callback(_close, first, config)
        found = _Trial(first, config, seed=0).run(advises)
        kept_apart = statistics_kept_apart(first)  # which differ in a used environment, as they should
        if is_function and not is_slow:
            with contextlib.suppress(Exception):  # there may be one alone at a time
                second = make()
        if second is not None and second.unwrapped is first.unwrapped:
            opened.pop_all()
            if n_envs > 1 or config.renew is True:
                refuse_one_for_several([first, second])
            return found + (kept_apart or _unrepeatable(first, config))
        if second is not None:
            opened.callback(_close, second, config)
        if is_slow or kept_apart:
            return found + kept_apart
        used = None if is_renewed(config) else _traced(first, config)
        new = None if second is None else _traced(second, config, used)
    if new is None:
        with _closed(make(), config) as env:
            new = _traced(env, config, used)
    if used is not None and _difference(used, new) is None:
        return found
    with _closed(make(), config) as env:
        where = _difference(new, _traced(env, config, new))
    if where is not None:
        found.append(f"{config.id}: two new ones with the same seed and actions {where}; {SEED_ADVICE}")
    elif used is not None:
        found.append(
            f"{config.id} needs env.renew=true for exact resume: with the same seed and actions, a used one "
            f"and a new one {_difference(used, new)}; or let reset() set everything back"
        )
    return found


def _made(config: EnvConfig, source: EnvSpec | Callable[..., Env]) -> Env:
    try:
        return make_env(config, source)
    except (Exception, SystemExit) as error:
        raise env_error(error, config.id, "while it was made") from error


def _close(env: Env, config: EnvConfig) -> None:
    with closing_told(config.id):
        env.close()


@contextlib.contextmanager
def _closed(env: Env, config: EnvConfig) -> Iterator[Env]:
    try:
        yield env
    finally:
        _close(env, config)


# -- what it returns --------------------------------------------------------------------------------------


class _Trial:
    """One environment being tried with random actions, valid ones where it says which are."""

    def __init__(self, env: Any, config: EnvConfig, seed: int) -> None:
        self.env, self.name, self.seed, self._masked = env, config.id, seed, config.mask_actions
        self._info: Mapping[str, Any] = {}
        self._actions: AllowedActions | None = None
        self._findings: dict[str, str] = {}
        """What is suspicious, by what it is about: each thing is told once."""
        self._steps: list[tuple[Any, Any, float]] = []
        """Goals that were achieved and desired, and rewards, of an environment with goals."""

    def run(self, advises: bool) -> list[str]:
        """Return what is suspicious, and if it ``advises`` what suits some algorithms only."""
        start = time.monotonic()
        self._check_spaces()
        seed_spaces(self.env, self.seed)
        self._reset(self.seed)
        for _ in range(TRIED_STEPS):
            if self._step():
                self._reset(None)
            if time.monotonic() - start > TRIED_SECONDS:
                break
        self._check_goals()
        if advises:
            self._advise()
        return [f"{self.name}: {finding}" for finding in self._findings.values()]

    def _fail(self, message: str) -> ZooError:
        return ZooError(f"{self.name}: {message}")

    def _suspect(self, about: str, message: str) -> None:
        self._findings.setdefault(about, message)

    def _check_spaces(self) -> None:
        for name, check in (
            ("observation_space", check_observation_space),
            ("action_space", check_action_space),
        ):
            space = getattr(self.env, name, None)
            if not isinstance(space, spaces.Space):
                raise self._fail(
                    f"{name} is {space!r}; set self.{name} to a gymnasium.spaces.Space in __init__"
                )
            problems = _problems(check, space)
            if problems and name == "action_space":
                raise self._fail(problems[0])
            for problem in problems:
                self._suspect(problem, problem)
        try:
            check_supported(self.env.observation_space, self.env.action_space)
        except ZooError as error:
            raise self._fail(str(error)) from error
        for where, space in _parts("observation_space", self.env.observation_space):
            self._check_picture(where, space)
        for path, space in leaf_spaces(self.env.action_space):
            if isinstance(space, spaces.Box) and not space.is_bounded():
                where = _action_part(path)
                self._suspect(
                    where, f"{where} has infinite bounds; algorithms that scale actions need finite ones"
                )

    def _check_picture(self, where: str, space: Space) -> None:
        if not isinstance(space, spaces.Box) or is_image(space):
            return
        has_sides = len(space.shape) == 3 or (len(space.shape) == 2 and space.dtype == np.uint8)
        if has_sides and sorted(space.shape)[-2] >= SMALLEST_SIDE:
            self._suspect(
                where,
                f"{where}: {describe(space)} from {space.low.min():g} to {space.high.max():g} looks like a "
                "picture, but is read as numbers; declare pictures as uint8 from 0 to 255",
            )

    def _advise(self) -> None:
        """Say what is wrong with the actions for policies that draw them from a Gaussian."""
        for path, part in leaf_spaces(self.env.action_space):
            if not isinstance(part, spaces.Box) or not part.is_bounded():
                continue
            low, high = part.low.astype(np.float64), part.high.astype(np.float64)
            unfit = np.argwhere((np.maximum(-low, high) > FAR) | (high - low < NARROW))
            if len(unfit):
                at = tuple(unfit[0].tolist())
                self._suspect(
                    path,
                    f"{_action_part(path)} goes from {low[at]:g} to {high[at]:g} at {list(at)}, but Gaussian "
                    "policies (A2C, ACER, ACKTR, PPO, TRPO) start with actions of -1 to 1; for them scale it "
                    "by gymnasium.wrappers.RescaleAction (DDPG, SAC, TD3 and TQC scale it themselves)",
                )

    def _reset(self, seed: int | None) -> None:
        try:
            result = self.env.reset(seed=seed)
        except (Exception, SystemExit) as error:
            if isinstance(error, TypeError) and "unexpected keyword argument 'seed'" in str(error):
                raise self._fail(f"reset() does not take `seed` (the old API); expected: {RESET}") from error
            raise env_error(error, self.name, "in reset()") from error
        if not isinstance(result, tuple) or len(result) != 2:
            raise self._fail(f"reset() returned {_kind(result)} (the old API?); expected two values: {RESET}")
        observation, info = result
        self._check_info(info, "reset()")
        self._check_observation(observation, "reset()")

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
        if is_goal_space(self.env.observation_space):
            achieved, desired = (np.array(observation[key]) for key in (ACHIEVED, DESIRED))
            self._steps.append((achieved, desired, float(reward)))
        return bool(terminated or truncated)

    def _action(self) -> Any:
        try:
            if self._actions is None:
                space = self.env.action_space
                self._actions = AllowedActions(self.env, space, self._info, masked=self._masked)
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
                    key,
                    f"observations have `{key}`{nearest(str(key), space)}, which is not in observation_space "
                    "and so is not seen; add it there or leave it out",
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
        survives = array.dtype.kind in "biu" and bool((array.astype(space.dtype) == array).all())
        if not np.can_cast(array.dtype, space.dtype, "same_kind") and not survives:
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
        if isinstance(space, spaces.Box):
            outside = np.argwhere((array < space.low) | (array > space.high))
            if len(outside):
                at = tuple(outside[0].tolist())
                self._suspect(
                    what.partition(" of ")[0],
                    f"{what} is {array[at]:g} at {list(at)}, outside the bounds "
                    f"[{space.low[at]:g}, {space.high[at]:g}] of observation_space; widen them",
                )
        elif not space.contains(array.astype(space.dtype)) and not space.contains(array.item(0)):
            raise self._fail(f"{what} is {array.tolist()}, which is not in {space}")

    def _check_goals(self) -> None:
        """Compare what an environment says of its own steps, when asked, with the rewards that these had."""
        if not self._steps:
            return
        if not self.env.has_wrapper_attr("compute_reward"):
            self._suspect(
                COMPUTE_REWARD,
                f"there are goals, but no method {COMPUTE_REWARD}, which hindsight replay needs;"
                " memory=uniform learns without",
            )
            return
        asked = Asked(self.env.get_wrapper_attr("compute_reward"), "compute_reward")
        achieved, desired, rewards = (np.array(column) for column in zip(*self._steps, strict=True))
        try:
            answers = asked.one_by_one(achieved, desired)
            takes_many = asked.takes_many(achieved, desired)
        except ZooError as error:
            self._suspect(COMPUTE_REWARD, str(error))
            return
        unusable = np.flatnonzero(~np.isfinite(answers))
        others = np.flatnonzero(~np.isclose(answers, rewards, rtol=1e-4, atol=1e-5))
        if len(unusable):
            step = int(unusable[0])
            self._suspect(
                COMPUTE_REWARD,
                f"compute_reward gave {answers[step]} for the goals of step {step + 1};"
                " rewards must be finite",
            )
        elif len(others):
            step = int(others[0])
            self._suspect(
                COMPUTE_REWARD,
                f"step {step + 1} gave the reward {rewards[step]:g}, but compute_reward gives"
                f" {answers[step]:g} for its goals ({len(others)} of {len(rewards)} steps differ): hindsight"
                f" replay would learn from both; let step() return what {COMPUTE_REWARD} does, or set"
                " memory.hindsight.copy_info_dict=true if that needs the info of the step",
            )
        if not takes_many:
            self._suspect(
                "many goals",
                "compute_reward answers for one goal at a time, so hindsight replay asks it row by row, which"
                " is slow; let it take arrays of goals (n, …) and return rewards (n,)",
            )


def _problems(check: Callable[[Space], None], space: Space) -> list[str]:
    """Return what one of Gymnasium's checks says of a space, in plain words."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            check(space)
        except (AssertionError, TypeError) as error:
            return [str(error)]
    return [re.sub(r"\x1b\[\d+m|WARN: ", "", str(each.message)) for each in caught]


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


# -- whether its seed repeats it --------------------------------------------------------------------------


class _Trace(NamedTuple):
    """What was done from a seed on, and what came of each step, the reset first."""

    actions: list[Any]
    shown: list[Any]


def _unrepeatable(env: Env, config: EnvConfig) -> list[str]:
    """Compare a given environment with itself."""
    seed = random_seed()
    first = _traced(env, config, seed=seed)
    where = _difference(first, _traced(env, config, first, seed))
    if where is None:
        return []
    return [f"{config.id}: the same seed and actions, given twice, {where}; {SEED_ADVICE}"]


def _traced(env: Env, config: EnvConfig, earlier: _Trace | None = None, seed: int = 1) -> _Trace:
    """Reset with ``seed`` and step with the actions of an earlier trace, or with random ones for a moment."""
    deadline = time.monotonic() + REPEATED_SECONDS
    space = copy.deepcopy(env.action_space)  # An environment may draw from its own.
    space.seed(seed)
    seed_spaces(env, seed)
    done: list[Any] = []
    try:
        observation, info = env.reset(seed=seed)
        shown = [_flat(observation)]
        allowed = AllowedActions(env, space, info, masked=config.mask_actions)
        while len(done) < (REPEATED_STEPS if earlier is None else len(earlier.actions)):
            if earlier is None and time.monotonic() > deadline:
                break
            action = allowed.draw(info) if earlier is None else earlier.actions[len(done)]
            done.append(copy.deepcopy(action))
            observation, reward, terminated, truncated, info = env.step(action)
            shown.append(np.append(_flat(observation), (float(reward), terminated, truncated)))
            if terminated or truncated:
                observation, info = env.reset()
                shown[-1] = np.append(shown[-1], _flat(observation))
    except (Exception, SystemExit) as error:
        raise env_error(error, config.id, "while its seed was tried out") from error
    return _Trace(done, shown)


def _difference(one: _Trace, other: _Trace) -> str | None:
    """Say where two traces went apart, or return None if they did not."""
    for n, (first, second) in enumerate(zip(one.shown, other.shown, strict=False)):
        if not np.array_equal(first, second, equal_nan=True):
            return "began differently" if n == 0 else f"went apart at step {n}"
    return None


def _flat(observation: Any) -> Any:
    """Return a copy of an observation as one vector."""
    if isinstance(observation, Mapping):
        return np.concatenate([_flat(observation[key]) for key in sorted(observation)])
    return np.array(observation, dtype=np.float64).ravel()


@contextlib.contextmanager
def _global_generators_kept() -> Iterator[None]:
    """Leave the global random generators as they were."""
    python_state, numpy_state = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)


def _without_recorders(config: EnvConfig) -> EnvConfig:
    """Return the config without wrappers that would leave videos of the trial behind."""
    names = [each if isinstance(each, str) else str(each.get("_target_", "")) for each in config.wrappers]
    kept = zip(config.wrappers, names, strict=True)
    return replace(config, wrappers=[wrapper for wrapper, name in kept if "RecordVideo" not in name])
