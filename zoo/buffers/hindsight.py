"""Hindsight replay (Andrychowicz et al. 2017, https://arxiv.org/abs/1707.01495).

Of the transitions that are drawn, some get a goal that the agent reached, and the rewards that it would have
earned. Goals are chosen anew each time that a batch is drawn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from zoo.buffers.arrays import Array
from zoo.envs.goals import GoalRewards, Infos
from zoo.envs.spaces import ACHIEVED, DESIRED

if TYPE_CHECKING:
    from zoo.buffers.replay import Batch, NStepWindows, ReplayBuffer


class Hindsight:
    """Gives other goals to ``n_sampled_goal`` of ``n_sampled_goal + 1`` transitions that are drawn.

    A goal is what a step has achieved: with ``strategy`` ``future`` the same step or a later one of the
    episode, with ``final`` its last, with ``episode`` any of it that is still stored, with ``random`` any
    step that is stored. A transition whose episode has not ended keeps its goal, and so do all while none has
    ended. All steps of a window get one goal; a step that reaches it and so ends the episode ends the window.
    """

    def __init__(self, outcomes: GoalRewards, strategy: str = "future", n_sampled_goal: int = 4) -> None:
        self.outcomes, self.strategy = outcomes, strategy
        self.share = n_sampled_goal / (n_sampled_goal + 1)

    def relabel(
        self, buffer: ReplayBuffer, rng: np.random.Generator, windows: NStepWindows, batch: Batch
    ) -> tuple[NStepWindows, Batch, Array]:
        """Return windows, the batch with other goals in some rows, changed in place, and which rows."""
        episodes = buffer.episodes
        assert episodes is not None
        steps_to_end = episodes.steps_to_end.reshape(-1).take(windows.first * buffer.n_envs + windows.envs)
        rows = self._chosen(rng, steps_to_end)
        if not len(rows):
            return windows, batch, rows
        envs = windows.envs.reshape(-1).take(rows)
        steps = _own_steps(windows).reshape(-1, buffer.n_step).take(rows, axis=0)
        goals = self._goals(rng, buffer, steps[:, 0], envs, steps_to_end.reshape(-1).take(rows))
        if buffer.n_step == 1:
            following = batch["next_observations"][ACHIEVED]
            achieved = following.reshape(-1, *following.shape[steps_to_end.ndim :]).take(rows, axis=0)
        else:
            achieved = buffer.next_observations(steps.reshape(-1), envs.repeat(buffer.n_step), ACHIEVED)
        for name in ("observations", "next_observations"):
            desired = batch[name][DESIRED]
            desired.reshape(-1, *desired.shape[steps_to_end.ndim :])[rows] = goals
        desired = goals if buffer.n_step == 1 else goals.repeat(buffer.n_step, axis=0)
        infos = None if buffer.infos is None else buffer.infos[steps, envs[:, None]].reshape(-1).tolist()
        return self._replace_goal(windows, batch, rows, achieved, desired, infos), batch, rows

    def _chosen(self, rng: np.random.Generator, steps_to_end: Array) -> Array:
        """Return rows, numbered over (…, batch): the share of each batch's transitions of ended episodes.

        Were it one of the whole batch, nearly all that keep their goal could be of episodes under
        way, and no transition with its original goal would come from a finished episode.
        """
        batch_size = steps_to_end.shape[-1]
        if steps_to_end.size == batch_size and steps_to_end.min() >= 0:  # one batch, all of it choosable
            return rng.permutation(batch_size)[: round(self.share * batch_size)]
        order = rng.random((steps_to_end.size // batch_size, batch_size))
        choosable = (steps_to_end >= 0).reshape(order.shape)
        order[~choosable] = 1.0  # behind all others
        n_chosen = np.rint(self.share * choosable.sum(-1)).astype(np.int64)
        rows = np.argsort(order, -1) + batch_size * np.arange(len(order))[:, None]
        return rows[np.arange(batch_size) < n_chosen[:, None]]

    def _goals(
        self, rng: np.random.Generator, buffer: ReplayBuffer, positions: Array, envs: Array, to_end: Array
    ) -> Array:
        """Return the new goal of each of these transitions."""
        if self.strategy == "random":
            sizes = buffer.sizes
            numbers, ends = rng.integers(sizes.sum(), size=len(envs)), np.cumsum(sizes)
            envs = np.searchsorted(ends, numbers, side="right")
            positions = buffer.heads[envs] - ends[envs] + numbers
        elif self.strategy == "final":
            positions = positions + to_end
        else:
            before: Array | int = 0
            if self.strategy == "episode":  # the steps of each transition's episode that are stored before it
                assert buffer.episodes is not None
                stored = (positions - (buffer.heads - buffer.sizes)[envs]) % buffer.length
                before = np.minimum(buffer.episodes.steps_since_start[positions, envs], stored)
            n_choices = before + to_end + 1  # `rng.integers` takes twice as long for bounds that differ
            positions = positions - before + (rng.random(len(envs)) * n_choices).astype(np.int64)
        return buffer.next_observations(positions % buffer.length, envs, ACHIEVED)

    def _replace_goal(
        self,
        windows: NStepWindows,
        batch: Batch,
        rows: Array,
        achieved: Array,
        desired: Array,
        infos: Infos | None,
    ) -> NStepWindows:
        """Write the rewards and ends of some rows under their ``desired`` goals, both (rows · n_step, …).

        A window that is shorter now keeps its next observation, whose value is not used as it has terminated.
        """
        n_step = windows.steps.shape[-1]
        rewards = self.outcomes.rewards(achieved, desired, infos)
        batch["rewards"].reshape(-1, n_step)[rows] = rewards.reshape(-1, n_step)
        terminated = self.outcomes.terminated(achieved, desired, infos)
        if terminated is None:
            return windows
        if n_step == 1:
            batch["terminated"].reshape(-1)[rows] = terminated
            return windows
        ends = terminated.reshape(-1, n_step)
        first_end = np.where(ends.any(-1), ends.argmax(-1) + 1, n_step)
        lengths = windows.lengths.copy()
        new_lengths = np.minimum(lengths.reshape(-1)[rows], first_end)
        lengths.reshape(-1)[rows] = new_lengths
        batch["terminated"].reshape(-1)[rows] = ends[np.arange(len(rows)), new_lengths - 1]
        return windows._replace(lengths=lengths)


def _own_steps(windows: NStepWindows) -> Array:
    """Return the positions of a window's steps, padded with its last step's position."""
    n_step = windows.steps.shape[-1]
    if n_step == 1:
        return windows.steps
    is_own = np.arange(n_step) < windows.lengths[..., None]
    return np.where(is_own, windows.steps, windows.last[..., None])


UNDER_WAY = -1
"""The number of steps to an episode's last one while it has not ended."""


