"""The base of our own vector environments: same-step autoreset, infos merged only where they are read."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from zoo.envs.spaces import Space, check_supported

Observations = Any
"""An array with one row an environment, or a dict of such arrays for a Dict space."""

Info = dict[str, Any]


class EpisodeEnd(NamedTuple):
    """What an environment gave at the last step of an episode, before it was reset."""

    env_index: int
    observation: Any
    info: Info


class Transition(NamedTuple):
    """One step of every environment; the arrays are the caller's own."""

    observations: Observations
    rewards: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    ends: list[EpisodeEnd]
    infos: list[Info]


class SameStepVectorEnv(VectorEnv[Any, Any, Any], abc.ABC):
    """A vector environment that resets a finished environment within the step that finished it.

    `step` is Gymnasium's; `transition` is the same step without the merging of infos, which costs more
    than the step itself where an environment fills its info. ``seed`` is what the first `reset` without a
    seed uses: environment i gets ``seed + i``.
    """

    def __init__(
        self, num_envs: int, observation_space: Space, action_space: Space, *, seed: int | None = None
    ) -> None:
        check_supported(observation_space, action_space)
        self.num_envs = num_envs
        self.single_observation_space = observation_space
        self.single_action_space = action_space
        self.observation_space = batch_space(observation_space, num_envs)
        self.action_space = batch_space(action_space, num_envs)
        self.action_space.seed(None if seed is None else derived_seed(seed, 0))
        self.metadata = {**self.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}
        self._first_seed = seed
        self._action_shape = (num_envs, *(action_space.shape or ()))
        self._action_dtype = action_space.dtype

    @abc.abstractmethod
    def transition(self, actions: Any) -> Transition:
        """Step every environment with its row of ``actions``, values of the action space itself."""

    @abc.abstractmethod
    def reset_rows(
        self, seeds: Sequence[int | None], options: dict[str, Any] | None, rows: Sequence[int]
    ) -> tuple[Observations, list[Info]]:
        """Reset the environments ``rows``; return the observations of all and one info for each."""

    @abc.abstractmethod
    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call the method ``name`` of each environment, or read the attribute, and return the results."""

    @abc.abstractmethod
    def action_masks(self) -> NDArray[np.bool_] | None:
        """Return which actions are valid now, (num_envs, actions), or None if the environments don't say."""

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, Info]:
        """Reset all environments, or those of ``options["reset_mask"]``; an int gives i ``seed + i``."""
        if seed is None:
            seed, self._first_seed = self._first_seed, None
        if seed is None:
            seeds: list[int | None] = [None] * self.num_envs
        elif isinstance(seed, int | np.integer):
            seeds = [int(seed) + i for i in range(self.num_envs)]
        else:
            seeds = [None if single is None else int(single) for single in seed]
        if len(seeds) != self.num_envs:
            raise ValueError(f"{len(seeds)} seeds for {self.num_envs} environments")
        rows: Sequence[int] = range(self.num_envs)
        if options is not None and "reset_mask" in options:
            options = dict(options)
            rows = np.flatnonzero(options.pop("reset_mask")).tolist()
        observations, infos = self.reset_rows(seeds, options or None, rows)
        return observations, self.merged_infos(infos, [])

    def step(
        self, actions: Any
    ) -> tuple[Observations, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], Info]:
        """Step all environments; ``final_obs`` and ``final_info`` hold the end of those that finished."""
        observations, rewards, terminated, truncated, ends, infos = self.transition(actions)
        return observations, rewards, terminated, truncated, self.merged_infos(infos, ends)

    def merged_infos(self, infos: Sequence[Info], ends: Sequence[EpisodeEnd]) -> Info:
        """Return infos in Gymnasium's vector form: one array and one mask a key."""
        merged: Info = {}
        for end in ends:
            merged = self._add_info(
                merged, {"final_obs": end.observation, "final_info": end.info}, end.env_index
            )
        for i, info in enumerate(infos):
            if info:
                merged = self._add_info(merged, info, i)
        return merged

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Return the attribute ``name`` of each environment."""
        return self.call(name)

    def own_actions(self, actions: Any) -> NDArray[Any]:
        """Return a copy of ``actions`` in the space's dtype, which the environments may write into."""
        own = np.array(actions, dtype=self._action_dtype)
        if own.shape != self._action_shape:
            raise ValueError(f"actions of shape {own.shape}; expected {self._action_shape}")
        return own


def info_of(infos: Mapping[str, Any], index: int) -> Info:
    """Return the info of one environment out of Gymnasium's vector form."""
    single: Info = {}
    for key, values in infos.items():
        present = infos.get(f"_{key}")
        if key.startswith("_") and key[1:] in infos:
            continue
        if present is not None and not present[index]:
            continue
        if isinstance(values, Mapping):
            single[key] = info_of(values, index)
        elif isinstance(values, np.ndarray | list | tuple) and len(values) > index:
            single[key] = values[index]
    return single


def copied(observations: Observations) -> Observations:
    """Return a copy of an array or of a dict of arrays."""
    if isinstance(observations, dict):
        return {key: values.copy() for key, values in observations.items()}
    return observations.copy()


def derived_seed(seed: int, stream: int) -> int:
    """Return the seed of one of many streams of random numbers that come from one seed."""
    return int(np.random.SeedSequence((seed, stream)).generate_state(1)[0])
