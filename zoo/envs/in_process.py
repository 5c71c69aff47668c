"""Environments stepped one after the other in this process, with nothing between them and the arrays."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from zoo.envs.same_step import (
    EpisodeEnd,
    Info,
    Observations,
    SameStepVectorEnv,
    Transition,
    copied,
    derived_seed,
)
from zoo.envs.spaces import Space, batch_array, spaces_differ
from zoo.envs.wrappers import EpisodeStatistics
from zoo.errors import ZooError

Env = gym.Env[Any, Any]


class EnvGroup:
    """Some environments and the arrays that they are stepped into, in this process or in a worker's.

    ``first_index`` is the place of the first one in the whole vector environment, for messages.
    """

    def __init__(self, make_envs: Sequence[Callable[[], Env]], first_index: int = 0) -> None:
        self.envs: list[Env] = []
        self.first_index = first_index
        self.seeds: list[int | None] = [None] * len(make_envs)
        for i, make_env in enumerate(make_envs):
            try:
                self.envs.append(make_env())
            except Exception as error:
                self.close()
                raise explained(error, f"env {first_index + i}", "while it was made") from error
        self.observation_space: Space = self.envs[0].observation_space
        self.action_space: Space = self.envs[0].action_space
        self._check_same_spaces()
        self._steps = [env.step for env in self.envs]
        self._statistics = [find_wrapper(env, EpisodeStatistics) for env in self.envs]
        self._space_keys = (
            list(self.observation_space) if isinstance(self.observation_space, spaces.Dict) else None
        )
        self._masks = [_mask_method(env) for env in self.envs]
        self.last_infos: list[Info] = [{} for _ in self.envs]

    def use_arrays(
        self,
        observations: Observations,
        rewards: NDArray[np.float64],
        terminated: NDArray[np.bool_],
        truncated: NDArray[np.bool_],
    ) -> None:
        """Take the arrays that every step and reset writes into."""
        self._observations = observations
        self._rewards = rewards
        self._terminated = terminated
        self._truncated = truncated

    def step(self, actions: NDArray[Any]) -> list[EpisodeEnd]:
        """Step every environment, reset the finished ones, and return how those ended."""
        rewards = self._rewards
        self._terminated.fill(False)
        self._truncated.fill(False)
        infos: list[Info] = []
        ends: list[EpisodeEnd] = []
        plain = self._observations if self._space_keys is None else None
        i = 0
        try:
            for i, (step, action) in enumerate(zip(self._steps, actions, strict=True)):
                observation, rewards[i], terminated, truncated, info = step(action)
                if terminated or truncated:
                    ends.append(self._end(i, observation, terminated, truncated, info))
                    observation, info = self.envs[i].reset()
                if plain is not None:
                    plain[i] = observation
                else:
                    self._write(i, observation)
                infos.append(info)
        except Exception as error:
            raise explained(error, self._name(i), "in a step") from error
        self.last_infos = infos
        return ends

    def reset(
        self, seeds: Sequence[int | None], options: dict[str, Any] | None, rows: Sequence[int]
    ) -> list[Info]:
        """Reset the environments ``rows``, each with its seed, and return the infos of all."""
        infos: list[Info] = [{} for _ in self.envs]
        for i in rows:
            seed = seeds[i]
            if seed is not None:
                self.seeds[i] = seed
                seed_spaces(self.envs[i], seed)
            try:
                observation, infos[i] = self.envs[i].reset(seed=seed, options=options)
                self._write(i, observation)
            except Exception as error:
                raise explained(error, self._name(i), "in a reset") from error
        self.last_infos = infos
        return infos

    def action_masks(self) -> NDArray[np.bool_] | None:
        """Return the valid actions of each environment, from its method or its last info, or None."""
        if self._masks[0] is not None:
            masks = [_flat_mask(method()) for method in self._masks if method is not None]
        elif "action_mask" in self.last_infos[0]:
            masks = [_flat_mask(info["action_mask"]) for info in self.last_infos]
        else:
            return None
        return np.stack(masks)

    def call(self, name: str, *args: Any, **kwargs: Any) -> list[Any]:
        """Call a method of each environment, or read an attribute."""
        results = []
        for env in self.envs:
            attribute = env.get_wrapper_attr(name)
            results.append(attribute(*args, **kwargs) if callable(attribute) else attribute)
        return results

    def set_attr(self, name: str, values: Sequence[Any]) -> None:
        """Set an attribute of each environment to its own value."""
        for env, value in zip(self.envs, values, strict=True):
            env.set_wrapper_attr(name, value)

    def close(self) -> None:
        """Close every environment, also where one raises."""
        errors = []
        for env in self.envs:
            try:
                env.close()
            except Exception as error:
                errors.append(error)
        self.envs = []
        if errors:
            raise errors[0]

    def _end(
        self, i: int, observation: Any, terminated: bool, truncated: bool, info: Info | None
    ) -> EpisodeEnd:
        """Keep what the reset that comes next would overwrite."""
        self._terminated[i], self._truncated[i] = terminated, truncated
        info = {} if info is None else info
        statistics = self._statistics[i]
        if statistics is not None and "episode" not in info:
            info = {**info, "episode": statistics.so_far()}
        return EpisodeEnd(i, _own(self.observation_space, observation), info)

    def _write(self, i: int, observation: Any) -> None:
        if self._space_keys is None:
            self._observations[i] = observation
            return
        for key in self._space_keys:
            self._observations[key][i] = observation[key]

    def _check_same_spaces(self) -> None:
        for i, env in enumerate(self.envs):
            for name in ("observation_space", "action_space"):
                difference = spaces_differ(getattr(self, name), getattr(env, name))
                if difference is not None:
                    first = self.first_index
                    raise ZooError(f"env {first + i} has another {name} than env {first}: {difference}")

    def _name(self, i: int) -> str:
        seed = "" if self.seeds[i] is None else f" (seed {self.seeds[i]})"
        return f"env {self.first_index + i}{seed}"


class InProcessVectorEnv(SameStepVectorEnv):
    """Steps its environments in a loop: the fastest way for quick environments."""

    def __init__(self, make_envs: Sequence[Callable[[], Env]], *, seed: int | None = None) -> None:
        self.group = EnvGroup(make_envs)
        first = self.group.envs[0]
        self.metadata, self.render_mode, self.spec = first.metadata, first.render_mode, first.spec
        super().__init__(len(make_envs), first.observation_space, first.action_space, seed=seed)
        self._observations = batch_array(self.single_observation_space, self.num_envs)
        self._rewards = np.zeros(self.num_envs)
        self._terminated = np.zeros(self.num_envs, dtype=np.bool_)
        self._truncated = np.zeros(self.num_envs, dtype=np.bool_)
        self.group.use_arrays(self._observations, self._rewards, self._terminated, self._truncated)

    @property
    def envs(self) -> list[Env]:
        """The environments themselves."""
        return self.group.envs

    def transition(self, actions: Any) -> Transition:
        """Step every environment with its row of ``actions``."""
        ends = self.group.step(self.own_actions(actions))
        return Transition(
            copied(self._observations),
            self._rewards.copy(),
            self._terminated.copy(),
            self._truncated.copy(),
            ends,
            self.group.last_infos,
        )

    def reset_rows(
        self, seeds: Sequence[int | None], options: dict[str, Any] | None, rows: Sequence[int]
    ) -> tuple[Observations, list[Info]]:
        """Reset the environments ``rows``."""
        infos = self.group.reset(seeds, options, rows)
        return copied(self._observations), infos

    def action_masks(self) -> NDArray[np.bool_] | None:
        """Return which actions are valid now, (num_envs, actions), or None."""
        return self.group.action_masks()

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method of each environment, or read an attribute."""
        return tuple(self.group.call(name, *args, **kwargs))

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute of each environment, to its own value if a list or tuple of them is given."""
        each = values if isinstance(values, list | tuple) else [values] * self.num_envs
        if len(each) != self.num_envs:
            raise ValueError(f"{len(each)} values for {self.num_envs} environments")
        self.group.set_attr(name, each)

    def render(self) -> tuple[Any, ...]:
        """Return one frame an environment."""
        return tuple(env.render() for env in self.envs)

    def close_extras(self, **kwargs: Any) -> None:
        """Close the environments."""
        if hasattr(self, "group"):
            self.group.close()


def explained(error: Exception, who: str, when: str) -> ZooError:
    """Return an environment's own error, with its own traceback, as one for the user."""
    if isinstance(error, ZooError):
        return error if when == "while it was made" else ZooError(f"{who}: {error}")
    if isinstance(error, gym.error.DependencyNotInstalled):
        return ZooError(f"{who} needs a package: {error}")
    frames = error.__traceback__.tb_next if error.__traceback__ is not None else None
    text = "".join(traceback.format_exception(type(error), error, frames)).rstrip()
    return ZooError(f"{who} raised {type(error).__name__} {when}:\n{text}")


