"""A policy that acts: asked for actions, given parameters, saved and loaded. Every algorithm is one."""

from __future__ import annotations

import dataclasses
import inspect
import warnings
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
from typing_extensions import Self

from zoo.agents.agent_folder import FORMAT, AgentFiles, check_tensors, read_agent, write_agent
from zoo.algorithms.arguments import (
    Policy,
    check_recurrence,
    check_sde_options,
    check_state,
    described,
    elsewhere,
    policy_config,
    signature_of,
)
from zoo.algorithms.collector import PolicyInput
from zoo.algorithms.registry import acting_in
from zoo.algorithms.state_parts import Generators
from zoo.buffers.arrays import Arrays, transform
from zoo.buffers.config import ReplayConfig
from zoo.config.aliases import unknown_key
from zoo.config.environment_values import resolved_values
from zoo.config.fields import build, variant_of
from zoo.config.schema import ALGO_LABELS
from zoo.envs.adapter import VecEnvAdapter
from zoo.envs.config import EnvConfig, normalize_config
from zoo.envs.masks import flat_mask
from zoo.envs.normalize import Normalizer
from zoo.envs.spaces import describe, flat_parts, row, space_from_dict, space_to_dict
from zoo.envs.wrappers import MASK_KEY
from zoo.errors import ZooError, ZooWarning
from zoo.optim.runtime import Runtime, computing_with
from zoo.policies.acting import ActingPolicy
from zoo.policies.actions import make_action_adapter
from zoo.policies.config import PolicyConfig
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
    """Whether it draws from a replay buffer, so that there is a ``replay`` to configure."""

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

    policy: nn.Module
    replay_config: ReplayConfig | None = None

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
        self.envs: VecEnvAdapter | None = None
        self.normalizer: Normalizer | None = None
        check_sde_options(
            *(self.name, config, self.policy_config, action_space), squashes=self.scales_actions
        )
        check_recurrence(self.name, self.policy_config, is_recurrent=self.has_recurrence)
        self.action_adapter = make_action_adapter(action_space, scaled=self._is_scaled())
        with self.generators.torch_of_this_run(), computing_with(threads=1):
            self.policy = self._make_policy().to(self.device)
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
        observations: Arrays,
        state: Any = None,
        episode_start: Array | None = None,
        deterministic: bool = True,
        *,
        action_masks: Any = None,
    ) -> tuple[Any, Any]:
        """Return actions that the environment takes, and the policy's next state (None without replay).

        ``observations`` are raw, of one environment or a batch (n, …); so are the actions. Those for a Tuple
        or Dict space are nested as it is, for a batch with arrays (n, …) in them. A mask has any form that an
        environment may give; those of a batch are an array (n, size), or n such masks. Random actions come
        from a generator of their own, so that asking for them changes nothing about a training.
        """
        seen, is_single = self._asked(observations, state, episode_start, action_masks)
        with self._drawing_apart():
            actions, state = self._act(seen, state, deterministic=deterministic)
        env_actions = self.action_adapter.to_env(actions)
        return (row(env_actions, 0) if is_single else env_actions), state

    def _act(self, seen: PolicyInput, state: Any, *, deterministic: bool) -> tuple[Arrays, Any]:
        """Return actions as they are stored."""
        noise = None if deterministic else self.acting.head.noise(self.predict_rng, (n_rows(seen),))
        return self.acting.act(seen, noise, state)

    def _drawing_apart(self) -> AbstractContextManager[None]:
        """Within the block, what a policy draws by itself disturbs no training; in NumPy none does."""
        return nullcontext() if self.acting.uses_numpy else self.generators.torch_for_predicting()

    def action_probability(
        self,
        observations: Arrays,
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
        self, observations: Arrays, state: Any, episode_start: Array | None, action_masks: Any
    ) -> tuple[PolicyInput, bool]:
        """Return what `_seen` does, and episode starts. Raises `ZooError` for a state that does not fit."""
        if action_masks is None and self.masks_actions and isinstance(observations, Mapping):
            action_masks = observations.get(MASK_KEY)
        if action_masks is None and self.masks_actions and not self._told_of_masks:
            self._told_of_masks = True
            warnings.warn(
                "this agent learned to choose among valid actions only, and is asked without `action_masks`:"
                " any action may be its answer",
                ZooWarning,
                stacklevel=3,
            )
        seen, is_single = self._seen(observations, action_masks)
        if episode_start is not None:
            starts = np.asarray(episode_start, np.bool_)
            seen["episode_starts"] = starts if starts.ndim else starts[None]
        check_state(self.acting.state_size, seen, state)
        return seen, is_single

    def _seen(self, observations: Arrays, action_masks: Any) -> tuple[PolicyInput, bool]:
        """Return what the policy is shown of raw observations, and whether they were of one environment."""
        if isinstance(observations, tuple) and len(observations) == 2 and isinstance(observations[1], dict):
            raise ZooError(
                "these are observations and infos, as reset() returns them; predict takes the first of both"
            )
        space = self.observation_space
        is_flat_tuple = isinstance(space, spaces.Dict) and any(key[:2] in ("0", "0/") for key in space)
        if isinstance(space, spaces.Dict) and (is_flat_tuple or isinstance(observations, Mapping)):
            observations = dict(flat_parts(space, observations))
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
        seen: PolicyInput = {"observations": batch}
        if action_masks is not None:
            masks, size = [action_masks] if is_single else action_masks, self.acting.head.mask_size
            seen["action_masks"] = _rows_of_masks(masks, n_rows(seen), self.action_space, size)
        return seen, is_single

    def _tensors(self, column: Arrays) -> Any:
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
            *(self.observation_space, self.action_space, self.replay_config, self.preset),
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
        agent = cls(**arguments)
        agent.set_parameters(files.tensors)
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


