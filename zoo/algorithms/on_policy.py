"""What on-policy algorithms share: collecting a rollout with the current policy, advantages, acting."""

from __future__ import annotations

import time
from typing import Any, TypeVar

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from zoo.algorithms.base import Algorithm, Array
from zoo.errors import ZooError
from zoo.memory.columns import Column, ColumnSpec, observation_spec, transform
from zoo.memory.rollout import RolloutMemory, generalized_advantages
from zoo.optim.optimizers import Optimizer
from zoo.optim.trainable import State, Trainable
from zoo.policies.actor_critic import ActorCritic
from zoo.policies.making import make_policy

Config = TypeVar("Config")


class OnPolicyAlgorithm(Algorithm[Config]):
    """Collects ``n_steps`` steps of every environment with the current policy, then learns from them once."""

    supported_actions = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)

    policy: ActorCritic
    memory: RolloutMemory

    def _optimizer(self) -> Optimizer:
        raise NotImplementedError

    def _make_policy(self) -> nn.Module:
        return make_policy(ActorCritic, self.observation_space, self.action_space, self.policy_config)

    def _make_state(self) -> State:
        max_grad_norm = self.config.max_grad_norm  # type: ignore[attr-defined]
        self.trainable = Trainable("policy", self.policy, self._optimizer(), max_grad_norm)
        self._numpy_parameters = self.policy.numpy_action_parameters()
        return self.trainable.initial_state()

    def _make_memory(self) -> None:
        distribution = self.policy.distribution
        specs = {
            "observations": observation_spec(self.observation_space, normalized=self.normalizer is not None),
            "actions": ColumnSpec(distribution.action_shape, distribution.action_dtype),
        }
        self.memory = RolloutMemory(self._n_steps, self.n_envs, specs)

    @property
    def _n_steps(self) -> int:
        return int(self.config.n_steps)  # type: ignore[attr-defined]

    # -- collecting -------------------------------------------------------------------------------------

    def collect(self) -> None:
        envs, memory, normalizer, distribution = (
            self.envs,
            self.memory,
            self.normalizer,
            self.policy.distribution,
        )
        assert envs is not None
        observations = self._normalized(self._observations)
        noise = distribution.noise(self.rng, (memory.n_steps, self.n_envs))
        log_std = self.policy.numpy_log_std()
        env_seconds = 0.0
        started = time.perf_counter()
        memory.start()
        for step in range(memory.n_steps):
            actions = distribution.sample(self._action_parameters(observations), log_std, noise[step])
            memory.put({"observations": observations, "actions": actions})
            env_actions = distribution.to_env(actions)
            before = time.perf_counter()
            result = envs.step(env_actions)
            env_seconds += time.perf_counter() - before
            rewards, ended = result.rewards, result.terminated | result.truncated
            if normalizer is not None:
                normalizer.update_observations(result.observations)
                normalizer.update_returns(rewards, ended, result.valid)
                rewards = normalizer.normalize_rewards(rewards)
            memory.advance(rewards, ended, result.valid)
            if len(result.finished):
                self._keep_truncations(result.finished, result.truncated, result.final_observations)
                self._count_episodes(result)
            self._observations = result.observations
            observations = self._normalized(result.observations)
            self.num_timesteps += self.n_envs if result.valid is None else int(result.valid.sum())
        self._last_observations = observations
        self.timings["env"] += env_seconds
        self.timings["policy"] += time.perf_counter() - started - env_seconds
        if not memory.valid.any():  # a short rollout in which all environments merely reset
            self.collect()

    def _keep_truncations(self, finished: Array, truncated: Array, final_observations: Column) -> None:
        cut_short = truncated[finished]
        if cut_short.any():
            final = transform(lambda array: array[cut_short].copy(), final_observations)
            self.memory.add_truncations(finished[cut_short], self._normalized(final))

    def _action_parameters(self, observations: Column) -> Array:
        if self._numpy_parameters is not None:
            return self._numpy_parameters(observations)
        with torch.inference_mode():
            return self.policy.action_parameters(self._tensors(observations)).cpu().numpy()

    # -- what updates start from ------------------------------------------------------------------------

    def advantages_and_returns(
        self, values: Tensor, gamma: float, gae_lambda: float
    ) -> tuple[Tensor, Tensor]:
        """Return advantages and value targets (rows,) of the rollout whose values (rows,) are given.

        Truncated steps are bootstrapped with the current value of their final observation.
        """
        memory = self.memory
        shape = (memory.n_steps, memory.n_envs)
        truncations = memory.truncations()
        rewards = memory.rewards
        with torch.inference_mode():
            last_values = self.policy.values(self._tensors(self._last_observations)).cpu().numpy()
            if truncations is not None:
                steps, envs, final_observations = truncations
                final_values = self.policy.values(self._tensors(final_observations)).cpu().numpy()
                rewards = rewards.copy()
                rewards[steps, envs] += gamma * final_values
        old_values = values.cpu().numpy().reshape(shape)
        advantages = generalized_advantages(rewards, old_values, last_values, memory.ended, gamma, gae_lambda)
        returns = advantages + old_values
        return self._tensors(advantages.reshape(-1)), self._tensors(returns.reshape(-1))

    # -- acting -----------------------------------------------------------------------------------------

    def _act(self, observations: Column, *, deterministic: bool) -> Array:
        distribution = self.policy.distribution
        parameters = self._action_parameters(observations)
        if deterministic:
            return distribution.to_env(distribution.mode(parameters))
        noise = distribution.noise(self.rng, (len(parameters),))
        return distribution.to_env(distribution.sample(parameters, self.policy.numpy_log_std(), noise))

    def action_probability(self, observations: Column) -> Any:
        """Return probabilities (n, actions) for Discrete actions, mean and standard deviation for Box.

        MultiBinary gives the probability of each bit, MultiDiscrete a list of probabilities, one array for
        each choice.
        """
        batch, is_single = self._batched(observations)
        parameters = torch.from_numpy(self._action_parameters(self._normalized(batch)))
        if isinstance(self.action_space, spaces.Box):
            log_std = self.policy.numpy_log_std()
            assert log_std is not None
            mean = parameters.numpy()
            std = np.broadcast_to(np.exp(log_std), mean.shape)
            return (mean[0], std[0]) if is_single else (mean, std)
        if isinstance(self.action_space, spaces.MultiBinary):
            bits = parameters.sigmoid().numpy()
            return bits[0] if is_single else bits
        if isinstance(self.action_space, spaces.MultiDiscrete):
            sizes = [int(n) for n in self.action_space.nvec.reshape(-1)]
            choices = [part.softmax(-1).numpy() for part in parameters.split(sizes, -1)]
            return [choice[0] for choice in choices] if is_single else choices
        probabilities = parameters.softmax(-1).numpy()
        return probabilities[0] if is_single else probabilities


def explained_variance(values: Tensor, returns: Tensor) -> float:
    """Return the share of the returns' variance that the values explain: 1 − Var(R − V) / Var(R)."""
    variance = returns.var(correction=0)
    if variance == 0:
        return float("nan")
    return float(1 - (returns - values).var(correction=0) / variance)


def minibatch_size(n_rows: int, batch_size: int | None, n_minibatches: int) -> int:
    """Return the size that the two settings ask for. Raises `ZooError` if there are too few rows."""
    size = batch_size if batch_size is not None else n_rows // n_minibatches
    if not 1 < size <= n_rows:
        raise ZooError(
            f"minibatches of {size} can't be made of n_steps × n_envs = {n_rows} steps;"
            " change algo.n_steps, n_envs, algo.batch_size or algo.n_minibatches"
        )
    return size
