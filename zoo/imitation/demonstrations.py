"""Expert data as training data for a policy: policy inputs and the expert's actions."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from torch import nn

from zoo.algorithms.agent import Agent
from zoo.algorithms.on_policy import USUAL_CHUNK
from zoo.buffers.arrays import Arrays, allocate, assign, n_rows, observation_spec, transform
from zoo.config.fields import hyperparameter
from zoo.envs.normalize import is_training
from zoo.envs.spaces import is_composite, nested
from zoo.errors import ZooError
from zoo.imitation.expert_data import Dataset, ExpertData, read_expert
from zoo.policies.acting import to_tensors

Array = np.ndarray


@dataclass
class EpisodeChoice:
    """Hyperparameters that choose an expert's episodes, for every algorithm that learns from one."""

    n_episodes: int | None = hyperparameter(None, "episodes to use, the first ones; null: all", ge=1)
    min_return: float | None = hyperparameter(None, "use only episodes with at least this return; null: all")


def chosen_episodes(dataset: Dataset, agent: Agent, choice: EpisodeChoice) -> ExpertData:
    """Return the episodes from which the agent learns.

    Raises `ZooError` for spaces that differ from the agent's or if no episode is left; warns of too few.
    """
    data = dataset if isinstance(dataset, ExpertData) else read_expert(dataset, agent.spaces)
    data.check_spaces(*agent.spaces)
    return data.filtered(min_return=choice.min_return, n_episodes=choice.n_episodes)


def without_dataset(agent: Agent) -> ZooError:
    """Return the error for an agent without a dataset to learn from."""
    return ZooError(f"{agent.name} learns from expert data: dataset=PATH (zoo expert agent=… records it)")


def stored_actions(data: ExpertData, agent: Agent) -> Arrays:
    """Return the expert's actions in the form in which buffers store the agent's."""
    actions = nested(data.action_space, data.actions) if is_composite(data.action_space) else data.actions
    return agent.action_adapter.from_env(actions)


def own_generator(seed: int) -> np.random.Generator:
    """Return the generator of validation episodes, and of the minibatches of pretraining.

    It is separate from the generators of the run and of `predict`, whose random numbers stay the same.
    """
    return np.random.default_rng((seed, 2))


class Demonstrations:
    """Tensors with one row per step or, for a recurrent policy, per sequence, (rows, time, …).

    A sequence has at most `USUAL_CHUNK` steps. It is padded with its episode's last step, where the mask
    ``weights`` is 0. ``train`` and ``validation`` are the rows of either set: an episode is in only one of
    them, and a single episode is not split.
    """

    def __init__(
        self, data: ExpertData, agent: Agent, validation_fraction: float, rng: np.random.Generator
    ) -> None:
        self.is_recurrent = bool(agent.acting.state_size)
        length = min(USUAL_CHUNK, int(data.lengths.max())) if self.is_recurrent else 1
        n_chunks = -(-data.lengths // length)
        self._chunks = np.concatenate([np.arange(n) for n in n_chunks])
        """Index of each row's sequence within its episode."""
        episodes = np.repeat(np.arange(data.n_episodes), n_chunks)
        first = data.starts[episodes] + length * self._chunks
        steps = first[:, None] + np.arange(length)
        last = (data.starts + data.lengths - 1)[episodes][:, None]
        index = np.minimum(steps, last) if self.is_recurrent else first
        observations, normalizer = data.observations, agent.normalizer
        if normalizer is not None:
            observations = normalizer.normalize_observations(observations)
        spec = observation_spec(agent.observation_space, normalized=normalizer is not None)
        columns = {"observations": stored(observations, spec), "actions": stored_actions(data, agent)}
        if data.action_masks is not None and agent.acting.head.mask_size is not None:
            columns["action_masks"] = data.action_masks
        if self.is_recurrent:
            columns["episode_starts"] = data.episode_starts
        columns = transform(lambda array: array[index], columns)
        if self.is_recurrent:
            columns["episode_starts"] &= steps <= last
            columns["weights"] = (steps <= last).astype(np.float32)
        self.tensors: dict[str, Any] = to_tensors(columns, agent.device)
        is_validation = np.isin(episodes, validation_episodes(data.n_episodes, validation_fraction, rng))
        self.train, self.validation = np.flatnonzero(~is_validation), np.flatnonzero(is_validation)
        self.steps_a_row = length

    @property
    def n_train(self) -> int:
        """Training steps in an epoch."""
        if not self.is_recurrent:
            return len(self.train)
        return int(self.tensors["weights"][torch.from_numpy(self.train)].sum())

    def minibatches(self, rng: np.random.Generator, batch_size: int) -> Array:
        """Return rows (batches, size): each row of `train` once, a few twice to fill the last batch."""
        size = min(max(1, batch_size // self.steps_a_row), len(self.train))
        n_batches = -(-len(self.train) // size)
        return np.resize(rng.permutation(self.train), (n_batches, size))

    @torch.no_grad()
    def update_states(self, policy: nn.Module) -> None:
        """Compute ``states``: the current policy's recurrent state before each sequence."""
        if not self.is_recurrent:
            return
        states = policy.initial_state(len(self._chunks)).to(self.tensors["weights"].device)  # type: ignore[operator]
        after = torch.zeros_like(states)
        for chunk in range(self._chunks.max() + 1):
            rows = torch.from_numpy(np.flatnonzero(self._chunks == chunk))
            if chunk:
                states[rows] = after[rows - 1]
            after[rows] = policy.action_parameters(transform(itemgetter(rows), self.tensors), states[rows])[1]  # type: ignore[operator]
        self.tensors["states"] = states


def update_normalizer(agent: Agent, data: ExpertData | None) -> None:
    """Update a normaliser that has no observations yet with the expert's, unless it is frozen."""
    if data is None or agent.normalizer is None or agent.normalizer.has_seen_observations:
        return
    if agent.envs is None or is_training(agent.envs.given_env):
        agent.normalizer.update_observations(data.observations)


def validation_episodes(n_episodes: int, fraction: float, rng: np.random.Generator) -> Array:
    """Pick validation episodes: at least one but not all; none if there is one episode."""
    if fraction == 0 or n_episodes == 1:
        return np.zeros(0, np.int64)
    n = min(max(1, round(fraction * n_episodes)), n_episodes - 1)
    return rng.permutation(n_episodes)[:n]


def stored(observations: Arrays, spec: Any) -> Arrays:
    """Return observations in the dtypes in which buffers store them."""
    arrays = allocate(spec, (n_rows(observations),))
    assign(arrays, slice(None), observations)
    return arrays