def _rows_of_masks(action_masks: Any, n: int, action_space: spaces.Space[Any], size: int | None) -> Array:
    """Return an array of masks, or ``n`` masks in any form, as rows (n, ``size``).

    Raises `ZooError` for masks that don't fit, and for actions without any: ``size`` is None.
    """
    if size is None:
        raise ZooError(f"`action_masks` can't be taken: {describe(action_space)} has no masks")
    if isinstance(action_masks, Mapping):
        raise ZooError(
            f"`action_masks` are a dictionary, but {n} observations take {n} of them: a list, a mask each"
        )
    is_one_row = n == 1 and isinstance(action_masks, np.ndarray) and action_masks.ndim == 1
    rows = [flat_mask(mask, action_space) for mask in ([action_masks] if is_one_row else action_masks)]
    if len(rows) != n or any(len(row) != size for row in rows):
        raise ZooError(
            f"`action_masks`: {len(rows)} masks with {sorted({len(row) for row in rows})} entries don't fit,"
            f" expected {n} × {size}: a row an observation, an entry for each choice of"
            f" {describe(action_space)}"
        )
    return np.stack(rows)


# -- files ------------------------------------------------------------------------------------------------


def agent_config(
    name: str,
    config: Any,
    policy: PolicyConfig,
    env: EnvConfig | None,
    n_envs: int,
    observation_space: spaces.Space[Any],
    action_space: spaces.Space[Any],
    replay: ReplayConfig | None = None,
    preset: str | None = None,
    *,
    masks_actions: bool = False,
) -> dict[str, Any]:
    """Return what rebuilds an agent's policy and environment, as plain values.

    ``masks_actions`` says that it has learned to choose among valid actions only.
    """
    return {
        "format": FORMAT,
        "algo": {
            "name": name,
            **({} if preset is None else {"preset": preset}),
            **dataclasses.asdict(config),
        },
        "policy": dataclasses.asdict(policy),
        **({} if replay is None else {"replay": dataclasses.asdict(replay)}),
        "env": None if env is None else dataclasses.asdict(env),
        "n_envs": n_envs,
        "observation_space": space_to_dict(observation_space),
        "action_space": space_to_dict(action_space),
        **({"masks_actions": True} if masks_actions else {}),
    }


CHOICES = ("seed", "device", "compile", "threads", "precision")
"""What is chosen anew each time that an agent is loaded."""


def constructor_arguments(
    files: AgentFiles,
    name: str,
    config_class: type[Any],
    options: Mapping[str, Any],
    *,
    has_replay: bool = False,
) -> dict[str, Any]:
    """Return what an algorithm called ``name`` is built with to be this agent, without an environment.

    ``options`` are hyperparameters with other values than the agent's, `CHOICES`, and another ``replay``
    where it learns from one. Raises `ZooError` if it is the agent of another algorithm, or values don't fit.
    """
    values = section_of(files, "algo")
    found, _ = (values.pop(label, None) for label in ALGO_LABELS)
    if found != name:
        raise ZooError(f"this is an agent of {found}, not of {name}; zoo.load() finds the class itself")
    names = [field.name for field in dataclasses.fields(variant_of(config_class, values, "algo"))]
    replayed = None if files.config.get("replay") is None else section_of(files, "replay")
    replay = {"replay": replayed} if has_replay else {}
    for option in options:
        if option not in names and option not in CHOICES and option not in replay:
            raise unknown_key(option, [*names, *CHOICES, *replay, "n_envs"], "")
    changed = {option: value for option, value in options.items() if option in names}
    return {
        **replay,
        **{option: value for option, value in options.items() if option in (*CHOICES, *replay)},
        "policy": build(PolicyConfig, section_of(files, "policy"), "policy"),
        "config": build(config_class, {**values, **changed}, "algo"),
        "observation_space": space_from_dict(files.config["observation_space"]),
        "action_space": space_from_dict(files.config["action_space"]),
    }


def env_of(files: AgentFiles) -> EnvConfig | None:
    """Return the environment that the agent was trained in, if it is known."""
    return None if files.config.get("env") is None else build(EnvConfig, section_of(files, "env"), "env")


def section_of(files: AgentFiles, name: str) -> dict[str, Any]:
    """Return a section of an agent's config; one that the user trusts may take values from variables."""
    values: dict[str, Any] = files.config.get(name) or {}
    return resolved_values(values, below=(name,)) if files.is_trusted else dict(values)
