"""What off-policy algorithms share: exploring, replay, and how many updates follow how many steps."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from gymnasium import spaces
from torch import Tensor

from zoo.algorithms.base import Algorithm, Array
from zoo.config.fields import Schedule, hyperparameter
from zoo.errors import ZooError, nearest
from zoo.memory.columns import Column, ColumnSpec, assign, n_bytes, observation_spec, transform
from zoo.memory.replay import ReplayMemory, replay_bytes
from zoo.optim import schedules

BATCH_BYTES = 64 * 2**20
"""Bytes of sampled transitions that one call of the update program may hold."""


@dataclass
class OffPolicyConfig:
    """Hyperparameters that all off-policy algorithms have; each sets its own defaults."""

    learning_rate: Schedule = hyperparameter(3e-4, "step size of Adam", ge=0)
    buffer_size: int = hyperparameter(50_000, "transitions kept for replay", unit="transitions", ge=1)
    learning_starts: int = hyperparameter(
        100, "random steps before the first update", unit="environment steps", ge=0
    )
    batch_size: int = hyperparameter(64, "transitions in a gradient step", unit="transitions", ge=1)
    gamma: float = hyperparameter(0.99, "discount factor", ge=0, le=1)
    train_freq: int | list[Any] | dict[str, Any] = hyperparameter(
        1, "environment steps between updates; [1, episode] counts episodes", ge=1
    )
    gradient_steps: int = hyperparameter(
        1, "gradient steps after every train_freq environment steps; -1: as many as steps were taken", ge=-1
    )
    optimize_memory_usage: bool = hyperparameter(
        False, "store each observation once instead of twice (worth it for images)"
    )


Config = TypeVar("Config", bound=OffPolicyConfig)


class OffPolicyAlgorithm(Algorithm[Config]):
    """Keeps transitions in a replay memory and learns from random batches of them.

    All counts are environment steps: with several environments a step of all of them is that many, and
    ``gradient_steps`` is scaled with what was collected, so the ratio of updates to data stays the same.
    """

    memory: ReplayMemory

    @abstractmethod
    def _explore(self, observations: Column) -> Array:
        """Return actions (n_envs, …), as stored, for normalised observations while learning."""

    @abstractmethod
    def _random_actions(self) -> Array:
        """Return uniformly random actions (n_envs, …), as stored."""

    @abstractmethod
    def _to_env(self, actions: Array) -> Array:
        """Return stored actions as the environment takes them."""

    @abstractmethod
    def _action_spec(self) -> ColumnSpec:
        """Return how actions are stored."""

    def _learn_from(self, batches: Mapping[str, Any], n_steps: int) -> None:
        """Take ``n_steps`` gradient steps, one on each row of ``batches`` (steps, batch_size, …)."""
        raise NotImplementedError

    def _make_memory(self) -> None:
        config = self.config
        if config.gradient_steps == 0:
            raise ZooError("`algo.gradient_steps=0` would never learn; expected -1 or at least 1")
        self.train_freq, self.train_unit = _parse_train_freq(config.train_freq)
        specs = {"observations": observation_spec(self.observation_space), "actions": self._action_spec()}
        self.memory = ReplayMemory(
            config.buffer_size, self.n_envs, specs, optimize_memory_usage=config.optimize_memory_usage
        )
        row = 2 * n_bytes(specs["observations"]) + n_bytes(specs["actions"]) + 5
        self._steps_per_call = max(1, BATCH_BYTES // (row * config.batch_size))
        self._uncredited = 0

    @classmethod
    def memory_bytes(
        cls,
        config: Config,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        n_envs: int,
    ) -> int:
        """Return the size of the replay memory in bytes, before anything is allocated."""
        dtype = np.int64 if isinstance(action_space, spaces.Discrete) else np.float32
        actions = ColumnSpec(tuple(action_space.shape or ()), dtype)
        specs = {"observations": observation_spec(observation_space), "actions": actions}
        return replay_bytes(config.buffer_size, specs, optimize_memory_usage=config.optimize_memory_usage)

    # -- collecting -------------------------------------------------------------------------------------

    def collect(self) -> None:
        steps_before, episodes_before = self.num_timesteps, self.n_episodes
        while True:
            self._step_once()
            done = (
                self.num_timesteps - steps_before >= self.train_freq
                if self.train_unit == "step"
                else self.n_episodes - episodes_before >= self.train_freq
            )
            if done or self.num_timesteps >= self.total_timesteps:
                break
        self._collected = self.num_timesteps - steps_before
        is_by_steps = self.train_unit == "step"
        self._uncredited += self._collected if is_by_steps else self.n_episodes - episodes_before

    def _step_once(self) -> None:
        envs, normalizer = self.envs, self.normalizer
        assert envs is not None
        observations = transform(np.copy, self._observations)  # the step may write into the old ones
        started = time.perf_counter()
        if self.num_timesteps < self.config.learning_starts:
            actions = self._random_actions()
        else:
            actions = self._explore(self._normalized(observations))
        env_actions = self._to_env(actions)
        before = time.perf_counter()
        result = envs.step(env_actions)
        after = time.perf_counter()
        ended = result.terminated | result.truncated
        next_observations = result.observations
        self._observations = result.observations
        if len(result.finished):
            next_observations = transform(np.copy, result.observations)
            assign(next_observations, result.finished, result.final_observations)
            self._count_episodes(result)
        if normalizer is not None:
            normalizer.update_observations(result.observations)
            normalizer.update_returns(result.rewards, ended, result.valid)
        self.memory.add(
            {"observations": observations, "actions": actions},
            next_observations,
            result.rewards,
            result.terminated,
            ended,
            result.valid,
        )
        self.num_timesteps += self.n_envs if result.valid is None else int(result.valid.sum())
        self.timings["env"] += after - before
        self.timings["policy"] += before - started + time.perf_counter() - after

    def _cut_episodes(self) -> None:
        self.memory.cut()

    # -- updates ----------------------------------------------------------------------------------------

    def update(self) -> None:
        """Take the gradient steps that the collected environment steps ask for."""
        if self.num_timesteps <= self.config.learning_starts or len(self.memory) == 0:
            self._uncredited = 0
            return
        remaining = self._gradient_steps_due()
        while remaining:
            n_steps = min(remaining, self._steps_per_call)
            self._learn_from(self._sample(n_steps), n_steps)
            remaining -= n_steps

    def _gradient_steps_due(self) -> int:
        periods, self._uncredited = divmod(self._uncredited, self.train_freq)
        return self._collected if self.config.gradient_steps == -1 else periods * self.config.gradient_steps

    def _sample(self, n_steps: int) -> dict[str, Any]:
        """Draw batches (n_steps, batch_size, …) as tensors, normalised with today's statistics."""
        batch = self.memory.sample(self.rng, (n_steps, self.config.batch_size))
        del batch["ended"]
        normalizer = self.normalizer
        if normalizer is not None:
            for name in ("observations", "next_observations"):
                batch[name] = normalizer.normalize_observations(batch[name])
            batch["rewards"] = normalizer.normalize_rewards(batch["rewards"])
        batch["terminated"] = batch["terminated"].astype(np.float32)
        return {name: self._tensors(column) for name, column in batch.items()}

    def gradient_steps_in(self, total_timesteps: int) -> float:
        steps = max(0, total_timesteps - self.config.learning_starts)
        if self.config.gradient_steps == -1:
            return steps
        per_update = self.train_freq if self.train_unit == "step" else 200 * self.train_freq
        return steps / per_update * self.config.gradient_steps

    def _batch_size(self) -> int:
        return self.config.batch_size

    # -- exact resume -----------------------------------------------------------------------------------

    def checkpoint(self) -> tuple[dict[str, Array], dict[str, Any]]:
        arrays, values = super().checkpoint()
        stored, values["memory"] = self.memory.state()
        arrays.update({f"memory/{name}": array for name, array in stored.items()})
        values["uncredited"] = self._uncredited
        return arrays, values

    def restore(self, arrays: Mapping[str, Array], values: Mapping[str, Any]) -> None:
        stored = {
            name.removeprefix("memory/"): array for name, array in arrays.items() if name[:7] == "memory/"
        }
        self.memory.load_state(stored, values["memory"])
        self._uncredited = values["uncredited"]
        super().restore(arrays, values)


def learning_rate_tensor(schedule: schedules.Schedule, progress: float, like: Tensor) -> Tensor:
    """Return the schedule's value as a scalar tensor on the device of ``like``."""
    return like.new_tensor(schedule(progress))


def _parse_train_freq(value: Any) -> tuple[int, str]:
    """Read ``4``, ``[1, episode]`` or ``{frequency: 1, unit: episode}``."""
    if isinstance(value, Mapping):
        value = [value.get("frequency"), value.get("unit", "step")]
    if isinstance(value, int):
        value = [value, "step"]
    count, unit = value if len(value) == 2 else (None, "")
    if unit not in ("step", "episode"):
        raise ZooError(
            f"`algo.train_freq={value}`: unknown unit '{unit}'{nearest(str(unit), ['step', 'episode'])}"
        )
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ZooError(f"`algo.train_freq={value}`: expected a number of at least 1")
    return count, unit
