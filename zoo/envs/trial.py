"""A short trial of an environment before the first step: does it work, and does it follow from its seed?"""

from __future__ import annotations

import contextlib
import copy
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec

from zoo.envs.action_masks import AllowedActions
from zoo.envs.config import EnvConfig, env_config, is_renewed
from zoo.envs.env_error import env_error
from zoo.envs.first_steps import try_out
from zoo.envs.seeds import random_seed, seed_spaces
from zoo.envs.single_env import make_env, pass_options_if_any, refuse_one_for_several, source_of
from zoo.envs.wrappers import flat_env, statistics_kept_apart

Env = gym.Env[Any, Any]

REPEATED_STEPS, REPEATED_SECONDS = 100, 0.2
"""How far an environment is stepped to see whether its seed repeats it."""
SLOW_TO_MAKE = 1.0
"""Seconds from which on an environment is not made again to be compared with."""


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
        options = {"masked": config.mask_actions, "advises": advises}
        if isinstance(env, gym.Env):
            pass_options_if_any(env)
            return _tried_as_it_is(flat_env(env, masked=config.mask_actions), config, options)
        source = source_of(env, config, 1)
        config = _without_recorders(config)
        maker = _Maker(lambda: make_env(config, source), config, options)
        return maker.findings(n_envs, may_be_one=not isinstance(source, EnvSpec))


def _tried_as_it_is(env: Env, config: EnvConfig, options: dict[str, bool]) -> list[str]:
    found = try_out(env, config.id, random_seed(), **options)
    return found + (statistics_kept_apart(env) or _unrepeatable(env, config))


class _Trace(NamedTuple):
    """What was done from a seed on, and what came of each step, the reset first."""

    actions: list[Any]
    shown: list[Any]


class _Maker:
    """Makes environments of one kind, one at a time, and tries them."""

    def __init__(self, make: Callable[[], Env], config: EnvConfig, options: dict[str, bool]) -> None:
        self.make, self.config, self.name, self.options = make, config, config.id, options
        self.findings_at_close: list[str] = []

    def findings(self, n_envs: int, *, may_be_one: bool) -> list[str]:
        started = time.monotonic()
        env = self._new()
        is_slow = time.monotonic() - started > SLOW_TO_MAKE
        if may_be_one and not is_slow and self._comes_again(env):
            if n_envs > 1 or self.config.renew is True:
                refuse_one_for_several([env, env])
            return _tried_as_it_is(env, self.config, self.options)
        with self._closing(env):
            found = try_out(env, self.name, seed=0, **self.options)
            kept_apart = statistics_kept_apart(env)  # which differ in a used environment, as they should
            compares = not (is_slow or kept_apart)
            used = _traced(env, self.config) if compares and not is_renewed(self.config) else None
        found += self._differences(used) if compares else kept_apart
        return found + self.findings_at_close

    def _comes_again(self, env: Env) -> bool:
        """Whether a function gives ``env`` at each call: it is the user's own then, and stays open."""
        try:
            another = self.make()
        except Exception:
            return False  # there may be one alone at a time
        if another.unwrapped is env.unwrapped:
            return True
        with self._closing(another):
            return False

    def _differences(self, used: _Trace | None) -> list[str]:
        """Compare a used environment with a new one, and if they differ, that one with another new one."""
        new = self._traced_anew(used)
        if used is not None and _difference(used, new) is None:
            return []
        again = self._traced_anew(new)
        where = _difference(new, again)
        if where is not None:
            return [f"{self.name}: two new ones with the same seed and actions {where}; {ADVICE}"]
        if used is None:
            return []
        return [
            f"{self.name} needs env.renew=true for exact resume: with the same seed and actions, a used one "
            f"and a new one {_difference(used, new)}; or let reset() set everything back"
        ]

    def _traced_anew(self, earlier: _Trace | None) -> _Trace:
        with self._closing(self._new()) as env:
            return _traced(env, self.config, None if earlier is None else earlier.actions)

    def _new(self) -> Env:
        try:
            return self.make()
        except (Exception, SystemExit) as error:
            raise env_error(error, self.name, "while it was made") from error

    @contextlib.contextmanager
    def _closing(self, env: Env) -> Iterator[Env]:
        """Close an environment in the end; what that raises is a finding, unless there is worse."""
        try:
            yield env
        except BaseException:
            with contextlib.suppress(Exception):
                env.close()
            raise
        try:
            env.close()
        except (Exception, SystemExit) as error:
            finding = f"{self.name}: close() raised {type(error).__name__}: {error}"
            if finding not in self.findings_at_close:
                self.findings_at_close.append(finding)


ADVICE = (
    "it does not honour its seed, so runs cannot be repeated or resumed exactly; "
    "call super().reset(seed=seed) and draw from self.np_random alone"
)


def _unrepeatable(env: Env, config: EnvConfig) -> list[str]:
    """Compare a given environment with itself."""
    seed = random_seed()
    first = _traced(env, config, None, seed)
    where = _difference(first, _traced(env, config, first.actions, seed))
    return (
        [] if where is None else [f"{config.id}: the same seed and actions, given twice, {where}; {ADVICE}"]
    )


def _traced(env: Env, config: EnvConfig, actions: Sequence[Any] | None = None, seed: int = 1) -> _Trace:
    """Reset with ``seed`` and step with ``actions``, or with random ones for a moment."""
    deadline = time.monotonic() + REPEATED_SECONDS
    space = copy.deepcopy(env.action_space)  # An environment may draw from its own.
    space.seed(seed)
    seed_spaces(env, seed)
    done: list[Any] = []
    try:
        observation, info = env.reset(seed=seed)
        shown = [_flat(observation)]
        allowed = AllowedActions(env, space, info, masked=config.mask_actions)
        while len(done) < (REPEATED_STEPS if actions is None else len(actions)):
            if actions is None and time.monotonic() > deadline:
                break
            if actions is None:
                action = allowed.draw(info)
            else:
                action = actions[len(done)]
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
    names = [
        wrapper if isinstance(wrapper, str) else wrapper.get("_target_", "") for wrapper in config.wrappers
    ]
    kept = zip(config.wrappers, names, strict=True)
    return replace(config, wrappers=[wrapper for wrapper, name in kept if "RecordVideo" not in str(name)])
