"""What all algorithms share: spaces, policy, randomness, the training loop, saving, and exact resume."""

from __future__ import annotations

import dataclasses
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn
from typing_extensions import Self

from zoo.agents.files import AgentFiles, check_tensors, read_agent, write_agent
from zoo.algorithms.agent_files import files_of, rebuilt
from zoo.algorithms.callback import Callback, CallbackSchedule
from zoo.algorithms.scalar_means import ScalarMeans
from zoo.config.fields import build
from zoo.envs.config import EnvConfig
from zoo.envs.monitor import EpisodeRecord
from zoo.envs.normalize import Normalizer
from zoo.envs.spaces import describe, spaces_differ
from zoo.envs.stepper import EnvStepper, Step
from zoo.envs.vec_env import make_vec_env
from zoo.errors import ZooError
from zoo.memory.columns import Column, transform
from zoo.optim.program import UpdateProgram
from zoo.optim.runtime import Runtime
from zoo.optim.trainable import State
from zoo.policies.config import PolicyConfig, policy_preset

Config = TypeVar("Config")
Array = np.ndarray


class Algorithm(ABC, Generic[Config]):
    """Learns a policy by alternating `collect` and `update`.

    ``env`` is an id, an environment, a vector environment, or a function that makes one. Hyperparameters
    are given by name, or as a whole in ``config``. ``compile`` and ``threads`` may be ``"auto"``:
    see `zoo.optim.runtime`. One generator, made from ``seed``, is the run's only source of randomness.

    Raises `ZooError` for a hyperparameter, space or policy that does not fit.
    """

    name: ClassVar[str]
    config_class: ClassVar[type[Any]]
    supported_actions: ClassVar[tuple[type[spaces.Space[Any]], ...]]
    compiling_saves: ClassVar[float]
    """Seconds by which a compiled gradient step is shorter, for small networks on two cores (measured)."""

    config: Config
    policy: nn.Module

    def __init__(
        self,
        policy: str | PolicyConfig | Mapping[str, Any] = "MlpPolicy",
        env: str | EnvConfig | gym.Env[Any, Any] | gym.vector.VectorEnv[Any, Any, Any] | Any = None,
        *,
        n_envs: int = 1,
        seed: int | None = None,
        device: str = "auto",
        compile: bool | str = "auto",
        threads: int | str = "auto",
        config: Config | None = None,
        observation_space: spaces.Space[Any] | None = None,
        action_space: spaces.Space[Any] | None = None,
        **hyperparameters: Any,
    ) -> None:
        if config is None:
            config = build(self.config_class, hyperparameters, self.name)
        elif hyperparameters:
            raise ZooError("give hyperparameters by name or as `config`, not both")
        self.config = config
        self.policy_config = _policy_config(policy)
        self.seed = int(np.random.SeedSequence().entropy % 2**31) if seed is None else int(seed)  # type: ignore[operator]
        self.rng = np.random.default_rng(self.seed)
        self.runtime = Runtime(device=device, compile=compile, threads=threads)
        self.device = self.runtime.device
        self.env_config: EnvConfig | None = None
        self.envs: EnvStepper | None = None
        self.normalizer: Normalizer | None = None
        if env is not None:
            self._take_env(*self._stepper(env, n_envs))
        elif observation_space is not None and action_space is not None:
            self.n_envs = n_envs
            self.observation_space, self.action_space = observation_space, action_space
        else:
            raise ZooError(f"{type(self).__name__} needs an env")
        if not isinstance(self.action_space, self.supported_actions):
            names = " or ".join(space.__name__ for space in self.supported_actions)
            raise ZooError(
                f"{self.name} acts in {names} spaces, but the env's actions are {describe(self.action_space)}"
                f"{self._suggestion()}"
            )
        self.num_timesteps = 0
        self.total_timesteps = 0
        self.n_updates = 0
        self.n_episodes = 0
        self.recent_episodes: deque[EpisodeRecord] = deque(maxlen=100)
        self.timings = {"env": 0.0, "policy": 0.0, "update": 0.0, "evaluation": 0.0}
        self.stop_reason: str | None = None
        self._observations: Column | None = None
        self._env_seeds: list[int] = []
        self._scalars = ScalarMeans()
        self._schedule = CallbackSchedule([], 0)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(self.rng.integers(2**31)))
            self.policy = self._make_policy().to(self.device)
        self.program = UpdateProgram(self._update_step, self._make_state(), compiled=False)
        if env is not None:
            self._make_memory()

    # -- what an algorithm is made of -------------------------------------------------------------------

    @abstractmethod
    def _make_policy(self) -> nn.Module:
        """Return the networks."""

    @abstractmethod
    def _make_state(self) -> State:
        """Return the tensors that updates replace: parameters, targets, optimizer slots."""

    @abstractmethod
    def _make_memory(self) -> None:
        """Allocate what `collect` fills."""

    @abstractmethod
    def _update_step(self, state: State, shared: Any, inputs: Any) -> tuple[State, dict[str, Tensor]]:
        """Take one gradient step: see `zoo.optim.program`."""

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
    def _act(self, observations: Column, *, deterministic: bool) -> Array:
        """Return env-ready actions for normalised observations (batch, …)."""

    # -- training ---------------------------------------------------------------------------------------

    def learn(
        self,
        total_timesteps: int,
        callback: Callback | Iterable[Callback] | None = None,
        *,
        reset_num_timesteps: bool = True,
    ) -> Self:
        """Train for ``total_timesteps`` environment steps, by whole updates, and return the algorithm.

        With ``reset_num_timesteps=False`` the steps come on top of those taken so far.
        """
        callbacks = [callback] if isinstance(callback, Callback) else list(callback or ())
        if self.envs is None:
            raise ZooError("this agent has no env to learn in; give it one with set_env()")
        if reset_num_timesteps:
            self.num_timesteps = 0
        self.total_timesteps = self.num_timesteps + int(total_timesteps)
        self.stop_reason = None
        self.program.compiled = self.runtime.prepare(
            self.gradient_steps_in(self.total_timesteps) * self.compiling_saves,
            self._multiplications_per_step(),
        )
        if self._observations is None:
            self._reset_envs(self._draw_env_seeds())
        self._schedule = CallbackSchedule(callbacks, self.num_timesteps)
        for each in self._schedule.callbacks:
            each.on_training_start(self)
        next_due = self._schedule.next_due
        while self.num_timesteps < self.total_timesteps and self.stop_reason is None:
            self.collect()
            started = time.perf_counter()
            self.update()
            self.timings["update"] += time.perf_counter() - started
            if self.num_timesteps >= next_due:
                self._schedule.call_due(self)
                next_due = self._schedule.next_due
        for each in self._schedule.callbacks:
            each.on_training_end(self)
        return self

    def request_stop(self, reason: str) -> None:
        """End `learn` after the update that is under way."""
        self.stop_reason = reason

    @property
    def progress(self) -> float:
        """Fraction of all environment steps that is done, from 0 to 1."""
        return min(1.0, self.num_timesteps / self.total_timesteps) if self.total_timesteps else 0.0

    def record(self, name: str, value: float | Tensor | Array) -> None:
        """Add a scalar to the mean that the next `read_metrics` returns under ``name``."""
        self._scalars.record(name, value)

    def read_metrics(self) -> dict[str, float]:
        """Return the means of all recorded scalars since the last call."""
        return self._scalars.read(self.program.metric_names)

    def _run_program(self, shared: Any, inputs: Any) -> None:
        """Take all gradient steps of an update and record their metrics."""
        metrics, n_steps = self.program.run(shared, inputs)
        self.record("train", metrics)
        self.n_updates += n_steps

    def _count_episodes(self, step: Step) -> None:
        for episode in step.episodes:
            self.n_episodes += 1
            self.recent_episodes.append(episode)
            for callback in self._schedule.watching_episodes:
                callback.on_episode(self, episode)

    def _tensors(self, column: Column) -> Any:
        """Return arrays as tensors on this algorithm's device, without a copy on a CPU."""
        return transform(lambda array: torch.from_numpy(array).to(self.device), column)

    def _normalized(self, observations: Column) -> Column:
        return (
            observations if self.normalizer is None else self.normalizer.normalize_observations(observations)
        )

    def _multiplications_per_step(self) -> float:
        """Return about how many multiplications the forward passes of one gradient step take."""
        return float(sum(parameter.numel() for parameter in self.policy.parameters())) * self._batch_size()

    @abstractmethod
    def _batch_size(self) -> int:
        """Return the number of samples in one gradient step."""

    # -- environments -----------------------------------------------------------------------------------

    def get_env(self) -> gym.vector.VectorEnv[Any, Any, Any] | None:
        """Return the vector environment that the algorithm learns in."""
        return None if self.envs is None else self.envs.env

    def set_env(self, env: Any, *, n_envs: int = 1) -> None:
        """Learn in another environment from now on. Raises `ZooError` if its spaces differ."""
        config, stepper = self._stepper(env, n_envs)
        for what, old, new in (
            ("observations", self.observation_space, stepper.observation_space),
            ("actions", self.action_space, stepper.action_space),
        ):
            difference = spaces_differ(old, new)
            if difference is not None:
                raise ZooError(f"the env's {what} differ from the agent's: {difference}")
        if self.normalizer is not None:
            stepper.normalizer = self.normalizer
        self._take_env(config, stepper)
        self._observations = None
        self._make_memory()

    def get_vec_normalize_env(self) -> Normalizer | None:
        """Return the running statistics that observations and rewards are normalised with, if any."""
        return self.normalizer

    def barrier(self) -> None:
        """Reset the environments with seeds drawn from the run's generator.

        Everything that goes on from here depends only on what `checkpoint` holds: the episodes under way
        are cut (bootstrapped as truncated, not counted), and no state of an environment is left over.
        """
        self._cut_episodes()
        self._reset_envs(self._draw_env_seeds())

    def _cut_episodes(self) -> None:
        """Mark the episodes under way as ended in the memory, where it reaches over updates."""

    def _stepper(self, env: Any, n_envs: int) -> tuple[EnvConfig | None, EnvStepper]:
        """Return what steps ``env``, and its config where that is known."""
        if isinstance(env, EnvStepper):
            return None, env
        if isinstance(env, gym.vector.VectorEnv):
            return None, EnvStepper(env)
        if isinstance(env, str):
            env = EnvConfig(id=env)
        made = make_vec_env(env, n_envs, gamma=float(getattr(self.config, "gamma", 0.99)))
        return env if isinstance(env, EnvConfig) else None, EnvStepper(made)

    def _take_env(self, config: EnvConfig | None, stepper: EnvStepper) -> None:
        if config is not None:
            self.env_config = config
        self.envs = stepper
        self.n_envs = stepper.num_envs
        self.normalizer = stepper.normalizer
        self.observation_space, self.action_space = stepper.observation_space, stepper.action_space

    def _draw_env_seeds(self) -> list[int]:
        return [int(seed) for seed in self.rng.integers(2**31, size=self.n_envs)]

    def _reset_envs(self, seeds: list[int], *, update_statistics: bool = True) -> None:
        assert self.envs is not None
        self._env_seeds = seeds
        observations = self.envs.reset(seeds)
        if self.normalizer is not None and update_statistics:
            self.normalizer.update_observations(observations)
        self._observations = observations

    # -- acting -----------------------------------------------------------------------------------------

    def predict(
        self,
        observations: Column,
        state: Any = None,
        episode_start: Array | None = None,
        action_masks: Array | None = None,
        deterministic: bool = True,
    ) -> tuple[Array, Any]:
        """Return actions that the environment takes, and the policy's next state (None without memory).

        ``observations`` are raw, of one environment or a batch (n, …); so are the actions.
        """
        batch, is_single = self._batched(observations)
        actions = self._act(self._normalized(batch), deterministic=deterministic)
        return (actions[0] if is_single else actions), state

    def _batched(self, observations: Column) -> tuple[Column, bool]:
        space = self.observation_space
        name, part, values = "observations", space, observations
        if isinstance(space, spaces.Dict):
            if not isinstance(observations, Mapping) or space.spaces.keys() - observations.keys():
                raise ZooError(f"expected a dictionary of observations: {describe(space)}")
            name, part = next(iter(space.spaces.items()))
            values = observations[name]
        shape, found = tuple(part.shape or ()), np.shape(values)
        is_single = found == shape
        if not is_single and found[1:] != shape:
            raise ZooError(f"`{name}` of shape {found} are neither one of shape {shape} nor a batch of them")
        arrays = transform(lambda values: np.asarray(values, order="C"), observations)
        return (transform(lambda array: array[None], arrays) if is_single else arrays), is_single

    # -- parameters and files ---------------------------------------------------------------------------

    def get_parameters(self) -> dict[str, Array]:
        """Return copies of the policy's parameters by name."""
        return {name: value.detach().cpu().numpy().copy() for name, value in self.policy.state_dict().items()}

    def set_parameters(self, parameters: Mapping[str, Array], exact_match: bool = True) -> None:
        """Overwrite the policy's parameters; targets follow, optimizers keep their state.

        With ``exact_match`` every parameter must be there. Raises `ZooError` for missing, unknown or
        misshapen ones.
        """
        own = self.policy.state_dict()
        expected = {name: tuple(value.shape) for name, value in own.items()}
        if not exact_match:
            expected = {name: shape for name, shape in expected.items() if name in parameters}
        check_tensors(expected, parameters)
        with torch.no_grad():
            for name in expected:
                own[name].copy_(torch.as_tensor(np.asarray(parameters[name])))
        self._copy_to_targets()

    def _copy_to_targets(self) -> None:
        """Make target networks equal to the online ones."""

    def save(self, path: str | Path, *, card: Mapping[str, Any] | None = None) -> Path:
        """Write the agent to a folder, or to a zip if ``path`` ends so; whole or not at all."""
        return write_agent(path, files_of(self, card or {}))

    @classmethod
    def load(cls, path: str | Path, env: Any = None, *, trust: bool = False, **options: Any) -> Self:
        """Rebuild an agent from its folder or zip; ``options`` are the constructor's (seed, device, …).

        Nothing from the files is executed; see `zoo.agents.trust`. Without ``env`` the agent can act, not
        learn. Raises `ZooError` for missing or damaged files, and for spaces that differ from ``env``'s.
        """
        return cls.from_files(read_agent(path, trust=trust, own_env=env is not None), env, **options)

    @classmethod
    def from_files(cls, files: AgentFiles, env: Any = None, **options: Any) -> Self:
        """Rebuild an agent from what `read_agent` returned."""
        return rebuilt(cls, files, env, options)

    # -- exact resume -----------------------------------------------------------------------------------

    def checkpoint(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Return everything that the rest of the run depends on, right after a `barrier`: arrays, values."""
        arrays = {
            f"state/{name}": tensor.detach().cpu().numpy() for name, tensor in self.program.state.items()
        }
        values: dict[str, Any] = {
            "rng": self.rng.bit_generator.state,
            "env_seeds": self._env_seeds,
            "num_timesteps": self.num_timesteps,
            "total_timesteps": self.total_timesteps,
            "n_updates": self.n_updates,
            "n_episodes": self.n_episodes,
            "recent_episodes": [dataclasses.asdict(episode) for episode in self.recent_episodes],
            "timings": self.timings,
            "scalars": self._scalars.state(),
            "metric_names": self.program.metric_names,
            "runtime": self.runtime.resolved(),
            "seed": self.seed,
        }
        if self.normalizer is not None:
            statistics = self.normalizer.state()
            values["normalizer"] = statistics["values"]
            arrays.update({f"normalizer/{name}": array for name, array in statistics["arrays"].items()})
        return arrays, values

    def restore(self, arrays: Mapping[str, Array], values: Mapping[str, Any]) -> None:
        """Go back to the barrier of this checkpoint. Raises `ZooError` if it does not fit the algorithm."""
        expected = {f"state/{name}": tuple(tensor.shape) for name, tensor in self.program.state.items()}
        check_tensors(expected, {name: array for name, array in arrays.items() if name.startswith("state/")})
        with torch.no_grad():
            for name, tensor in self.program.state.items():
                tensor.copy_(torch.from_numpy(np.array(arrays[f"state/{name}"])))
        if self.normalizer is not None:
            statistics = {
                name.removeprefix("normalizer/"): array
                for name, array in arrays.items()
                if name.startswith("normalizer/")
            }
            self.normalizer.load_state({"arrays": statistics, "values": values["normalizer"]})
        self.num_timesteps = values["num_timesteps"]
        self.total_timesteps = values["total_timesteps"]
        self.n_updates = values["n_updates"]
        self.n_episodes = values["n_episodes"]
        self.recent_episodes.clear()
        self.recent_episodes.extend(EpisodeRecord(**episode) for episode in values["recent_episodes"])
        self.timings.update(values["timings"])
        self._scalars.load_state(values["scalars"], self.device)
        self.program.metric_names = list(values["metric_names"])
        self.seed = values["seed"]
        self.runtime.restore(values["runtime"])
        self._reset_envs(list(values["env_seeds"]), update_statistics=False)
        self.rng.bit_generator.state = values["rng"]

    def _suggestion(self) -> str:
        return ""


def _policy_config(policy: str | PolicyConfig | Mapping[str, Any]) -> PolicyConfig:
    if isinstance(policy, PolicyConfig):
        return policy
    return policy_preset(policy) if isinstance(policy, str) else build(PolicyConfig, policy, "policy")