def find_wrapper(env: Env, wrapper_class: type[Any]) -> Any:
    """Return the outermost wrapper of a class around ``env``, or None."""
    while isinstance(env, gym.Wrapper):
        if isinstance(env, wrapper_class):
            return env
        env = env.env
    return None


def seed_spaces(env: Env, seed: int) -> None:
    """Seed every space of ``env``, for some environments draw from their own spaces.

    Each gets a seed of its own: drawn from the same numbers, actions and states would go together.
    """
    seen: set[int] = set()
    while True:
        for space in (env.action_space, env.observation_space):
            if id(space) not in seen:
                seen.add(id(space))
                space.seed(derived_seed(seed, len(seen)))
        if not isinstance(env, gym.Wrapper):
            return
        env = env.env


def _own(space: Space, observation: Any) -> Any:
    """Return a copy of one observation in the dtype of its space."""
    if isinstance(space, spaces.Dict):
        return {key: np.array(observation[key], dtype=inner.dtype) for key, inner in space.items()}
    return np.array(observation, dtype=space.dtype)


def _mask_method(env: Env) -> Callable[[], Any] | None:
    if not env.has_wrapper_attr("action_masks"):
        return None
    method: Callable[[], Any] = env.get_wrapper_attr("action_masks")
    return method


def _flat_mask(mask: Any) -> NDArray[np.bool_]:
    """Return a mask as one row; the parts of a MultiDiscrete action may come as a list of arrays."""
    if isinstance(mask, list | tuple) and len(mask) and isinstance(mask[0], np.ndarray | list | tuple):
        return np.concatenate([np.asarray(part, dtype=np.bool_).ravel() for part in mask])
    return np.asarray(mask, dtype=np.bool_).ravel()
