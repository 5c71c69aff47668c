"""The life of an algorithm: made, learning, stopped, and resumed exactly."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor
from typing_extensions import Self

from zoo.algorithms.agent import Agent, Array
from zoo.algorithms.arguments import Policy, as_callbacks, built_config, changed_config, tell_of_unread_images
from zoo.algorithms.callback import PREEMPTED, Callback, CallbackSchedule
from zoo.algorithms.collector import Act, Collector, check_finite, check_policy_first, envs_for
from zoo.algorithms.distributed import DistributedContext
from zoo.algorithms.registry import sharing
from zoo.algorithms.state_parts import Attributes, Generators, Tensors
from zoo.buffers.arrays import Transition
from zoo.config.fields import build, scheduled, whole_steps
from zoo.envs.adapter import Step as StepResult
from zoo.envs.adapter import VecEnvAdapter
from zoo.envs.config import EnvConfig
from zoo.envs.monitor import EpisodeRecord, RecentEpisodes
from zoo.envs.seeds import random_seed, worker_seed
from zoo.envs.spaces import interfaces_differ
from zoo.errors import ZooError
from zoo.imitation.expert_data import ExpertData
from zoo.optim import schedules
from zoo.optim.runtime import Runtime
from zoo.optim.state import State, Step
from zoo.optim.update_runner import UpdateRunner
from zoo.optim.workers import Workers
from zoo.policies.acting import ActingPolicy

if TYPE_CHECKING:
    from zoo.imitation.bc import Epoch


class ScalarMeans:
    """Sums of recorded values by name. Tensors stay tensors until they are read, so recording never waits.

    Rows are values of one step, which have no mean with those of others: an evaluation's.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._sums: dict[tuple[str, ...], tuple[Any, int]] = {}
        self._rows: dict[int, dict[str, float]] = {}

    def record(self, name: str, value: float | Tensor | np.ndarray) -> None:
        """Add one value."""
        self.record_all((name,), value)

    def record_all(self, names: Sequence[str], values: Any) -> None:
        """Add one value to each name; with several names, a vector of them."""
        key = tuple(names)
        total, count = self._sums.get(key, (0.0, 0))
        self._sums[key] = (total + values, count + 1)

    def record_row(self, timesteps: int, scalars: Mapping[str, float]) -> None:
        """Keep the values of one step."""
        self._rows.setdefault(timesteps, {}).update(scalars)

    def read_rows(self, before: int) -> dict[int, dict[str, float]]:
        """Return the rows of steps below ``before`` since the last call, by their steps."""
        return {step: self._rows.pop(step) for step in sorted(self._rows) if step < before}

    def read(self) -> dict[str, float]:
        """Return the means since the last call, and of the rows that were not read the latest values."""
        totals, counts = Counter[str](), Counter[str]()
        for names, (total, count) in self._sums.items():
            values = total.reshape(-1).tolist() if isinstance(total, Tensor) else [float(total)]
            totals.update(dict(zip(names, values, strict=True)))
            counts.update(dict.fromkeys(names, count))
        means = {name: total / counts[name] for name, total in totals.items()}
        for _, row in sorted(self._rows.items()):
            means.update(row)
        self._sums, self._rows = {}, {}
        return means

    def state(self) -> dict[str, Any]:
        """Return the sums as numbers for JSON."""
        return {
            "names": [list(names) for names in self._sums],
            "totals": [
                total.tolist() if isinstance(total, Tensor) else float(total)
                for total, _ in self._sums.values()
            ],
            "counts": [count for _, count in self._sums.values()],
            "rows": [[step, row] for step, row in self._rows.items()],
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._rows = {int(step): dict(row) for step, row in state.get("rows", ())}
        self._sums = {
            tuple(names): (
                torch.tensor(total, device=self._device) if isinstance(total, list) else total,
                count,
            )
            for names, total, count in zip(state["names"], state["totals"], state["counts"], strict=True)
        }


Config = TypeVar("Config")

COUNTS = ("seed", "num_timesteps", "total_timesteps", "n_updates", "n_episodes", "timings")


class Algorithm(Agent[Config]):
    """Learns a policy by alternating `collect` and `update`.

    ``env`` is an id, an environment, a vector environment, or a function that makes one; ``n_envs`` (1) are
    made of an id, a config or a function. Hyperparameters are given by name, or as a whole in ``config``.
    ``compile`` and ``threads`` may be ``"auto"``, ``precision`` ``"bf16"``: see `zoo.optim.runtime`.
    Generators made from ``seed`` are the run's only source of randomness.

    Raises `ZooError` for a hyperparameter, space or policy that does not fit.
    """

    buffer: Any
    collector: Collector
    interaction_class: ClassVar[type[Collector]] = Collector
    _mask_size: int | None = None
    can_share: ClassVar[bool] = True
    """Whether it can be one of several workers: each of its updates is the same number of steps for all."""

    def __init__(
        self,
        policy: Policy = "MlpPolicy",
        env: str | EnvConfig | gym.Env[Any, Any] | gym.vector.VectorEnv[Any, Any, Any] | Any = None,
        *,
        n_envs: int | None = None,
        seed: int | None = None,
        device: str = "auto",
        compile: bool | str = "auto",
        threads: int | str = "auto",
        precision: str = "float32",
        config: Config | None = None,
        observation_space: spaces.Space[Any] | None = None,
        action_space: spaces.Space[Any] | None = None,
        **hyperparameters: Any,
    ) -> None:
        if config is None:
            config = built_config(type(self), hyperparameters)
        elif hyperparameters:
            raise ZooError("give hyperparameters by name or as `config`, not both")
        self.schedules = schedules.parse_all(scheduled(config))
        self._last_rates: dict[str, tuple[float, Tensor]] = {}
        env_config, envs = (None, None) if env is None else envs_for(env, n_envs, 1, config)
        if envs is not None:
            observation_space, action_space = envs.spaces
        if observation_space is None or action_space is None:
            raise ZooError(f"{type(self).__name__} needs an env")
        seed = random_seed() if seed is None else int(seed)
        runtime = Runtime(device=device, compile=compile, threads=threads, precision=precision)
        super().__init__(config, policy, observation_space, action_space, seed, runtime)
        self.env_config, self.n_envs = env_config, n_envs or 1
        self.total_timesteps = self.n_updates = self.n_episodes = 0
        self.recent_episodes = RecentEpisodes(maxlen=100)
        self.timings = {"env": 0.0, "policy": 0.0, "update": 0.0, "evaluation": 0.0}
        self.stop_reason: str | None = None
        self.cut_short = False
        """Whether the last `collect` ended before its time, because the run's steps were done."""
        self.is_half_restored = False
        """Whether a checkpoint that does not fit has been taken over in part."""
        self._ended_by: str | None = None
        self._stops_again: str | None = None
        self._scalars = ScalarMeans(self.device)
        self._callbacks = CallbackSchedule([], 0)
        self._still_due: Mapping[str, Any] = {}
        self.distributed = DistributedContext(self)
        self.runner = UpdateRunner(self._make_state(), runtime)
        self.acting = self._make_acting()
        if envs is not None:
            self._take_envs(envs)
            self._batch_size()
            tell_of_unread_images(self.observation_space, self.policy_config)

    if not TYPE_CHECKING:  # type checkers go by the declared attributes alone

        def __setattr__(self, name: str, value: Any) -> None:
            """Take another hyperparameter from the next update on. Raises `ZooError` where it can't be."""
            own = vars(self)
            is_counted = name in COUNTS or "acting" not in own  # first, for each step is counted
            is_own = is_counted or (name in own and name not in ("policy", "config", *vars(self.config)))
            if not is_own and not hasattr(type(self), name):
                config = changed_config(self, name, value)
                if config is not None:
                    self.schedules = schedules.parse_all(scheduled(config))
                    name, value = "config", config
            super().__setattr__(name, value)

    # -- what an algorithm is made of -------------------------------------------------------------------

    @abstractmethod
    def _make_state(self) -> State:
        """Return the tensors that updates replace: parameters, targets, optimizer slots."""

    def _make_acting(self) -> ActingPolicy:
        """Return the part of the policy that acts."""
        return ActingPolicy(self.policy, self.device)

    @abstractmethod
    def _make_buffer(self) -> None:
        """Allocate what `collect` fills."""

    @abstractmethod
    def collect(self) -> None:
        """Step the environments and store what happened, until the next update is due."""

    @abstractmethod
    def update(self) -> None:
        """Learn from what was collected."""

    @abstractmethod
    def gradient_steps_in(self, total_timesteps: int) -> float:
        """Return how many gradient steps a run of ``total_timesteps`` environment steps takes."""

    @abstractmethod
    def _batch_size(self) -> int:
        """Return the number of samples in one gradient step. Raises `ZooError` where there are too few."""

    @classmethod
    def check_workers(cls, config: Any, n_workers: int) -> None:
        """Raise `ZooError` if so many processes can't learn as one with this config."""
        if n_workers > 1 and not cls.can_share:
            raise ZooError(
                f"workers={n_workers}: {cls.name} can't learn as several processes; {sharing()} can"
            )

    def _foresee(self, n_steps: int) -> None:
        """Warn of what so many steps, from now on, will not do; by default of nothing."""

    # -- training ---------------------------------------------------------------------------------------

    def learn(
        self,
        total_timesteps: int,
        callback: Callback | Iterable[Callback] | None = None,
        *,
        reset_num_timesteps: bool = True,
    ) -> Self:
        """Train for ``total_timesteps`` environment steps, by whole updates, and return the algorithm.

        With ``reset_num_timesteps=False`` the steps come on top of those taken so far; otherwise steps and
        episodes are counted anew. Raises `ZooError` where the hyperparameters don't fit the environments.
        """
        if self.envs is None:
            raise ZooError("this agent has no env to learn in; give it one with set_env()")
        if self.is_half_restored:
            raise ZooError("a checkpoint that does not fit was restored in part; make the model anew")
        n_steps, batch_size = whole_steps(total_timesteps), self._batch_size()
        if reset_num_timesteps:
            self.num_timesteps = self.n_episodes = 0
            self.recent_episodes.clear()
        self.total_timesteps = self.num_timesteps + n_steps
        self._foresee(n_steps)
        self.stop_reason = self._ended_by = self._stops_again
        self._stops_again = None
        weights = sum(parameter.numel() for parameter in self.policy.parameters())
        # A step of several workers learns from what all of them have collected, or replays as often as one.
        own_steps = self.total_timesteps // (1 if self.has_replay else self.distributed.size)
        self.runtime.expect(self.gradient_steps_in(own_steps), float(weights * batch_size))
        if not self.collector.is_under_way:
            self._reset_envs()
            self.distributed.share_statistics()
        callbacks = as_callbacks(callback)
        self._callbacks = CallbackSchedule(callbacks, self.num_timesteps, self._still_due)
        self._still_due = {}
        with self.runtime.in_force(), self.generators.torch_of_this_run():
            self._alternate(self._callbacks)
        if self.stop_reason == PREEMPTED:
            self._still_due, self._stops_again = self._callbacks.state(), self._ended_by
        self._callbacks = CallbackSchedule([], 0)
        return self

    def _alternate(self, callbacks: CallbackSchedule) -> None:
        callbacks.start(self)
        callbacks.call_due(self)
        while self.num_timesteps < self.total_timesteps:
            if self.distributed.is_to_stop(self.stop_reason is not None):
                break
            with self.distributed.in_force():
                self._collect_and_update()
            if callbacks.writes_at(self.num_timesteps):
                self.distributed.hear_episodes()
            callbacks.call_due(self)
        self.distributed.hear_episodes()
        self.check_finite()
        callbacks.end(self, preempted=self.stop_reason == PREEMPTED)

    def _collect_and_update(self) -> None:
        if self.collector.envs.was_disturbed:
            self.own_barrier()
        try:
            self.collect()
        except BaseException as error:
            self.collector.envs.disturb()  # where they are by now is not known: a step may be lost
            if isinstance(error, ZooError):
                check_policy_first(self, error)
            raise
        if self.distributed.has_collected(self.stop_reason == PREEMPTED):
            self.request_stop(PREEMPTED)
        started = time.perf_counter()
        self.update()
        self.timings["update"] += time.perf_counter() - started

    def pretrain(
        self,
        dataset: ExpertData | str | Path,
        *,
        on_epoch: Callable[[Epoch], bool | None] | None = None,
        **settings: Any,
    ) -> Self:
        """Clone an expert with the policy, before learning or in between, and return the algorithm.

        ``settings`` are those of `PretrainConfig`: n_epochs, learning_rate, batch_size, …. The parameters
        with the best validation loss are taken. It ends after an epoch for which ``on_epoch`` returns True.
        Critics and optimizers stay as they are. Raises `ZooError` for an expert in other spaces.
        """
        from zoo.imitation.bc import PretrainConfig, Pretraining  # which needs this module

        pretraining = Pretraining(self, dataset, build(PretrainConfig, settings, "pretrain"))
        pretraining.run(on_epoch)
        pretraining.take_over()
        return self

    def check_finite(self) -> None:
        """Raise `NotFiniteError` if anything lately collected, or a parameter, is NaN or infinite."""
        check_finite(self)

    def request_stop(self, reason: str) -> None:
        """End `learn` after the update under way; a run that is resumed ends for that reason too."""
        if reason != PREEMPTED:
            self._ended_by = reason
        self.stop_reason = reason

    @property
    def progress(self) -> float:
        """Fraction of all environment steps that is done, from 0 to 1."""
        return min(1.0, self.num_timesteps / self.total_timesteps) if self.total_timesteps else 0.0

    def paced(self) -> dict[str, Any]:
        """Return the settings by whose values a run of more steps differs from its beginning, by their paths.

        They follow `progress`, which is a share of all steps.
        """
        changing = (name for name, schedule in self.schedules.items() if not schedule.is_constant)
        return {f"algo.{name}": getattr(self.config, name) for name in changing}

    def record(self, name: str, value: float | Tensor | Array) -> None:
        """Add a scalar to the mean that the next `read_metrics` returns under ``name``."""
        self._scalars.record(name, value)

    def record_row(self, scalars: Mapping[str, float]) -> None:
        """Add scalars that belong to this step alone: a log has a row for them (see `read_rows`)."""
        self._scalars.record_row(self.num_timesteps, scalars)

    def read_rows(self, before: int) -> dict[int, dict[str, float]]:
        """Return what `record_row` was given at steps below ``before`` since the last call, by step."""
        return self._scalars.read_rows(before)

    def read_metrics(self) -> dict[str, float]:
        """Return the means of all scalars that were recorded since the last call, by all workers.

        What `record_row` was given at this step is there as it is.
        """
        return self.distributed.hear_metrics(self.read_own_metrics())

    def read_own_metrics(self) -> dict[str, float]:
        """Return the means of those that this worker has recorded."""
        return self._scalars.read()

    def rates(self, progress: float) -> dict[str, Tensor]:
        """Return the hyperparameters that follow a schedule as scalar tensors of this moment; record them.

        The tensors serve as long as their values do, so nobody writes into them.
        """
        rates = {}
        for name, schedule in self.schedules.items():
            value = schedule(progress)
            self.record(f"train/{name}", value)
            last = self._last_rates.get(name)
            if last is None or last[0] != value:
                last = self._last_rates[name] = value, torch.tensor(value, device=self.device)
            rates[name] = last[1]
        return rates

    def _take_steps(self, step: Step, shared: Any, rows: Any) -> dict[str, Tensor]:
        """Take a gradient step for each row; return what the steps put out for each sample."""
        with self.policy_mode.training():
            ran = self.runner.run(step, shared, rows)
        self._scalars.record_all([f"train/{name}" for name in ran.names], ran.metrics)
        self.n_updates += ran.n_steps
        return ran.outputs

    def _interact(self, act: Act, store: Callable[[Transition], None]) -> Transition:
        """Act once in all environments, store what came of it, and count."""
        transition, before = self.collector.step(act), self.num_timesteps
        self.num_timesteps += self._steps_in(transition.outcome)
        self.distributed.has_stepped(before)
        store(transition)
        self.distributed.take(transition.outcome.episodes)
        return transition

    def _steps_in(self, outcome: StepResult) -> int:
        """Return how many environment steps all workers have taken at once."""
        if self.collector.envs.next_step_autoreset:
            return self.distributed.total(self.n_envs if outcome.valid is None else int(outcome.valid.sum()))
        return self.n_envs * self.distributed.size

    def take_note_of(self, episode: EpisodeRecord) -> None:
        """Count an episode that has ended."""
        self.n_episodes += 1
        self.recent_episodes.append(episode)
        for callback in self._callbacks.watching_episodes:
            callback.on_episode(self, episode)

    # -- environments -----------------------------------------------------------------------------------

    def set_env(self, env: Any, *, n_envs: int | None = None) -> None:
        """Learn in another environment from now on; of an id or a function, in as many as before.

        Raises `ZooError` if its spaces differ.
        """
        config, envs = envs_for(env, n_envs, self.n_envs, self.config)
        difference = interfaces_differ(self.spaces, envs.spaces)
        if difference is not None:
            raise ZooError(f"the env's {difference[0]} differ from the agent's: {difference[1]}")
        self._check_envs(envs)
        if self.normalizer is not None:
            envs.normalizer = self.normalizer
        self.env_config = config or self.env_config
        self._take_envs(envs)

    def _check_envs(self, envs: VecEnvAdapter) -> None:
        """Raise `ZooError` for environments that it can't learn in, though their spaces fit."""

    def _take_envs(self, envs: VecEnvAdapter) -> None:
        self.envs, self.n_envs, self.normalizer = envs, envs.num_envs, envs.normalizer
        self.collector = self.interaction_class(
            envs, self.action_adapter.to_env, self.normalizer, self.timings
        )
        if envs.mask_size is not None:  # else it is not known before a reset, see `_note_masks`
            self._mask_size, self.masks_actions = envs.mask_size, True
        self._make_buffer()

    def own_barrier(self) -> None:
        """Cut all episodes (bootstrapped as truncated, not counted) and reset the environments by new seeds.

        They depend on nothing before then. Only those that can't be replayed need it, before a checkpoint.
        """
        self._cut_episodes(range(self.n_envs))
        self._reset_envs()

    def _reset_envs(self) -> None:
        with self.runtime.in_force():
            self.collector.reset([int(seed) for seed in self.rng.integers(2**31, size=self.n_envs)])
        self._note_masks()

    def _note_masks(self) -> None:
        """Make room for masks that are known only now: they stand in the infos of a reset."""
        size = self.collector.envs.mask_size
        self.masks_actions = size is not None
        if size != self._mask_size:
            self._mask_size = size
            self._make_buffer()

    def _cut_episodes(self, envs: Sequence[int]) -> None:
        """Mark the episodes under way in these environments as ended, where a part reaches over updates."""

    # -- several workers --------------------------------------------------------------------------------

    def join(self, workers: Workers) -> None:
        """Learn as one of several processes from now on; all begin with the weights of the first.

        Numbers of steps are those of all workers together; rollouts, batches and memories are each one's
        own. Every other worker draws from generators of its own.
        """
        self.distributed = DistributedContext(self, workers)
        self.runtime.shared_by = workers.n_here
        if workers.rank:
            self.generators.load_state(Generators(worker_seed(self.seed, workers.rank)).state())
        self.distributed.begin()

    def leave(self) -> None:
        """Learn alone from now on."""
        self.distributed = DistributedContext(self)
        self.runtime.shared_by = 1
        if self.normalizer is not None:
            self.normalizer.share_no_more()

    def barrier(self) -> None:
        """Cut all episodes and reset the environments of all workers: see `own_barrier`."""
        self.distributed.reset_all()

    def tensors(self) -> dict[str, Tensor]:
        """Return all tensors of a run by name."""
        return Tensors(self.runner.state, self.policy).tensors

    # -- exact resume -----------------------------------------------------------------------------------

    def _parts(self) -> dict[str, Any]:
        """Return the parts with a state of their own, but for the environments."""
        return {
            "tensors": Tensors(self.runner.state, self.policy),
            "runtime": self.runtime,
            "scalars": self._scalars,
            "recent_episodes": self.recent_episodes,
            "counts": Attributes(self, COUNTS),
            "generators": self.generators,
        }

    def state(self) -> dict[str, Any]:
        """Return everything that the rest of the run depends on, between two updates: arrays and values.

        What a replay buffer stores is not copied: write it, or copy it, before learning goes on. Of several
        workers this is one's own.
        """
        self.distributed.hear_episodes()
        return {
            **{name: part.state() for name, part in self._parts().items()},
            "normalizer": {} if self.normalizer is None else self.normalizer.state(),
            "collector": self.collector.state(),
            "still_due": {**self._still_due, **self._callbacks.state()},
            "ended_by": self._ended_by,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go back to where `state` returned this. Raises `ZooError` if it does not fit the algorithm."""
        if self.normalizer is not None:
            self.normalizer.resume(state["normalizer"])
        self.runtime.load_state(state["runtime"])
        with self.runtime.in_force():
            cut = self.collector.load_state(state["collector"])
        self._note_masks()
        for name, part in self._parts().items():
            part.load_state(state[name])
        self._cut_episodes(cut)
        self._still_due = state["still_due"]
        self._ended_by = self._stops_again = state["ended_by"]
