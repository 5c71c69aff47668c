"""The last steps of all environments, and what on-policy algorithms make of them: advantages and returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import numpy as np

from zoo.buffers.arrays import Array, Arrays, allocate, assign, join, n_bytes, transform
from zoo.core.free_memory import refuse_what_does_not_fit
from zoo.envs.transition import Transition


class Truncations(NamedTuple):
    """Truncated steps of a rollout: indices, final observations, recurrent states and masks after them."""

    steps: Array
    envs: Array
    final_observations: Arrays
    states: Array | None
    action_masks: Array | None


class RolloutBuffer:
    """``n_steps`` steps of ``n_envs`` environments, overwritten by the next rollout.

    ``specs`` name the columns (n_steps, n_envs, …) that are stored besides rewards and episode ends. A
    recurrent policy learns from sequences of ``chunk_length`` steps, which divides ``n_steps``: its state
    (``state_size`` numbers, column ``states``) is stored before each of them. ``sizes`` (n_envs,) counts the
    steps of each environment so far: they differ where a step merely resets some of the environments.
    """

    def __init__(
        self,
        n_steps: int,
        n_envs: int,
        specs: Mapping[str, Any],
        *,
        chunk_length: int | None = None,
        state_size: int = 0,
    ) -> None:
        self.n_steps, self.n_envs, self.chunk_length = n_steps, n_envs, chunk_length
        self.steps_a_row = chunk_length or 1
        """Steps in an entry of `rows`: those of a sequence, or one."""
        self.n_rows = n_steps * n_envs // self.steps_a_row
        """Entries of `rows`: sequences, or steps."""
        needed = n_bytes(specs) * n_steps * n_envs
        refuse_what_does_not_fit(f"a rollout of n_steps × n_envs = {n_steps:,} × {n_envs:,} steps", needed)
        self.columns: dict[str, Arrays] = allocate(specs, (n_steps, n_envs))
        n_chunks = n_steps // self.steps_a_row
        self.states: Array = np.zeros((n_chunks, n_envs, state_size), np.float32)
        self.rewards: Array = np.zeros((n_steps, n_envs), np.float32)
        self.dones: Array = np.zeros((n_steps, n_envs), np.bool_)
        self.start()

    def __repr__(self) -> str:
        return f"<RolloutBuffer: {self.n_steps:,} steps × {self.n_envs:,} env{'s' * (self.n_envs != 1)}>"

    def start(self) -> None:
        """Begin a new rollout."""
        self.sizes: Array = np.zeros(self.n_envs, np.int64)
        self._truncations: list[tuple[Array, Array, Arrays, Array | None, Array | None]] = []

    @property
    def is_full(self) -> bool:
        """Whether each environment has ``n_steps`` steps in it."""
        return bool(self.sizes.min() == self.n_steps)

    def add(self, transition: Transition, rewards: Array) -> None:
        """Store a step, with its rewards as they are learned from; not of environments that are full."""
        stepped, not_full, place = transition.stepped, cast(Any, np.s_[:]), self.sizes[0]
        if stepped is not None:
            not_full = stepped[self.sizes[stepped] < self.n_steps]
            place = self.sizes[not_full], not_full
        for name, column in self.columns.items():
            assign(column, place, transform(lambda array: array[not_full], transition.columns[name]))
        if self.chunk_length is not None:
            envs = np.arange(self.n_envs)[not_full]
            envs = envs[self.sizes[envs] % self.chunk_length == 0]
            self.states[self.sizes[envs] // self.chunk_length, envs] = transition.columns["states"][envs]
        self.rewards[place], self.dones[place] = rewards[not_full], transition.dones[not_full]
        self.sizes[not_full] += 1

    def add_truncations(
        self,
        env_indices: Array,
        final_observations: Arrays,
        states: Array | None = None,
        action_masks: Array | None = None,
    ) -> None:
        """Record truncations of the last step: normalised final observations, states and masks after it."""
        steps = self.sizes[env_indices] - 1
        self._truncations.append((steps, env_indices, final_observations, states, action_masks))

    def truncations(self) -> Truncations | None:
        """Return truncated steps with their final observations, or None."""
        if not self._truncations:
            return None
        steps, envs, final_observations, states, masks = zip(*self._truncations, strict=True)
        return Truncations(
            np.concatenate(steps),
            np.concatenate(envs),
            join(list(final_observations)),
            None if states[0] is None else np.concatenate(states),
            None if masks[0] is None else np.concatenate(masks),
        )

    def rows(self) -> dict[str, Arrays]:
        """Return views of all columns with one entry a step.

        For a recurrent policy copies with one entry a sequence, (n_sequences, chunk_length, …), and
        ``states`` (n_sequences, state_size) before each.
        """
        rows = {name: transform(self.as_rows, column) for name, column in self.columns.items()}
        if self.chunk_length is not None:
            rows["states"] = self.states.reshape(self.n_rows, -1)
        return rows

    def as_rows(self, steps: Array) -> Array:
        """Return numbers of each step, (n_steps, n_envs, …), in the order of `rows`."""
        if self.chunk_length is None:
            return steps.reshape(-1, *steps.shape[2:])
        chunks = steps.reshape(-1, self.chunk_length, *steps.shape[1:]).swapaxes(1, 2)
        return chunks.reshape(self.n_rows, self.chunk_length, *steps.shape[2:])

    def as_steps(self, rows: Array) -> Array:
        """Return numbers in the order of `rows` as (n_steps, n_envs)."""
        if self.chunk_length is None:
            return rows.reshape(self.n_steps, self.n_envs)
        chunks = rows.reshape(-1, self.n_envs, self.chunk_length).swapaxes(1, 2)
        return chunks.reshape(self.n_steps, self.n_envs)

    def minibatch_rows(
        self, rng: np.random.Generator, n_epochs: int, n_minibatches: int, batch_size: int
    ) -> Array:
        """Return indices into `rows` of shuffled minibatches, (n_epochs × n_minibatches, batch_size).

        An epoch sees each row once, as far as its minibatches have room. Where rows are missing to fill them,
        further ones are drawn at random.
        """
        rows = np.arange(self.n_rows)
        epochs = rng.permuted(np.tile(rows, (n_epochs, 1)), axis=1)
        room = n_minibatches * batch_size
        if room > len(rows):
            epochs = np.concatenate([epochs, rng.choice(rows, (n_epochs, room - len(rows)))], axis=1)
        return epochs[:, :room].reshape(n_epochs * n_minibatches, batch_size)


def generalized_advantages(
    rewards: Array, values: Array, last_values: Array, dones: Array, gamma: float, gae_lambda: float
) -> Array:
    """Return advantages (n_steps, n_envs) by GAE(λ) (Schulman et al. 2016, equation 16).

    ``values`` are V(s_t), ``last_values`` (n_envs,) those of the observations after the last step.
    ``dones[t]`` is true where step t ended its episode: nothing flows back over it, so the reward of a
    truncated step must already hold γ·V of its final observation.
    """
    goes_on = 1.0 - dones.astype(np.float32)
    next_values = np.concatenate([values[1:], last_values[None]])
    advantages = rewards + gamma * goes_on * next_values - values
    discounts = gamma * gae_lambda * goes_on
    for step in range(len(rewards) - 2, -1, -1):
        advantages[step] += discounts[step] * advantages[step + 1]
    return advantages
