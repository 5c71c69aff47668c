"""A policy that acts: asked for actions, given parameters, saved and loaded. Every algorithm is one."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import nn
from typing_extensions import Never, Self

from zoo.agents.agent_folder import AgentFiles, MisfitError, check_tensors, read_agent, write_agent
from zoo.algorithms.arguments import check_predict, elsewhere, refuse_policy_alone
from zoo.algorithms.constructor_help import described, signature_of
from zoo.algorithms.given_masks import rows_of_masks, tell_of_missing_masks
from zoo.algorithms.interaction import Seen
from zoo.algorithms.policy_choice import Policy, policy_config
from zoo.algorithms.registry import acting_in
from zoo.algorithms.resuming import Generators
from zoo.algorithms.saving import agent_config, constructor_arguments, env_of
from zoo.algorithms.sde_options import check_sde_options
from zoo.algorithms.sequences import check_recurrence, check_state
from zoo.config.aliases import check_call
from zoo.envs.adapter import EnvStepper
from zoo.envs.config import EnvConfig, normalize_config
from zoo.envs.normalize import Normalizer
from zoo.envs.spaces import describe, flat_parts, row
from zoo.envs.wrappers import MASK_KEY
from zoo.errors import ZooError
from zoo.memory.columns import Column, transform
from zoo.memory.config import MemoryConfig
from zoo.optim.runtime import Runtime, computing_with
from zoo.policies.acting import ActingPolicy
from zoo.policies.actions import make_codec
from zoo.policies.exploration import n_rows
from zoo.policies.own_policy import Modes

Config = TypeVar("Config")
Array = np.ndarray


class Agent(ABC, Generic[Config]):
    """A policy for some spaces, with the statistics that its observations are normalised with."""

    name: ClassVar[str]
    config_class: ClassVar[type[Any]]
    supported_actions: ClassVar[tuple[type[spaces.Space[Any]], ...]]
    scales_actions: ClassVar[bool] = False
    """Whether Box actions are stored in [−1, 1], and scaled to the environment's bounds on the way there."""
    has_replay: ClassVar[bool] = False
    """Whether it draws from a replay memory, so that there is a ``memory`` to configure."""

    learns_from_experts: ClassVar[bool] = False
    """Whether it learns from expert data, so that there is a ``dataset`` to give."""

    has_recurrence: ClassVar[bool] = False
    """Whether its policies may have a memory."""

    of_preset: ClassVar[str | None] = None
    """The preset that a class stands for, which has other defaults, or another memory, than its algorithm."""

    usual_policy: ClassVar[str] = "MlpPolicy"
    """What `zoo train` gives it where nothing else is chosen."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if getattr(cls, "config_class", None) is not None:
            cls.show_hyperparameters()

    @classmethod
    def show_hyperparameters(cls) -> None:
        """Let `help` show those of `config_class`."""
        cls.__signature__ = signature_of(cls, cls.config_class)  # type: ignore[attr-defined]
        cls.__doc__ = f"{inspect.cleandoc(cls.__doc__ or cls.__name__)}\n\n{described(cls.config_class)}"

    if not TYPE_CHECKING:  # which know the constructors

        def __new__(cls, *arguments: Any, **options: Any) -> Self:
            """Answer arguments as other libraries' models have them."""
            check_call(cls, arguments, options)
            return super().__new__(cls)

    policy: nn.Module
    memory_config: MemoryConfig | None = None

    def __init__(
        self,
        config: Config,
        policy: Policy,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        seed: int,
        runtime: Runtime,
    ) -> None:
        self.config = config
        self.policy_config = policy_config(policy, observation_space)
        self.observation_space, self.action_space = observation_space, action_space
        if not isinstance(action_space, self.supported_actions):
            names = " or ".join(space.__name__ for space in self.supported_actions)
            raise ZooError(
                f"{self.name} acts in {names} spaces, but the env's actions are {describe(action_space)}"
                f"{acting_in(action_space)}"
            )
        self.seed = seed
        self.generators = Generators(seed)
        self.rng, self.predict_rng = self.generators.rng, self.generators.predict_rng
        self.runtime = runtime
        self.device = runtime.device
        self.n_envs = 1
        self.num_timesteps = 0
        self.preset = self.of_preset  # by which the algorithm was asked for, if it was by one
        self.masks_actions = False  # whether it learned to choose among valid actions only
        self._told_of_masks = False
        self.env_config: EnvConfig | None = None
        self.envs: EnvStepper | None = None
        self.normalizer: Normalizer | None = None
        check_sde_options(
            *(self.name, config, self.policy_config, action_space), squashes=self.scales_actions
        )
        check_recurrence(self.name, self.policy_config, remembers=self.has_recurrence)
        self.codec = make_codec(action_space, scaled=self._is_scaled())
        with self.generators.torch_of_this_run(), computing_with(threads=1):
            self.policy = self._make_policy().to(self.device)
        if not hasattr(self.policy, "predict"):
            self.policy.predict = refuse_policy_alone  # type: ignore[assignment]
        self.modes = Modes(self.policy)
        runtime.stay_eager_for(self.policy)

    acting: ActingPolicy

    def _is_scaled(self) -> bool:
        """Whether this agent's Box actions are stored in [−1, 1]."""
        return self.scales_actions or bool(self.policy_config.squash_output)

    @property
    def spaces(self) -> tuple[spaces.Space[Any], spaces.Space[Any]]:
        """The spaces of observations and of actions."""
        return self.observation_space, self.action_space

    @abstractmethod
    def _make_policy(self) -> nn.Module:
        """Return the networks."""

    def get_env(self) -> gym.vector.VectorEnv[Any, Any, Any] | None:
        """Return the vector environment that the algorithm learns in."""
        return None if self.envs is None else self.envs.env

    def get_vec_normalize_env(self) -> Normalizer | None:
        """Return the running statistics that observations and rewards are normalised with, if any."""
        return self.normalizer

    if not TYPE_CHECKING:  # to type checkers there is nothing but what there is

        def __getattr__(self, name: str) -> Any:
            """Return a hyperparameter; for what else models have elsewhere, say where it is."""
            config = vars(self).get("config")
            if config is not None and name in vars(config):
                return vars(config)[name]
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'{elsewhere(name)}")

    # -- acting -----------------------------------------------------------------------------------------

    def predict(
        self,
        observations: Column = None,
        state: Any = None,
        episode_start: Array | None = None,
        deterministic: bool = True,
        *,
        action_masks: Any = None,
        **unknown: Never,
    ) -> tuple[Any, Any]:
        """Return actions that the environment takes, and the policy's next state (None without memory).

        ``observations`` are raw, of one environment or a batch (n, …); so are the actions. Those for a Tuple
        or Dict space are nested as it is, for a batch with arrays (n, …) in them. A mask has any form that an
        environment may give; those of a batch are an array (n, size), or n such masks. Random actions come
        from a generator of their own, so that asking for them changes nothing about a training.
        """
        check_predict(observations, deterministic, unknown)
        seen, is_single = self._asked(observations, state, episode_start, action_masks)
        with self._drawing_apart():
            actions, state = self._act(seen, state, deterministic=deterministic)
        env_actions = self.codec.to_env(actions)
        return (row(env_actions, 0) if is_single else env_actions), state

    def _act(self, seen: Seen, state: Any, *, deterministic: bool) -> tuple[Column, Any]:
        """Return actions as they are stored."""
        noise = None if deterministic else self.acting.head.noise(self.predict_rng, (n_rows(seen),))
        return self.acting.act(seen, noise, state)

    def _drawing_apart(self) -> AbstractContextManager[None]:
        """Within the block, what a policy draws by itself disturbs no training; in NumPy none does."""
        return nullcontext() if self.acting.uses_numpy else self.generators.torch_for_predicting()

    def action_probability(
        self,
        observations: Column,
        state: Any = None,
        episode_start: Array | None = None,
        *,
        action_masks: Any = None,
    ) -> Any:
        """Return probabilities (n, actions) of Discrete actions, mean and standard deviation of Box.

        It is asked as `predict` is; a policy with a memory answers from ``state``, as returned by `predict`.
        MultiBinary gives the probability of each bit, MultiDiscrete a list of probabilities, one array for
        each choice. Action values are shown as their softmax, squashed actions before they are squashed.
        """
        seen, is_single = self._asked(observations, state, episode_start, action_masks)
        with self._drawing_apart():
            parameters, _ = self.acting.parameters(seen, state)
        return self.acting.head.describe(parameters[0] if is_single else parameters)

    def _asked(
        self, observations: Column, state: Any, episode_start: Array | None, action_masks: Any
    ) -> tuple[Seen, bool]:
        """Return what `_seen` does, and episode starts. Raises `ZooError` for a state that does not fit."""
        if action_masks is None and self.masks_actions and isinstance(observations, Mapping):
            action_masks = observations.get(MASK_KEY)
        if action_masks is None and self.masks_actions and not self._told_of_masks:
            self._told_of_masks = True
            tell_of_missing_masks()
        seen, is_single = self._seen(observations, action_masks)
        if episode_start is not None:
            starts = np.asarray(episode_start, np.bool_)
            seen["episode_starts"] = starts if starts.ndim else starts[None]
        check_state(self.acting.state_size, seen, state)
        return seen, is_single

    def _seen(self, observations: Column, action_masks: Any) -> tuple[Seen, bool]:
        """Return what the policy is shown of raw observations, and whether they were of one environment."""
        space = self.observation_space
        is_flat_tuple = isinstance(space, spaces.Dict) and any(key[:2] in ("0", "0/") for key in space)
        if isinstance(space, spaces.Dict) and (is_flat_tuple or isinstance(observations, Mapping)):
            observations = dict(flat_parts(space, observations))
        if isinstance(observations, tuple) and len(observations) == 2 and isinstance(observations[1], dict):
            raise ZooError(
                "these are observations and infos, as reset() returns them; predict takes the first of both"
            )
        name, part, values = "observations", space, observations
        if isinstance(space, spaces.Dict):
            if not isinstance(observations, Mapping) or space.spaces.keys() - observations.keys():
                raise ZooError(f"expected a dictionary of observations: {describe(space)}")
            observations = {key: observations[key] for key in space.spaces}
            name, part = next(iter(space.spaces.items()))
            values = observations[name]
        shape, found = tuple(part.shape or ()), _shape_of(values, name)
        is_single = found == shape
        if not is_single and found[1:] != shape:
            raise ZooError(f"`{name}` of shape {found} are neither one of shape {shape} nor a batch of them")
        batch = transform(lambda each: np.asarray(each, order="C"), observations)
        if is_single:
            batch = transform(lambda array: array[None], batch)
        if self.normalizer is not None:
            batch = self.normalizer.normalize_observations(batch)
        seen: Seen = {"observations": batch}
        if action_masks is not None:
            masks, size = [action_masks] if is_single else action_masks, self.acting.head.mask_size
            seen["action_masks"] = rows_of_masks(masks, n_rows(seen), self.action_space, size)
        return seen, is_single

    def _tensors(self, column: Column) -> Any:
        """Return arrays as tensors on this algorithm's device, without a copy on a CPU."""
        if self.device.type == "cpu":
            return transform(torch.from_numpy, column)
        return transform(lambda array: torch.from_numpy(array).to(self.device), column)

    # -- parameters and files ---------------------------------------------------------------------------

    def get_parameters(self) -> dict[str, Array]:
        """Return copies of the policy's parameters by name."""
        return {name: value.detach().cpu().numpy().copy() for name, value in self.policy.state_dict().items()}

    def set_parameters(self, parameters: Mapping[str, Array], exact_match: bool = True) -> None:
        """Overwrite the policy's parameters; targets follow, optimizers keep their state.

        With ``exact_match`` every parameter must be there. Raises `ZooError` for missing, unknown or
        misshapen ones.
        """
        self._check_parameters(parameters, exact_match=exact_match)
        own = self.policy.state_dict()
        with torch.no_grad():
            for name, values in parameters.items():
                own[name].copy_(torch.as_tensor(np.asarray(values)))
        self.copy_to_targets()

    def _check_parameters(self, parameters: Mapping[str, Array], *, exact_match: bool) -> None:
        expected = {name: tuple(value.shape) for name, value in self.policy.state_dict().items()}
        if not exact_match:
            expected = {name: shape for name, shape in expected.items() if name in parameters}
        check_tensors(expected, parameters)

    def copy_to_targets(self) -> None:
        """Make target networks equal to the online ones."""

    def save(self, path: str | Path, *, card: Mapping[str, Any] | None = None) -> Path:
        """Write the agent to a folder, or to a zip if ``path`` ends so; whole or not at all."""
        return write_agent(path, self._as_files(card or {}))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what `save` writes: whoever unpickles it gets the agent without its environments."""
        runtime = self.runtime
        options = {
            "seed": self.seed,
            "device": str(self.device),
            "compile": runtime.compile,
            "threads": runtime.threads,
            "precision": runtime.precision,
        }
        return _unpickled, (type(self), self._as_files({}), options)

    def _as_files(self, card: Mapping[str, Any]) -> AgentFiles:
        config = agent_config(
            *(self.name, self.config, self.policy_config, self.env_config, self.n_envs),
            *(self.observation_space, self.action_space, self.memory_config, self.preset),
            masks_actions=self.masks_actions,
        )
        full_card = {
            "algo": self.preset or self.name,
            "env": None if self.env_config is None else self.env_config.id,
            "seed": self.seed,
            "timesteps": self.num_timesteps,
            "precision": self.runtime.precision,
            **card,
        }
        statistics = None if self.normalizer is None else self.normalizer.state()
        normalization = None if statistics is None else (statistics["arrays"], statistics["values"])
        return AgentFiles(config, self.get_parameters(), normalization, full_card)

    @classmethod
    def load(cls, path: str | Path, env: Any = None, *, trust: bool = False, **options: Any) -> Self:
        """Rebuild an agent from its folder or zip.

        ``options`` are the constructor's (n_envs, seed, device, …), and hyperparameters that shall be others
        from now on. Nothing from the files is executed; see `zoo.agents.trust`. Without ``env`` the agent can
        act, not learn. Raises `ZooError` for missing or damaged files, for options that there are not, and
        for spaces that differ from ``env``'s.
        """
        return cls.from_files(read_agent(path, trust=trust, own_env=env is not None), env, **options)

    @classmethod
    def from_files(
        cls, files: AgentFiles, env: Any = None, *, n_envs: int | None = None, **options: Any
    ) -> Self:
        """Rebuild an agent from what `read_agent` returned."""
        if n_envs is not None and n_envs < 1:
            raise ZooError(f"n_envs={n_envs}: at least one environment is needed")
        arguments = constructor_arguments(
            files, cls.name, cls.config_class, options, has_replay=cls.has_replay
        )
        trained = files.config["algo"]
        changed = {name for name, value in options.items() if trained.get(name, value) != value}
        try:
            agent = cls(**arguments)
            agent.set_parameters(files.tensors)
        except MisfitError as error:
            others = {name: (options[name], trained[name]) for name in changed}
            raise _other_networks(others) or error from error
        agent.n_envs = files.config.get("n_envs", 1) if n_envs is None else n_envs
        agent.num_timesteps = int(files.card.get("timesteps") or 0)
        agent.preset, agent.env_config = trained.get("preset"), env_of(files)
        agent.masks_actions = files.config.get("masks_actions") is True
        if files.normalization is not None:
            arrays, values = files.normalization
            agent.normalizer = Normalizer.from_state({"arrays": arrays, "values": values})
        agent._overrule(changed)
        if env is not None:
            agent.set_env(env, n_envs=n_envs)
        return agent

    def _overrule(self, changed: Collection[str]) -> None:
        """Let these hyperparameters, which are others now, overrule what the files held of them."""
        normalize = None if self.env_config is None else normalize_config(self.env_config)
        if "gamma" in changed and self.normalizer is not None and normalize and normalize.gamma is None:
            self.normalizer.gamma = self.config.gamma  # type: ignore[attr-defined]

    @abstractmethod
    def set_env(self, env: Any, *, n_envs: int | None = None) -> None:
        """Learn in this environment from now on."""


def _unpickled(agent_class: type[Agent[Any]], files: AgentFiles, options: Mapping[str, Any]) -> Agent[Any]:
    return agent_class.from_files(files, **options)


def _shape_of(values: Any, name: str) -> tuple[int, ...]:
    try:
        return np.shape(values)
    except ValueError as error:
        raise ZooError(f"`{name}` are parts of several shapes, not one array: {error}") from error


def _other_networks(changed: Mapping[str, tuple[Any, Any]]) -> ZooError | None:
    """Return the error for hyperparameters, new and old, with which an agent's parameters fit no more."""
    if not changed:
        return None
    others = ", ".join(f"{name}={new} (the agent has {old})" for name, (new, old) in sorted(changed.items()))
    return ZooError(f"the agent's parameters fit other networks than those with {others}; leave that out")
