"""What on-policy algorithms share: hyperparameters, rollouts of the current policy, advantages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from zoo.algorithms.agent import Array
from zoo.algorithms.base import Algorithm
from zoo.algorithms.finite import check_collected
from zoo.algorithms.interaction import Seen
from zoo.algorithms.sde_options import SdeConfig, sde_options
from zoo.config.fields import Schedule, hyperparameter
from zoo.errors import ZooError
from zoo.memory.columns import Column, ColumnSpec, observation_spec, pieces, transform
from zoo.memory.experience import Experience
from zoo.memory.rollout import RolloutMemory, generalized_advantages
from zoo.optim.descent import Descent
from zoo.optim.optimizers import Optimizer
from zoo.optim.parameters import Parameters
from zoo.optim.state import State
from zoo.policies.actor_critic import ActorCritic
from zoo.policies.own_policy import make_policy
from zoo.policies.state_dependent_exploration import HeldNoise

PLAIN_ACTIONS = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
ANY_ACTIONS = (*PLAIN_ACTIONS, spaces.Tuple, spaces.Dict)
"""What an algorithm takes that knows of actions only how likely they are: those with parts too."""

PIECE_BYTES = 64 * 2**20
"""What the observations of one forward pass without gradients may take, as floats."""


@dataclass
class RolloutConfig:
    """Hyperparameters of collecting rollouts and learning from them."""

    learning_rate: Schedule = hyperparameter(3e-4, "step size of the optimizer", ge=0)
    n_steps: int = hyperparameter(128, "steps of each environment in a rollout", unit="steps", ge=1)
    gamma: float = hyperparameter(0.99, "discount factor", ge=0, le=1)
    gae_lambda: float = hyperparameter(
        0.95, "bias (0) against variance (1) of the advantages; 1: n-step returns", ge=0, le=1
    )
    normalize_advantage: bool = hyperparameter(
        False, "standardise the advantages of each batch that is learned from"
    )
    ent_coef: float = hyperparameter(0.01, "weight of the entropy bonus", ge=0)
    vf_coef: float = hyperparameter(0.25, "weight of the value's mean squared error", ge=0)
    max_grad_norm: float | None = hyperparameter(0.5, "bound of the gradient's norm; null: none", gt=0)


@dataclass
class OnPolicyConfig(SdeConfig, RolloutConfig):
    """Hyperparameters that all on-policy algorithms have; each sets its own defaults."""


Config = TypeVar("Config", bound=OnPolicyConfig)


class OnPolicyAlgorithm(Algorithm[Config]):
    """Collects ``n_steps`` steps of every environment with the current policy, then learns from them once."""

    supported_actions: ClassVar[tuple[type[spaces.Space[Any]], ...]] = PLAIN_ACTIONS
    uses_old_log_prob: ClassVar[bool] = False
    """Whether a finished rollout tells how likely its actions were for the policy that took them."""

    config: Config
    policy: ActorCritic
    memory: RolloutMemory

    def _optimizer(self) -> Optimizer:
        raise NotImplementedError

    def _make_policy(self) -> nn.Module:
        policy = make_policy(
            *(ActorCritic, self.observation_space, self.action_space, self.policy_config),
            **sde_options(self.config),
        )
        if policy.core is not None:
            raise ZooError(f"{self.name} can't train a recurrent policy yet: it learns from shuffled steps")
        return policy

    def _make_state(self) -> State:
        self.descent = Descent(
            Parameters("policy", self.policy), self._optimizer(), max_grad_norm=self.config.max_grad_norm
        )
        return self.descent.initial_state()

    def _make_memory(self) -> None:
        specs = {
            "observations": observation_spec(self.observation_space, normalized=self.normalizer is not None),
            "actions": self.codec.spec,
        }
        if self._mask_size is not None:
            specs["action_masks"] = ColumnSpec((self._mask_size,), bool)
        self.memory = RolloutMemory(self.config.n_steps, self.n_envs, specs)
        floats = spaces.flatdim(self.observation_space)
        self._rows_at_once = max(1, PIECE_BYTES // (np.dtype(np.float32).itemsize * floats))

    # -- collecting -------------------------------------------------------------------------------------

    def collect(self) -> None:
        memory = self.memory
        self._progress_before = self.progress
        memory.start()
        for noise in self._noise():
            experience = self._interact(partial(self._act_with, noise))
            memory.add(experience, self._rewards(experience))
            if len(experience.outcome.finished):
                self._keep_truncations(experience)
        if not memory.valid.any():  # a short rollout in which all environments merely reset
            self.collect()
        check_collected(self)

    def _noise(self) -> Iterator[Array]:
        """Return what actions are drawn with at each step of a rollout, (n_envs, …)."""
        head, n_steps = self.acting.head, self.memory.n_steps
        if not self.config.use_sde:
            return iter(head.noise(self.rng, (n_steps, self.n_envs)))
        held = HeldNoise(head, self.config.sde_sample_freq)
        return (held.next(self.rng, self.n_envs) for _ in range(n_steps))

    def _act_with(self, noise: Array, seen: Seen) -> dict[str, Column]:
        return {"actions": self.acting.act(seen, noise)[0]}

    def _rewards(self, experience: Experience) -> Array:
        rewards = experience.outcome.rewards
        return rewards if self.normalizer is None else self.normalizer.normalize_rewards(rewards)

    def _keep_truncations(self, experience: Experience) -> None:
        outcome = experience.outcome
        cut_short = outcome.truncated[outcome.finished]
        if cut_short.any():
            final = transform(lambda array: array[cut_short].copy(), outcome.final_observations)
            self.memory.add_truncations(outcome.finished[cut_short], self.interaction.normalized(final))

    # -- what updates start from ------------------------------------------------------------------------

    def finished_rollout(self) -> dict[str, Any]:
        """Return the rollout as tensors with one row a step, (n_steps × n_envs, …).

        Its own columns, ``values`` (and ``log_prob`` where `uses_old_log_prob`) of the policy that collected
        it, ``advantages`` and ``returns``, which bootstrap truncated episodes from their final observations.
        """
        rows = self.memory.rows()
        rollout: dict[str, Any] = self._tensors(rows)
        if self.uses_old_log_prob:
            rollout |= self._judged(rollout)
            values = rollout["values"].cpu().numpy()
        else:
            values = np.concatenate([self.acting.values(part) for part in pieces(rows, self._rows_at_once)])
            rollout["values"] = self._tensors(values)
        advantages, returns = self._advantages_and_returns(values)
        rollout["advantages"], rollout["returns"] = self._tensors(advantages), self._tensors(returns)
        return rollout

    @torch.inference_mode()
    def _judged(self, rollout: dict[str, Any]) -> dict[str, Tensor]:
        """Return the policy's values of what it saw, and the log-probabilities of what it did."""
        judged = []
        for rows in pieces(rollout, self._rows_at_once):
            parameters, values, _ = self.policy(rows)
            judged.append((values, self.policy.head.log_prob(parameters, rows["actions"])))
        values, log_prob = judged[0] if len(judged) == 1 else map(torch.cat, zip(*judged, strict=True))
        return {"values": values, "log_prob": log_prob}

    def _advantages_and_returns(self, row_values: Array) -> tuple[Array, Array]:
        memory, gamma = self.memory, self.config.gamma
        truncations = memory.truncations()
        rewards = memory.rewards
        if truncations is not None:
            steps, envs, final_observations = truncations
            final = pieces({"observations": final_observations}, self._rows_at_once)
            rewards = rewards.copy()
            rewards[steps, envs] += gamma * np.concatenate([self.acting.values(rows) for rows in final])
        values = row_values.reshape(memory.n_steps, memory.n_envs)
        last_values = self.acting.values(self.interaction.seen)
        advantages = generalized_advantages(
            rewards, values, last_values, memory.ended, gamma, self.config.gae_lambda
        )
        return advantages.reshape(-1), (advantages + values).reshape(-1)

    def _batch_size(self) -> int:
        return self.memory.n_steps * self.n_envs


def standardized(advantages: Tensor) -> Tensor:
    """Return advantages with mean 0 and standard deviation 1 over the batch."""
    return (advantages - advantages.mean()) / (advantages.std() + 1e-8)


def explained_variance(values: Tensor, returns: Tensor) -> float:
    """Return the share of the returns' variance that the values explain: 1 − Var(R − V) / Var(R)."""
    variance = returns.var(correction=0)
    if variance == 0:
        return float("nan")
    return float(1 - (returns - values).var(correction=0) / variance)