class EpisodeIndex:
    """The number of steps before and after each transition in its episode, for rings (length, n_envs).

    ``steps_to_end`` is `UNDER_WAY` until the episode has ended; ``steps_since_start`` counts steps too that a
    full ring has overwritten.
    """

    BYTES_EACH = 8
    """Its size for each transition."""

    def __init__(self, length: int, n_envs: int) -> None:
        self.length = length
        self.steps_since_start = np.zeros((length, n_envs), np.int32)
        self.steps_to_end = np.full((length, n_envs), UNDER_WAY, np.int32)
        self._lengths = np.zeros(n_envs, np.int64)

    def add(self, positions: Array, envs: Array, dones: Array) -> None:
        """Note the transitions written to these places, and which of them end their episodes."""
        self.steps_since_start[positions, envs] = self._lengths[envs]
        self.steps_to_end[positions, envs] = UNDER_WAY
        self._lengths[envs] += 1
        if dones.any():
            self.end(positions[dones], envs[dones])

    def end(self, positions: Array, envs: Array) -> None:
        """Note that the newest transitions of environments, at these places, end their episodes."""
        lengths = np.minimum(self._lengths[envs], self.length)
        steps = count_up_to(lengths)
        self.steps_to_end[(positions.repeat(lengths) - steps) % self.length, envs.repeat(lengths)] = steps
        self._lengths[envs] = 0

    def rebuild(self, dones: Array, heads: Array, sizes: Array) -> None:
        """Count anew in rings whose newest rows stand before ``heads`` and that hold ``sizes`` rows."""
        self.steps_to_end[:] = UNDER_WAY
        for env, (head, size) in enumerate(zip(heads.tolist(), sizes.tolist(), strict=True)):
            places = (head - size + np.arange(size)) % self.length
            lasts = np.flatnonzero(dones[places, env])
            lengths = np.diff(np.concatenate([[-1], lasts, [size - 1]]))
            steps = count_up_to(lengths)
            self.steps_since_start[places, env] = steps
            n_ended = size - lengths[-1]
            last_steps = np.repeat(lengths[:-1], lengths[:-1]) - 1
            self.steps_to_end[places[:n_ended], env] = last_steps - steps[:n_ended]
            self._lengths[env] = lengths[-1]


def count_up_to(lengths: Array) -> Array:
    """Return 0, 1, … below each of these lengths, one after the other."""
    return np.arange(lengths.sum()) - (lengths.cumsum() - lengths).repeat(lengths)
