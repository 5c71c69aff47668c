"""The last steps of all environments, and what on-policy algorithms make of them: advantages and returns."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Any

import numpy as np

from zoo.memory.columns import (
    Column,
    ColumnSpec,
    NotFinite,
    allocate,
    assign,
    find_not_finite,
    join,
    transform,
)
from zoo.memory.experience import Experience

Array = np.ndarray


class RolloutMemory:
    """``n_steps`` steps of ``n_envs`` environments, overwritten by the next rollout.

    ``specs`` name the columns that are stored at each step besides rewards and episode ends: observations,
    actions, and whatever environment and policy add. All arrays have shape (n_steps, n_envs, …).
    """

    def __init__(self, n_steps: int, n_envs: int, specs: Mapping[str, Any]) -> None:
        self.n_steps = n_steps
        self.n_envs = n_envs
        self.columns: dict[str, Column] = {
            name: allocate(spec, (n_steps, n_envs)) for name, spec in specs.items()
        }
        self.rewards: Array = allocate(ColumnSpec((), np.float32), (n_steps, n_envs))
        self.ended: Array = allocate(ColumnSpec((), np.bool_), (n_steps, n_envs))
        self.valid: Array = allocate(ColumnSpec((), np.bool_), (n_steps, n_envs))
        self.start()

    def start(self) -> None:
        """Begin a new rollout."""
        self._step = 0
        self._truncations: list[tuple[int, Array, Column]] = []
        self.valid.fill(True)

    def add(self, experience: Experience, rewards: Array) -> None:
        """Store one step of all environments, with its rewards as they are learned from."""
        step, valid, ended = self._step, experience.outcome.valid, experience.ended
        for name, column in self.columns.items():
            assign(column, step, experience.columns[name])
        self.rewards[step] = rewards
        self.ended[step] = ended
        if valid is not None:
            self.valid[step] = valid
            self.ended[step] |= ~valid
        self._step = step + 1

    def add_truncations(self, env_indices: Array, final_observations: Column) -> None:
        """Remember where the step just added cut episodes short, and what was observed there, normalised."""
        self._truncations.append((self._step - 1, env_indices, final_observations))

    def truncations(self) -> tuple[Array, Array, Column] | None:
        """Return step and environment indices of truncated episodes, and their final observations."""
        if not self._truncations:
            return None
        steps = [np.full(len(indices), step) for step, indices, _ in self._truncations]
        indices = [indices for _, indices, _ in self._truncations]
        final_observations = join([observations for _, _, observations in self._truncations])
        return np.concatenate(steps), np.concatenate(indices), final_observations

    def first_not_finite(self) -> NotFinite | None:
        """Return the first number of the rollout, as far as it goes, that is NaN or infinite."""
        columns = {**self.columns, "rewards": self.rewards}
        if self._step < self.n_steps:
            columns = {name: transform(itemgetter(slice(self._step)), part) for name, part in columns.items()}
        found = find_not_finite(columns)
        for step, indices, final in self._truncations if found is None else ():
            found = find_not_finite({"next_observations": transform(lambda array: array[None], final)})
            if found is not None:
                env = int(indices[found.env])
                return found._replace(steps_ago=self._step - 1 - step, env=env)
        return found

    def rows(self) -> dict[str, Column]:
        """Return all columns as views of shape (n_steps × n_envs, …), without copying."""
        return {
            name: transform(lambda array: array.reshape(-1, *array.shape[2:]), column)
            for name, column in self.columns.items()
        }

    def minibatch_rows(
        self, rng: np.random.Generator, n_epochs: int, n_minibatches: int, batch_size: int
    ) -> Array:
        """Return row indices of shuffled minibatches, (n_epochs × n_minibatches, batch_size).

        An epoch sees each row once, so its minibatches together need room for all. Where rows are missing to
        fill them, or in the place of steps that merely reset an environment, further rows are drawn at
        random, so that all minibatches have one size.
        """
        rows = np.flatnonzero(self.valid)
        epochs = rng.permuted(np.tile(rows, (n_epochs, 1)), axis=1)
        missing = n_minibatches * batch_size - len(rows)
        if missing:
            epochs = np.concatenate([epochs, rng.choice(rows, (n_epochs, missing))], axis=1)
        return epochs.reshape(n_epochs * n_minibatches, batch_size)


def generalized_advantages(
    rewards: Array, values: Array, last_values: Array, ended: Array, gamma: float, gae_lambda: float
) -> Array:
    """Return advantages (n_steps, n_envs) by GAE(λ) (Schulman et al. 2016, equation 16).

    ``values`` are V(s_t), ``last_values`` (n_envs,) those of the observations after the last step.
    ``ended[t]`` is true where step t ended its episode: nothing flows back over it, so the reward of a
    truncated step must already hold γ·V of its final observation.
    """
    goes_on = 1.0 - ended.astype(np.float32)
    next_values = np.concatenate([values[1:], last_values[None]])
    advantages = rewards + gamma * goes_on * next_values - values
    discounts = gamma * gae_lambda * goes_on
    for step in range(len(rewards) - 2, -1, -1):
        advantages[step] += discounts[step] * advantages[step + 1]
    return advantages
