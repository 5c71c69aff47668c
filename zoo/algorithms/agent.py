"""An agent: a policy that acts in some spaces, is saved, and is loaded again."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Collection, Iterable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import nn
from typing_extensions import Self

from zoo.algorithms.arguments import (
    Policy,
    check_action_space,
    check_recurrence,
    describe_constructor,
    make_policy,
    policy_config,
    policy_input,
    short_description,
)
from zoo.algorithms.collector import Array, envs_for
from zoo.algorithms.registry import provided
from zoo.algorithms.saving import Generators, check_policy_parameters
from zoo.algorithms.search_space import NETWORKS
from zoo.buffers.arrays import Arrays, ArraySpec, n_rows, observation_spec
from zoo.buffers.config import ReplayConfig
from zoo.config.aliases import ATTRIBUTES, refuse_unknown_arguments
from zoo.config.schedules import Schedule
from zoo.envs.adapter import VecEnvAdapter
from zoo.envs.config import EnvConfig, normalize_config
from zoo.envs.normalize import Normalizer
from zoo.envs.spaces import interfaces_differ, row
from zoo.errors import ZooError
from zoo.optim.runtime import Runtime, torch_settings
from zoo.policies.acting import ActingPolicy, PolicyMode, make_action_adapter, make_mirror
from zoo.policies.actor_critic import PolicyInput

if TYPE_CHECKING:
    from zoo.agents.agent_folder import AgentFiles


class Agent:
    """Answers observations with actions of a policy, whose networks are made for the two spaces.

    Random actions and initial weights come from generators of ``seed``. Raises `ZooError` for a space or
    policy that does not fit.
    """

    name: ClassVar[str]
    config_class: ClassVar[type[Any]]
    supported_actions: ClassVar[tuple[type[spaces.Space[Any]], ...]]
    policy_class: ClassVar[type[nn.Module]]
    """The networks' class; users' own policies are subclasses of it."""
    usual_policy: ClassVar[str] = "MlpPolicy"
    """The policy that `zoo train` gives it where nothing else is chosen."""
    usual_normalize: ClassVar[Mapping[str, Any]] = {}
    """``env.normalize`` of the environment of an id, where nothing else is chosen."""
    scales_actions: ClassVar[bool] = False
    """Whether Box actions are stored in [−1, 1], and scaled to the environment's bounds on the way there."""
    has_replay: ClassVar[bool] = False
    """Whether it draws from a replay buffer, so that there is a ``replay`` to configure."""
    learns_from_experts: ClassVar[bool] = False
    """Whether it learns from expert data, so that there is a ``dataset`` to give."""
    has_recurrence: ClassVar[bool] = False
    """Whether its policies may be recurrent."""
    has_batch_norm: ClassVar[bool] = False
    """Whether its networks may be normalised over batches."""
    has_projection: ClassVar[bool] = False
    """Whether weights may be scaled to length 1 after each gradient step."""
    of_preset: ClassVar[str | None] = None
    """The preset that a class stands for, which has other defaults, or another replay, than its algorithm."""
    search_space: ClassVar[Mapping[str, Any]] = {"algo": {}, "policy": NETWORKS}
    """Dimensions that `zoo tune` searches, by section; `make docs` writes Zoo's to ``conf/tune/space``."""
    preset: str | None = None
    """Name of the preset, or None."""

    can_share: ClassVar[bool] = True
    """Whether it can run as one of several ranks: an update has the same number of steps on all of them."""

    config: Any
    schedules: dict[str, Schedule]
    policy: nn.Module
    acting: ActingPolicy
    replay_config: ReplayConfig | None = None
    n_envs: int
    _mask_size: int | None = None
    num_timesteps = 0

    def __init_subclass__(cls, **options: Any) -> None:
        """Name a user's own class by its path; show its hyperparameters in its signature and docstring."""
        is_importable = cls.__module__ != "__main__" and "." not in cls.__qualname__
        if not cls.__module__.startswith("zoo.") and is_importable:
            cls.name, cls.of_preset = f"{cls.__module__}.{cls.__qualname__}", None
        super().__init_subclass__(**options)
        describe_constructor(cls)

    def __init__(
        self,
        policy: Policy,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        seed: int,
        runtime: Runtime,
    ) -> None:
        self.runtime, self.device = runtime, runtime.device
        self.seed = seed
        self.policy_config = policy_config(policy, observation_space)
        self.observation_space, self.action_space = observation_space, action_space
        check_action_space(self.label, action_space, self.supported_actions)
        check_recurrence(self.label, self.policy_config, is_recurrent=self.has_recurrence)
        if not self.has_batch_norm:
            self.policy_config.refuse_batch_norm(self.label)
        if not self.has_projection:
            self.policy_config.refuse_unit_norm(self.label)
        self.generators = Generators(seed)
        self.rng, self.predict_rng = self.generators.rng, self.generators.predict_rng
        self.masks_actions = False  # whether it learned to choose among valid actions only
        self._warned_of_masks = False
        self.env_config: EnvConfig | None = None
        self.envs: VecEnvAdapter | None = None
        self.normalizer: Normalizer | None = None
        self.action_adapter = make_action_adapter(action_space, scaled=self._is_scaled())
        with self.generators.torch_of_this_run(), torch_settings(threads=1):
            self.policy = self._make_policy().to(self.device)
        vars(self.policy).setdefault("predict", PolicyPredict(self))
        self.policy_mode = PolicyMode(self.policy)
        runtime.disable_if_uncompilable(self.policy)

    @classmethod
    def searched_space(cls) -> dict[str, Any]:
        """Return `search_space`; an inherited one without hyperparameters that this class does not have."""
        if "search_space" in vars(cls):
            return dict(cls.search_space)
        names = {field.name for field in dataclasses.fields(cls.config_class)}
        dimensions = {name: part for name, part in cls.search_space["algo"].items() if name in names}
        return {**cls.search_space, "algo": dimensions}

    __repr__ = short_description

    @property
    def label(self) -> str:
        """What ``algo=`` calls it: the name of its preset, if it was made by one."""
        return self.preset or self.name

    @property
    def discount(self) -> float:
        """The discount of normalised rewards: the algorithm's, if it has one."""
        return float(getattr(self.config, "gamma", 0.99))

    @property
    def spaces(self) -> tuple[spaces.Space[Any], spaces.Space[Any]]:
        """The spaces of observations and of actions."""
        return self.observation_space, self.action_space

    if not TYPE_CHECKING:  # type checkers go by the declared attributes alone

        def __getattr__(self, name: str) -> Any:
            """Return a hyperparameter; for an attribute of other libraries' models, say its name here."""
            config = vars(self).get("config")
            if config is not None and name in vars(config):
                return vars(config)[name]
            hint = f"; here it is {ATTRIBUTES[name]}" if name in ATTRIBUTES else ""
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'{hint}")

    # -- what an agent is made of -----------------------------------------------------------------------

    def _is_scaled(self) -> bool:
        return self.scales_actions or bool(self.policy_config.squash_output)

    def _make_policy(self) -> nn.Module:
        return make_policy(self.policy_class, *self.spaces, self.policy_config, **self._policy_options())

    def _policy_options(self) -> dict[str, Any]:
        """Return further keyword arguments of the policy's class, beside spaces and config."""
        return {}

    def _make_acting(self) -> ActingPolicy:
        """Return the part of the policy that acts."""
        mirror = make_mirror(self.policy, self.device, self.n_envs)
        return ActingPolicy(self.policy, self.device, mirror=mirror)

    def _specs(self, *, normalized: bool = False) -> dict[str, Any]:
        """Return the buffer's columns for each step, by name: shape and dtype."""
        specs = {
            "observations": observation_spec(self.observation_space, normalized=normalized),
            "actions": self.action_adapter.spec,
        }
        if self._mask_size is not None:
            specs["action_masks"] = ArraySpec((self._mask_size,), np.bool_)
        return specs

    # -- environments -----------------------------------------------------------------------------------

    def get_env(self) -> gym.vector.VectorEnv[Any, Any, Any] | None:
        """Return the vector environment that the algorithm learns in."""
        return None if self.envs is None else self.envs.env

    def get_vec_normalize_env(self) -> Normalizer | None:
        """Return the running statistics that observations and rewards are normalised with, if any."""
        return self.normalizer

    def set_env(self, env: Any, *, n_envs: int | None = None) -> None:
        """Replace the environment; an id or a function keeps the current ``n_envs``.

        Raises `ZooError` if its spaces differ.
        """
        config, envs = envs_for(env, n_envs, self.n_envs, self.discount)
        difference = interfaces_differ(self.spaces, envs.spaces)
        if difference is not None:
            raise ZooError(f"the {difference[0]} of the agent and of the env differ: {difference[1]}")
        if self.normalizer is not None:
            envs.normalizer = self.normalizer
        self.env_config = config or self.env_config
        self._use_envs(envs)

    def _use_envs(self, envs: VecEnvAdapter) -> None:
        self.envs, self.n_envs, self.normalizer = envs, envs.num_envs, envs.normalizer
        self.acting = self._make_acting()

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

    # -- parameters and files ---------------------------------------------------------------------------

    def pretrain(self, dataset: Any, *, on_epoch: Any = None, **settings: Any) -> Self:
        """Clone an expert with the policy, before learning or in between, and return the agent.

        ``dataset`` is `ExpertData` or a file of it, ``settings`` are those of `PretrainConfig`: n_epochs,
        learning_rate, batch_size, …. It ends after an epoch for which ``on_epoch`` returns True. Raises
        `ZooError` for an expert in other spaces.
        """
        provided("pretrain")(self, dataset, settings, on_epoch)
        return self

    def get_parameters(self) -> dict[str, Array]:
        """Return copies of the policy's parameters by name."""
        return {name: value.detach().cpu().numpy().copy() for name, value in self.policy.state_dict().items()}

    def set_parameters(self, parameters: Mapping[str, Array] | str | Path, exact_match: bool = True) -> None:
        """Overwrite the policy's parameters, by name or by an agent's path; targets follow.

        With ``exact_match`` every parameter must be there. Raises `ZooError` for missing, unknown or
        misshapen ones.
        """
        parameters = check_policy_parameters(self.policy, parameters, exact_match=exact_match)
        tensors = self.policy.state_dict()
        with torch.no_grad():
            for name, values in parameters.items():
                tensors[name].copy_(torch.as_tensor(np.asarray(values)))
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

        if required := {"policy", *vars(self.config)}.intersection(exclude):
            raise ZooError(f"save(exclude=…): an agent always holds its {', '.join(required)}")
        return write_agent(path, agent_files(self, card or {}))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what `save` writes: unpickled it is the agent without its environments."""
        from zoo.algorithms.agent_files import reduced

        return reduced(self, type(self))

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
        """Apply hyperparameters that differ from the saved agent's."""
        normalize = None if self.env_config is None else normalize_config(self.env_config)
        if "gamma" in changed and self.normalizer is not None and normalize and normalize.gamma is None:
            self.normalizer.gamma = self.config.gamma


class PolicyPredict:
    """``model.policy.predict``, which is the model's `predict`; alone the policy has none."""

    def __init__(self, model: Agent | None = None) -> None:
        self._model = None if model is None else weakref.ref(model)

    def __call__(self, *arguments: Any, **options: Any) -> tuple[Any, Any]:
        if self._model is None or (model := self._model()) is None:
            raise ZooError("policy.predict needs the model of the policy: keep it, and call model.predict")
        return model.predict(*arguments, **options)

    def __reduce__(self) -> tuple[Any, ...]:
        return PolicyPredict, ()
