"""Reward models: rewards of a rollout that are computed or learned, which on-policy algorithms learn from."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from zoo.algorithms.on_policy import EARNED, FOLLOWING, RAW
from zoo.buffers.arrays import Array, Arrays, merge_leading
from zoo.config.fields import build
from zoo.config.user_files import named_class, own_class
from zoo.errors import ZooError
from zoo.optim.update_runner import State

if TYPE_CHECKING:
    from zoo.algorithms.on_policy import OnPolicyAlgorithm


class RewardRollout(NamedTuple):
    """A rollout as the environments have it, step by step: n = n_steps × n_envs."""

    observations: Arrays
    """Raw, (n, …)."""
    actions: Any
    """As the environments take them, (n, …)."""
    next_observations: Arrays
    """Raw, (n, …), of an ended episode its final ones; None unless `RewardModel.uses_next_observations`."""
    rewards: Array
    """The environments', raw, (n_steps, n_envs)."""
    dones: Array
    """Whether the step ended its episode, (n_steps, n_envs)."""


@dataclass
class NoFields:
    """The config of a reward model without hyperparameters."""


class RewardModel:
    """Gives the agent the rewards that it learns from.

    ``algo.reward_model={_target_: module.Class, …}`` names a subclass; the rest are fields of its
    ``config_class``. It draws from ``agent.rng``, and takes gradient steps by ``agent.take_steps``.
    """

    config_class: ClassVar[type[Any]] = NoFields
    uses_next_observations: ClassVar[bool] = False

    def __init__(self, config: Any, agent: OnPolicyAlgorithm) -> None:
        self.config, self.agent = config, weakref.proxy(agent)  # no cycle: a dropped agent closes its envs

    def initial_state(self) -> State:
        """Return the tensors that gradient steps replace, by names of their own."""
        return State()

    def start(self, n_envs: int) -> None:
        """Hook: allocate what is kept for each environment."""

    def cut(self, envs: Sequence[int]) -> None:
        """Hook: end the running episodes of these environments."""

    def rollout(self) -> RewardRollout:
        """Return the rollout that is in the agent's buffer."""
        agent, buffer = self.agent, self.agent.buffer
        columns = {name: merge_leading(column) for name, column in buffer.columns.items()}
        observations = columns.get(RAW, columns["observations"])
        actions = agent.action_adapter.to_env(columns["actions"])
        rewards = buffer.columns[EARNED].copy()
        return RewardRollout(observations, actions, columns.get(FOLLOWING), rewards, buffer.dones)

    def rewards(self, rollout: RewardRollout) -> Array:
        """Return the rewards to learn from, (n_steps, n_envs); called once a rollout, before the update."""
        raise NotImplementedError

    def advantages(self, advantages: Array) -> Array:
        """Hook: return the advantages (n_steps, n_envs) to learn from."""
        return advantages

    def update(self, rollout: RewardRollout) -> None:
        """Hook: learn from a rollout, after the policy has."""

    def state(self) -> dict[str, Any]:
        """Return the state that later rewards depend on, beside the tensors of `initial_state`."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go back to what `state` returned."""

    def parts(self) -> dict[str, Any]:
        """Return the parts of a checkpoint, by name."""
        return {"reward_model": self}


def make_reward_model(agent: OnPolicyAlgorithm) -> RewardModel:
    """Make the reward model that ``algo.reward_model`` names. Raises `ZooError`."""
    settings = agent.config.reward_model = named_class(agent.config.reward_model, "algo.reward_model")
    values = dict(settings or {})
    if "_target_" not in values:
        raise ZooError("`algo.reward_model` needs the class of the model: {_target_: module.Class, …}")
    model_class = own_class("algo.reward_model", values.pop("_target_"), RewardModel)
    return model_class(build(model_class.config_class, values, "algo.reward_model"), agent)
