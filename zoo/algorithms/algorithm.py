"""The base of all algorithms: a policy that acts, learns, is saved and loaded, and resumed exactly."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn
from typing_extensions import Self

from zoo.algorithms.arguments import (
    Policy,
    built_config,
    check_action_space,
    check_recurrence,
    checked_attribute,
    describe_constructor,
    make_policy,
    policy_config,
    policy_input,
    short_description,
    warn_of_unread_images,
)
from zoo.algorithms.callback import PREEMPTED, Callbacks, CallbackSchedule
from zoo.algorithms.collector import Act, Array, Collector, check_collected, check_parameters, envs_for
from zoo.algorithms.distributed import DistributedContext
from zoo.algorithms.registry import ALGORITHMS, algorithm_class, callbacks_of_learn
from zoo.algorithms.saving import Attributes, Generators, Tensors, check_policy_parameters
from zoo.algorithms.sb3_arguments import PolicyPredict, with_policy_kwargs
from zoo.buffers.arrays import Arrays, ArraySpec, n_rows, observation_spec
from zoo.buffers.config import ReplayConfig
from zoo.config import schedules
from zoo.config.aliases import ATTRIBUTES, refuse_unknown_arguments
from zoo.config.fields import build, scheduled, whole_steps
from zoo.envs.adapter import VecEnvAdapter
from zoo.envs.config import EnvConfig, normalize_config
from zoo.envs.normalize import Normalizer
from zoo.envs.replay import random_seed, worker_seed
from zoo.envs.spaces import interfaces_differ, row
from zoo.envs.transition import EpisodeRecord, RecentEpisodes, Transition
from zoo.errors import NotFiniteError, ZooError
from zoo.optim.runtime import Runtime, gradients_on, torch_settings
from zoo.optim.update_runner import ScalarMeans, State, Step, UpdateRunner, averaging_over
from zoo.policies.acting import ActingPolicy, PolicyMode, make_action_adapter, make_mirror, to_tensors
from zoo.policies.actor_critic import PolicyInput

if TYPE_CHECKING:
    from zoo.agents.agent_folder import AgentFiles
    from zoo.imitation.bc import Epoch
    from zoo.imitation.expert_data import ExpertData
    from zoo.optim.workers import Workers

COUNTS = ("seed", "num_timesteps", "total_timesteps", "n_updates", "n_episodes", "timings")


class Algorithm:
    """Learns a policy by alternating `collect` and `update`.

    ``env`` is an id, an environment, a vector environment, a function that makes one, or a list of such;
    ``n_envs`` (1) are made of an id, a config or a function. Hyperparameters are given by name, or as a whole
    in ``config``; ``policy_kwargs`` has SB3's names. All randomness comes from generators of ``seed``. With
    ``verbose`` `learn` prints tables, with ``tensorboard_log`` it writes for TensorBoard.

    Raises `ZooError` for a hyperparameter, space or policy that does not fit.
    """

    name: ClassVar[str]
    config_class: ClassVar[type[Any]]
    supported_actions: ClassVar[tuple[type[spaces.Space[Any]], ...]]
    policy_class: ClassVar[type[nn.Module]]
    """The networks' class; users' own policies are subclasses of it."""
    scales_actions: ClassVar[bool] = False
    """Whether Box actions are stored in [−1, 1], and scaled to the environment's bounds on the way there."""
    has_replay: ClassVar[bool] = False
    """Whether it draws from a replay buffer, so that there is a ``replay`` to configure."""
    learns_from_experts: ClassVar[bool] = False
    """Whether it learns from expert data, so that there is a ``dataset`` to give."""
    has_recurrence: ClassVar[bool] = False
    """Whether its policies may be recurrent."""
    can_share: ClassVar[bool] = True
    """Whether it can be one of several workers: each of its updates is the same number of steps for all."""
    of_preset: ClassVar[str | None] = None
    """The preset that a class stands for, which has other defaults, or another replay, than its algorithm."""
    preset: str | None = None
    """Name of the preset, or None."""
    usual_policy: ClassVar[str] = "MlpPolicy"
    """The policy that `zoo train` gives it where nothing else is chosen."""
    collector_class: ClassVar[type[Collector]] = Collector

    config: Any
    policy: nn.Module
    acting: ActingPolicy
    buffer: Any
    collector: Collector
    replay_config: ReplayConfig | None = None
    _mask_size: int | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        """Let `help` show the hyperparameters in the class's signature and docstring."""
        super().__init_subclass__(**options)
        describe_constructor(cls)

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
            policy, others = with_policy_kwargs(type(self), policy, policy_kwargs)
            hyperparameters |= others
        if config is None:
            config = built_config(type(self), hyperparameters)
        elif hyperparameters:
            raise ZooError("give hyperparameters by name or as `config`, not both")
        self.config = config
        self.schedules = schedules.parse_all(scheduled(config))
        self._last_rates: dict[str, tuple[float, Tensor]] = {}
        env_config, envs = (None, None) if env is None else envs_for(env, n_envs, 1, config)
        if envs is not None:
            observation_space, action_space = envs.spaces
        if observation_space is None or action_space is None:
            raise ZooError(f"{type(self).__name__} needs an env")
        self.seed = random_seed(seed)
        self.runtime = Runtime(device=device, compile=compile, threads=threads)
        self.device = self.runtime.device
        self.policy_config = policy_config(policy, observation_space)
        self.observation_space, self.action_space = observation_space, action_space
        check_action_space(self.label, action_space, self.supported_actions)
        self.generators = Generators(self.seed)
        self.rng, self.predict_rng = self.generators.rng, self.generators.predict_rng
        self.masks_actions = False  # whether it learned to choose among valid actions only
        self._warned_of_masks = False
        self.env_config: EnvConfig | None = env_config
        self.n_envs = envs.num_envs if envs is not None else n_envs or 1
        self.envs: VecEnvAdapter | None = None
        self.normalizer: Normalizer | None = None
        self.num_timesteps = self.total_timesteps = self.n_updates = self.n_episodes = 0
        self.recent_episodes = RecentEpisodes(maxlen=100)
        self.timings = {"env": 0.0, "policy": 0.0, "update": 0.0, "evaluation": 0.0}
        self.stop_reason: str | None = None
        self._ended_by: str | None = None  # why the run ended, but for a signal
        self._restored_stop_reason: str | None = None
        self.scalars = ScalarMeans(self.device)
        self._callbacks = CallbackSchedule([], 0)
        self._still_due: Mapping[str, Any] = {}
        self.distributed = DistributedContext(self)

        check_recurrence(self.label, self.policy_config, is_recurrent=self.has_recurrence)
        self.action_adapter = make_action_adapter(action_space, scaled=self._is_scaled())
        with self.generators.torch_of_this_run(), torch_settings(threads=1):
            self.policy = self._make_policy().to(self.device)
        vars(self.policy).setdefault("predict", PolicyPredict(self))
        self.policy_mode = PolicyMode(self.policy)
        self.runtime.check_compilable(self.policy)
        self.runner = UpdateRunner(self._make_state(), self.runtime)
        if envs is None:
            self.acting = self._make_acting()
        else:
            self._use_envs(envs)
            self._batch_size()
            warn_of_unread_images(self.observation_space, self.policy_config)

    if not TYPE_CHECKING:  # type checkers go by the declared attributes alone

        def __getattr__(self, name: str) -> Any:
            """Return a hyperparameter; for what else models have elsewhere, say where it is."""
            config = vars(self).get("config")
            if config is not None and name in vars(config):
                return vars(config)[name]
            hint = f"; here it is {ATTRIBUTES[name]}" if name in ATTRIBUTES else ""
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'{hint}")

        def __setattr__(self, name: str, value: Any) -> None:
            """Set an attribute that something reads, or raise `ZooError`: see `checked_attribute`."""
            own = vars(self)
            if "acting" in own and (name not in own or name in ("policy", "config")):
                name, value = checked_attribute(self, name, value)
            super().__setattr__(name, value)

    __repr__ = short_description

    @property
    def label(self) -> str:
        """What ``algo=`` calls it: the name of its preset, if it was made by one."""
        return self.preset or self.name

    # -- what an algorithm is made of -------------------------------------------------------------------

    def _is_scaled(self) -> bool:
        return self.scales_actions or bool(self.policy_config.squash_output)

    def _make_policy(self) -> nn.Module:
        return make_policy(self.policy_class, *self.spaces, self.policy_config, **self._policy_options())

    def _policy_options(self) -> dict[str, Any]:
        """Return what the policy's class is made with, beside spaces and config."""
        return {}

    def _make_state(self) -> State:
        """Return the tensors that updates replace: parameters, targets, optimizer slots."""
        raise NotImplementedError

    def _make_acting(self) -> ActingPolicy:
        """Return the part of the policy that acts."""
        mirror = make_mirror(self.policy, self.device, self.n_envs)
        return ActingPolicy(self.policy, self.device, mirror=mirror)

    def _specs(self, *, normalized: bool = False) -> dict[str, Any]:
        """Return what a buffer stores of each step, by name: its shape and type."""
        specs = {
            "observations": observation_spec(self.observation_space, normalized=normalized),
            "actions": self.action_adapter.spec,
        }
        if self._mask_size is not None:
            specs["action_masks"] = ArraySpec((self._mask_size,), np.bool_)
        return specs

    def _make_buffer(self) -> None:
        """Allocate what `collect` fills, if there is any."""

    def collect(self) -> None:
        """Step the environments and store what happened, until the next update is due."""
        raise NotImplementedError

    def update(self) -> None:
        """Learn from what was collected."""
        raise NotImplementedError

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

    # -- acting -----------------------------------------------------------------------------------------

    @refuse_unknown_arguments
    def predict(
        self,
        observations: Arrays,
        state: Any = None,
        episode_start: Array | None = None,
        deterministic: bool = True,
        *,
        action_masks: Any = None,
    ) -> tuple[Any, Any]:
        """Return actions that the environment takes, and a recurrent policy's next state, else None.

        ``observations`` are raw, of one environment or a batch (n, …); so are the actions. Those for a Tuple
        or Dict space are nested as it is, for a batch with arrays (n, …) in them. A mask has any form that an
        environment may give; those of a batch are an array (n, size), or n such masks. Random actions come
        from a generator of their own, so that asking for them changes nothing about a training.
        """
        inputs, is_single = policy_input(self, observations, state, episode_start, action_masks)
        self.acting.refresh()
        with nullcontext() if self.acting.uses_numpy else self.generators.torch_for_predicting():
            actions, state = self._act(inputs, state, deterministic=deterministic)
        env_actions = self.action_adapter.to_env(actions)
        return (row(env_actions, 0) if is_single else env_actions), state

    def _act(self, inputs: PolicyInput, state: Any, *, deterministic: bool) -> tuple[Arrays, Any]:
        """Return actions as they are stored."""
        noise = None if deterministic else self.acting.head.noise(self.predict_rng, (n_rows(inputs),))
        return self.acting.act(inputs, noise, state)

    def action_probability(
        self,
        observations: Arrays,
        state: Any = None,
        episode_start: Array | None = None,
        *,
        action_masks: Any = None,
    ) -> Any:
        """Return probabilities (n, actions) of Discrete actions, mean and standard deviation of Box.

        It is asked as `predict` is; a recurrent policy answers from ``state``, as returned by `predict`.
        MultiBinary gives the probability of each bit, MultiDiscrete a list of probabilities, one array for
        each choice. Action values are shown as their softmax, squashed actions before they are squashed.
        """
        inputs, is_single = policy_input(self, observations, state, episode_start, action_masks)
        self.acting.refresh()
        with nullcontext() if self.acting.uses_numpy else self.generators.torch_for_predicting():
            parameters, _ = self.acting.parameters(inputs, state)
        return self.acting.head.describe(parameters[0] if is_single else parameters)

    def get_env(self) -> gym.vector.VectorEnv[Any, Any, Any] | None:
        """Return the vector environment that the algorithm learns in."""
        return None if self.envs is None else self.envs.env

    def get_vec_normalize_env(self) -> Normalizer | None:
        """Return the running statistics that observations and rewards are normalised with, if any."""
        return self.normalizer

    @property
    def spaces(self) -> tuple[spaces.Space[Any], spaces.Space[Any]]:
        """The spaces of observations and of actions."""
        return self.observation_space, self.action_space

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
        if self.envs is None:
            raise ZooError("this agent has no env to learn in; give it one with set_env()")
        n_steps, batch_size = whole_steps(total_timesteps), self._batch_size()
        if reset_num_timesteps:
            self.num_timesteps = self.n_episodes = 0
            self.recent_episodes.clear()
            self.envs.disturb_if_shared()
        self.total_timesteps = self.num_timesteps + n_steps
        self._check_budget(n_steps)
        self.stop_reason = self._ended_by = self._restored_stop_reason
        self._restored_stop_reason = None
        weights = sum(parameter.numel() for parameter in self.policy.parameters())
        # A step of several workers learns from what all of them have collected, or replays as often as one.
        own_steps = self.total_timesteps // (1 if self.has_replay else self.distributed.size)
        self.runtime.expect(self.gradient_steps_in(own_steps), float(weights * batch_size))
        if not self.collector.is_under_way:
            self._reset_envs()
            self.distributed.share_statistics()
        own = callbacks_of_learn(self, log_interval, tb_log_name, reset_num_timesteps, progress_bar)
        self._callbacks = CallbackSchedule(callback, self.num_timesteps, self._still_due, self.n_envs, own)
        self._still_due = {}
        with self._callbacks, self.runtime.in_force(), self.generators.torch_of_this_run():
            self._alternate(self._callbacks)
        if self.stop_reason == PREEMPTED:
            self._still_due, self._restored_stop_reason = self._callbacks.state(), self._ended_by
        self._callbacks = CallbackSchedule([], 0)
        return self

    def _alternate(self, callbacks: CallbackSchedule) -> None:
        callbacks.start(self)
        callbacks.call_due(self)
        while self.num_timesteps < self.total_timesteps:
            if self.distributed.is_to_stop(self.stop_reason is not None):
                break
            with averaging_over(self.distributed.workers):
                self._collect_and_update()
            if callbacks.writes_at(self.num_timesteps):
                self.distributed.gather_episodes()
            callbacks.call_due(self)
        self.distributed.gather_episodes()
        self.check_finite()
        callbacks.end(self, preempted=self.stop_reason == PREEMPTED)

    def _collect_and_update(self) -> None:
        if self.collector.envs.was_disturbed:
            self.reset_own_envs()
        try:
            self.acting.refresh()
            self.collect()
        except BaseException as error:
            self.collector.envs.disturb()  # where they are by now is not known: a step may be lost
            if isinstance(error, ZooError) and not isinstance(error, NotFiniteError):
                self.check_finite()  # the environment may have failed for actions that are not finite
            raise
        if self.distributed.meet_before_update(self.stop_reason == PREEMPTED):
            self.request_stop(PREEMPTED)
        started = time.perf_counter()
        with gradients_on():
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
        from zoo.imitation.bc import PretrainConfig, clone_expert  # which needs this module

        clone_expert(self, dataset, build(PretrainConfig, settings, "pretrain"), on_epoch)
        return self

    def check_finite(self) -> None:
        """Raise `NotFiniteError` if anything lately collected, or a parameter, is NaN or infinite."""
        check_collected(self)
        check_parameters(self)

    def request_stop(self, reason: str) -> None:
        """End `learn` after the update under way; a run that is resumed ends for that reason too."""
        if reason != PREEMPTED:
            self._ended_by = reason
        self.stop_reason = reason

    @property
    def progress(self) -> float:
        """Fraction of all environment steps that is done, from 0 to 1."""
        return min(1.0, self.num_timesteps / self.total_timesteps) if self.total_timesteps else 0.0

    def record(self, name: str, value: float | Tensor | Array) -> None:
        """Add a scalar to the mean that the next `read_metrics` returns under ``name``."""
        self.scalars.record((name,), value)

    def read_metrics(self) -> dict[str, float]:
        """Return the means of all scalars that were recorded since the last call, by all workers."""
        return self.distributed.mean_metrics()

    def rates(self, progress: float) -> dict[str, Tensor]:
        """Return the hyperparameters that follow a schedule as scalar tensors of this moment; record them.

        The tensors serve as long as their values do, so do not write into them.
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
        """Record episodes that ended here; those of several workers are gathered by the first."""
        if self.distributed.workers is None:
            for episode in episodes:
                self.record_episode(episode)
        else:
            self.distributed.pending_episodes.extend(episodes)

    def record_episode(self, episode: EpisodeRecord) -> None:
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
            raise ZooError(f"the {difference[0]} of the agent and of the env differ: {difference[1]}")
        if self.normalizer is not None:
            envs.normalizer = self.normalizer
        self.env_config = config or self.env_config
        self._use_envs(envs)

    def _use_envs(self, envs: VecEnvAdapter) -> None:
        self.envs, self.n_envs, self.normalizer = envs, envs.num_envs, envs.normalizer
        self.collector = self.collector_class(envs, self.action_adapter.to_env, self.normalizer, self.timings)
        if envs.mask_size is not None:  # else it is not known before a reset, see `_note_masks`
            self._mask_size, self.masks_actions = envs.mask_size, True
        self.acting = self._make_acting()
        self._make_buffer()

    def reset_own_envs(self) -> None:
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

        Numbers of steps are those of all workers; rollouts, batches, buffers and generators are their own.
        """
        self.distributed = DistributedContext(self, workers)
        self.runtime.shared_by = workers.n_here
        if workers.rank:
            self.generators.load_state(Generators(worker_seed(self.seed, workers.rank)).state())
        self.distributed.begin()

    def leave(self) -> None:
        self.distributed = DistributedContext(self)
        self.runtime.shared_by = 1
        if self.normalizer is not None:
            self.normalizer.stop_sharing()

    def _tensors(self, column: Arrays) -> Any:
        """Return arrays as tensors on this algorithm's device, without a copy on a CPU."""
        return to_tensors(column, self.device)

    # -- parameters and files ---------------------------------------------------------------------------

    def get_parameters(self) -> dict[str, Array]:
        """Return copies of the policy's parameters by name."""
        return {name: value.detach().cpu().numpy().copy() for name, value in self.policy.state_dict().items()}

    def set_parameters(self, parameters: Mapping[str, Array] | str | Path, exact_match: bool = True) -> None:
        """Overwrite the policy's parameters, by name or by an agent's path; targets follow.

        With ``exact_match`` every parameter must be there. Raises `ZooError` for missing, unknown or
        misshapen ones.
        """
        parameters = check_policy_parameters(self.policy, parameters, exact_match=exact_match)
        own = self.policy.state_dict()
        with torch.no_grad():
            for name, values in parameters.items():
                own[name].copy_(torch.as_tensor(np.asarray(values)))
        self.copy_to_targets()

    def copy_to_targets(self) -> None:
        """Make target networks equal to the online ones."""

    @refuse_unknown_arguments
    def save(
        self, path: str | Path, exclude: Iterable[str] = (), *, card: Mapping[str, Any] | None = None
    ) -> Path:
        """Write the agent to a folder, or to a zip if ``path`` ends so; whole or not at all."""
        from zoo.agents.agent_folder import write_agent
        from zoo.algorithms.agent_files import agent_files

        if kept := {"policy", *vars(self.config)}.intersection(exclude):
            raise ZooError(f"save(exclude=…): an agent always holds its {', '.join(kept)}")
        return write_agent(path, agent_files(self, card or {}))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what `save` writes: unpickled it is the agent without its environments."""
        from zoo.algorithms.agent_files import reduced

        return reduced(self)

    @classmethod
    @refuse_unknown_arguments
    def load(cls, path: str | Path, env: Any = None, *, trust: bool = False, **options: Any) -> Self:
        """Rebuild an agent from its folder or zip.

        ``options`` are the constructor's (n_envs, seed, device, …), and new values of hyperparameters. No
        code from the files is run; see `zoo.agents.trust`. Without ``env`` the agent can act, not learn.
        Raises `ZooError` for missing or damaged files, unknown options, and spaces other than ``env``'s.
        """
        from zoo.agents.agent_folder import read_agent

        return cls.from_files(read_agent(path, trust=trust, own_env=env is not None), env, **options)

    @classmethod
    def from_files(
        cls, files: AgentFiles, env: Any = None, *, n_envs: int | None = None, **options: Any
    ) -> Self:
        """Rebuild an agent from what `read_agent` returned."""
        from zoo.algorithms.agent_files import constructor_arguments, restore

        trained = files.config["algo"]
        changed = {name for name, value in options.items() if trained.get(name, value) != value}
        agent = cls(**constructor_arguments(files, cls, options))
        restore(agent, files)
        if n_envs is not None:
            agent.n_envs = n_envs
        agent._apply_changed(changed)
        if env is not None:
            agent.set_env(env, n_envs=n_envs)
        return agent

    def _apply_changed(self, changed: Collection[str]) -> None:
        """Give what was loaded the new values of these hyperparameters."""
        normalize = None if self.env_config is None else normalize_config(self.env_config)
        if "gamma" in changed and self.normalizer is not None and normalize and normalize.gamma is None:
            self.normalizer.gamma = self.config.gamma

    # -- exact resume -----------------------------------------------------------------------------------

    def _parts(self) -> dict[str, Any]:
        """Return the parts with a state of their own, but for the environments."""
        return {
            "tensors": Tensors(self.runner.state, self.policy),
            "runtime": self.runtime,
            "scalars": self.scalars,
            "recent_episodes": self.recent_episodes,
            "counts": Attributes(self, COUNTS),
            "generators": self.generators,
        }

    def state(self) -> dict[str, Any]:
        """Return everything that the rest of the run depends on, between two updates: arrays and values.

        What a replay buffer stores is not copied: write it, or copy it, before learning goes on. Of several
        workers this is one's own.
        """
        self.distributed.gather_episodes()
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
        self._ended_by = self._restored_stop_reason = state["ended_by"]
