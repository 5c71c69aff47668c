"""The base of all algorithms: an agent that learns by `collect` and `update`, and is resumed exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import gymnasium as gym
import torch
from gymnasium import spaces
from torch import Tensor
from typing_extensions import Self

from zoo.algorithms.agent import Agent
from zoo.algorithms.arguments import Policy, built_config, checked_attribute, warn_of_unread_images
from zoo.algorithms.callback import Callbacks
from zoo.algorithms.collector import Act, Array, Collector, check_collected, check_parameters, envs_for
from zoo.algorithms.distributed import DistributedContext
from zoo.algorithms.registry import ALGORITHMS, algorithm_class
from zoo.algorithms.saving import (
    Attributes,
    Tensors,
    check_policy_parameters,
    check_tensors,
    named_parameters,
)
from zoo.algorithms.trainer import Trainer
from zoo.buffers.arrays import Arrays
from zoo.config.aliases import refuse_unknown_arguments
from zoo.config.fields import schedules_of
from zoo.envs.adapter import VecEnvAdapter
from zoo.envs.config import EnvConfig
from zoo.envs.replay import random_seed
from zoo.envs.transition import EpisodeRecord, RecentEpisodes, Transition
from zoo.errors import ZooError
from zoo.optim.runtime import Runtime
from zoo.optim.update_runner import ScalarMeans, State, Step, UpdateRunner
from zoo.policies.acting import to_tensors

if TYPE_CHECKING:
    from zoo.optim.popart import ReturnNormalizer
    from zoo.optim.workers import Workers

COUNTS = ("seed", "num_timesteps", "total_timesteps", "n_updates", "n_episodes", "timings")


class Algorithm(Agent):
    """Learns a policy by alternating `collect` and `update`.

    ``env`` is an id, an environment, a vector environment, a function that makes one, or a list of such;
    ``n_envs`` (1) are made of an id, a config or a function. Hyperparameters are given by name, or as a whole
    in ``config``; ``policy_kwargs`` has SB3's names. All randomness comes from generators of ``seed``. With
    ``verbose`` `learn` prints tables, with ``tensorboard_log`` it writes for TensorBoard.

    Raises `ZooError` for a hyperparameter, space or policy that does not fit.
    """

    collector_class: ClassVar[type[Collector]] = Collector

    buffer: Any
    collector: Collector
    return_normalizer: ReturnNormalizer | None = None

    @refuse_unknown_arguments
    def __init__(
        self,
        policy: Policy = "MlpPolicy",
        env: str | EnvConfig | gym.Env[Any, Any] | gym.vector.VectorEnv[Any, Any, Any] | Any = None,
        learning_rate: Any = None,
        *,
        n_envs: int | None = None,
        seed: int | None = None,
        device: str = "auto",
        compile: bool | str = "auto",
        threads: int | str = "auto",
        verbose: int = 0,
        tensorboard_log: str | Path | None = None,
        policy_kwargs: Mapping[str, Any] | None = None,
        config: Any = None,
        observation_space: spaces.Space[Any] | None = None,
        action_space: spaces.Space[Any] | None = None,
        **hyperparameters: Any,
    ) -> None:
        self.preset, self.verbose, self.tensorboard_log = self.of_preset, verbose, tensorboard_log
        hyperparameters |= {} if learning_rate is None else {"learning_rate": learning_rate}
        if policy_kwargs is not None:
            from zoo.algorithms.sb3_arguments import with_policy_kwargs

            policy, others = with_policy_kwargs(type(self), policy, policy_kwargs)
            hyperparameters |= others
        if config is not None and hyperparameters:
            raise ZooError("give hyperparameters by name or as `config`, not both")
        self.config = config = config or built_config(type(self), hyperparameters)
        self.schedules = schedules_of(config)
        self._last_rates: dict[str, tuple[float, Tensor]] = {}
        if isinstance(env, str) and self.usual_normalize:
            env = EnvConfig(id=env, normalize={**self.usual_normalize})
        env_config, envs = (None, None) if env is None else envs_for(env, n_envs, 1, self.discount)
        if envs is not None:
            observation_space, action_space = envs.spaces
        if observation_space is None or action_space is None:
            raise ZooError(f"{type(self).__name__} needs an env")
        runtime = Runtime(device=device, compile=compile, threads=threads)
        super().__init__(policy, observation_space, action_space, random_seed(seed), runtime)
        self.env_config = env_config
        self.n_envs = envs.num_envs if envs is not None else n_envs or 1
        self.num_timesteps = self.total_timesteps = self.n_updates = self.n_episodes = 0
        self.recent_episodes = RecentEpisodes(maxlen=100)
        self.timings = {"env": 0.0, "policy": 0.0, "update": 0.0, "evaluation": 0.0}
        self.scalars = ScalarMeans(self.device)
        self.stop_reason: str | None = None  # why `learn` ended before its budget was spent
        self.trainer, self.distributed = Trainer(self), DistributedContext(self)
        self.runner = UpdateRunner(self._make_state(), self.runtime)
        if envs is None:
            self.acting = self._make_acting()
        else:
            self._use_envs(envs)
            self._batch_size()
            warn_of_unread_images(self.observation_space, self.policy_config)

    if not TYPE_CHECKING:  # type checkers go by the declared attributes alone

        def __setattr__(self, name: str, value: Any) -> None:
            """Set an attribute that something reads, or raise `ZooError`: see `checked_attribute`."""
            attributes = vars(self)
            if "acting" in attributes and (name not in attributes or name in ("policy", "config")):
                name, value = checked_attribute(self, name, value)
            super().__setattr__(name, value)

    # -- what an algorithm is made of -------------------------------------------------------------------

    def _make_state(self) -> State:
        """Return the tensors that updates replace: parameters, targets, optimizer slots."""
        raise NotImplementedError

    def _make_buffer(self) -> None:
        """Allocate what `collect` fills, if there is any."""

    def collect(self) -> None:
        """Step the environments and store what happened, until the next update is due."""
        raise NotImplementedError

    def update(self) -> None:
        """Update the agent from the collected steps."""
        raise NotImplementedError

    def after_update(self) -> None:
        """Hook: learn what is not the policy's, such as a reward model."""

    def gradient_steps_in(self, total_timesteps: int) -> float:
        """Return how many gradient steps a run of ``total_timesteps`` environment steps takes."""
        raise NotImplementedError

    def _batch_size(self) -> int:
        """Return the number of samples in one gradient step. Raises `ZooError` where there are too few."""
        raise NotImplementedError

    @classmethod
    def check_workers(cls, config: Any, n_workers: int) -> None:
        """Raise `ZooError` if so many processes can't learn as one with this config."""
        if n_workers > 1 and not cls.can_share:
            others = ", ".join(name for name in ALGORITHMS if algorithm_class(name).can_share)
            raise ZooError(f"workers={n_workers}: {cls.name} can't learn as several processes; {others} can")

    def _check_budget(self, n_steps: int) -> None:
        """Warn where so many steps, from now on, will not learn anything."""

    # -- training ---------------------------------------------------------------------------------------

    @refuse_unknown_arguments
    def learn(
        self,
        total_timesteps: int,
        callback: Callbacks = None,
        log_interval: int | None = None,
        tb_log_name: str | None = None,
        reset_num_timesteps: bool = True,
        progress_bar: bool = True,
    ) -> Self:
        """Train for ``total_timesteps`` environment steps, by whole updates, and return the algorithm.

        A terminal (stderr) or notebook shows a bar meanwhile, unless ``progress_bar`` is false.
        With ``reset_num_timesteps=False`` the steps come on top of those taken so far; otherwise steps and
        episodes are counted anew. ``verbose`` and ``tensorboard_log`` of the constructor log a hundred times,
        or every ``log_interval`` updates (off-policy: episodes), into a folder called ``tb_log_name``. Raises
        `ZooError` where the hyperparameters don't fit the environments.
        """
        self.trainer.learn(
            total_timesteps, callback, log_interval, tb_log_name, reset_num_timesteps, progress_bar
        )
        return self

    def check_finite(self) -> None:
        """Raise `NotFiniteError` if anything lately collected, or a parameter, is NaN or infinite."""
        check_collected(self)
        check_parameters(self)

    def request_stop(self, reason: str) -> None:
        """End `learn` after the update under way; a run that is resumed ends for that reason too."""
        self.trainer.request_stop(reason)

    @property
    def progress(self) -> float:
        """Fraction of all environment steps that is done, from 0 to 1."""
        return min(1.0, self.num_timesteps / self.total_timesteps) if self.total_timesteps else 0.0

    def record(self, name: str, value: float | Tensor | Array) -> None:
        """Add a scalar to the mean that the next `read_metrics` returns under ``name``."""
        self.scalars.record((name,), value)

    def read_metrics(self) -> dict[str, float]:
        """Return the means of all scalars that were recorded since the last call, by all ranks."""
        return self.distributed.mean_metrics()

    def rates(self, progress: float) -> dict[str, Tensor]:
        """Return the hyperparameters that follow a schedule as scalar tensors of this moment; record them.

        The tensors serve as long as their values do, so do not write into them.
        """
        for name, schedule in self.schedules.items():
            if name in self.runner.state:  # updates move it
                continue
            value = schedule(progress)
            self.record(f"train/{name}", value)
            if name not in self._last_rates or self._last_rates[name][0] != value:
                self._last_rates[name] = value, torch.tensor(value, device=self.device)
        return {name: tensor for name, (_, tensor) in self._last_rates.items()}

    def take_steps(self, step: Step, shared: Any, rows: Any) -> dict[str, Tensor]:
        """Take a gradient step for each row; return the steps' outputs per sample."""
        with self.policy_mode.training():
            result = self.runner.run(step, shared, rows)
        self.scalars.record([f"train/{name}" for name in result.names], result.metrics)
        self.n_updates += result.n_steps
        return result.outputs

    def _interact(self, act: Act, store: Callable[[Transition], None]) -> Transition:
        """Act once in all environments, store what came of it, and count."""
        transition, before = self.collector.step(act), self.num_timesteps
        if transition.stepped is None:
            self.num_timesteps += self.n_envs * self.distributed.size
        else:
            self.num_timesteps += self.distributed.total(len(transition.stepped))
        if self.normalizer is not None:
            self.distributed.share_early_statistics(before)
        check_collected(self)
        store(transition)
        self.add_episodes(transition.episodes)
        return transition

    def add_episodes(self, episodes: Iterable[EpisodeRecord]) -> None:
        """Record finished episodes; in data-parallel runs, queue them for the first rank to gather."""
        if self.distributed.workers is None:
            for episode in episodes:
                self.record_episode(episode)
        else:
            self.distributed.pending_episodes.extend(episodes)

    def record_episode(self, episode: EpisodeRecord) -> None:
        self.n_episodes += 1
        self.recent_episodes.append(episode)
        for callback in self.trainer.callbacks.watching_episodes:
            callback.on_episode(self, episode)

    # -- parameters -------------------------------------------------------------------------------------

    def get_parameters(self) -> dict[str, Array]:
        """Return copies of the policy's parameters by name, the critic's for values that are not normalised.

        The moments of returns, where they are kept, are among them (`zoo.optim.popart.MOMENTS`).
        """
        state, units = self.runner.state, self.return_normalizer
        tensors = {} if units is None else {**units.plain_parameters(state), **units.moments(state)}
        named = {name: tensor.detach().cpu().numpy().copy() for name, tensor in tensors.items()}
        return {**super().get_parameters(), **named}

    def set_parameters(self, parameters: Mapping[str, Array] | str | Path, exact_match: bool = True) -> None:
        """Overwrite the policy's parameters, and the moments of returns where some are given."""
        from zoo.optim.popart import MOMENTS

        parameters, state, units = named_parameters(parameters), self.runner.state, self.return_normalizer
        saved = {name: value for name, value in parameters.items() if name in MOMENTS}
        others = {name: value for name, value in parameters.items() if name not in saved}
        check_policy_parameters(self.policy, others, exact_match=exact_match)
        moments = {} if units is None else units.moments(state)
        if saved:
            check_tensors(dict.fromkeys(MOMENTS, ()), saved)
            moments = {name: torch.tensor(float(saved[name]), dtype=torch.float64) for name in MOMENTS}
        if units is not None:
            units.reset(state)
        super().set_parameters(others, exact_match)
        if units is not None:
            units.with_moments(state, moments)

    # -- environments -----------------------------------------------------------------------------------

    def _use_envs(self, envs: VecEnvAdapter) -> None:
        super()._use_envs(envs)
        self.collector = self.collector_class(envs, self.action_adapter.to_env, self.normalizer, self.timings)
        if envs.mask_size is not None:  # else it is not known before a reset, see `_note_masks`
            self._mask_size, self.masks_actions = envs.mask_size, True
        self._make_buffer()

    def reset_own_envs(self) -> None:
        """Truncate all running episodes, without recording them, and reset the envs with fresh seeds.

        They depend on nothing before then. Only those that can't be replayed need it, before a checkpoint.
        """
        self._cut_episodes(range(self.n_envs))
        self._reset_envs()

    def _reset_envs(self) -> None:
        with self.runtime.in_force():
            self.collector.reset([int(seed) for seed in self.rng.integers(2**31, size=self.n_envs)])
        self._note_masks()

    def _note_masks(self) -> None:
        """Reallocate the buffer if the mask size changed: masks are first seen in the infos of a reset."""
        size = self.collector.envs.mask_size
        self.masks_actions = size is not None
        if size != self._mask_size:
            self._mask_size = size
            self._make_buffer()

    def _cut_episodes(self, envs: Sequence[int]) -> None:
        """Hook: end running episodes of these envs in state that outlives updates (buffer, noise)."""

    # -- several ranks ----------------------------------------------------------------------------------

    def join(self, workers: Workers | None) -> None:
        """Learn as one of several ranks from now on, which begin with rank 0's weights, or learn alone.

        Step counts are totals over all ranks; each has its own rollouts, batches, buffers and generators.
        """
        self.distributed = DistributedContext(self, workers)
        self.distributed.begin()

    def _tensors(self, column: Arrays) -> Any:
        """Return arrays as tensors on this algorithm's device, without a copy on a CPU."""
        return to_tensors(column, self.device)

    # -- exact resume -----------------------------------------------------------------------------------

    def _parts(self) -> dict[str, Any]:
        """Return the parts with a state of their own, without the environments."""
        return {
            "tensors": Tensors(self.runner.state, self.policy),
            "runtime": self.runtime,
            "scalars": self.scalars,
            "recent_episodes": self.recent_episodes,
            "counts": Attributes(self, COUNTS),
            "generators": self.generators,
        }

    def state(self) -> dict[str, Any]:
        """Training state between two updates, for a checkpoint.

        Replay storage is not copied: write or copy it before learning continues. State of this rank only.
        """
        self.distributed.gather_episodes()
        return {
            **{name: part.state() for name, part in self._parts().items()},
            "normalizer": {} if self.normalizer is None else self.normalizer.state(),
            "collector": self.collector.state(),
            **self.trainer.state(),
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
        self.trainer.load_state(state)
