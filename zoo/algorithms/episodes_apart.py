"""Whole episodes side by side, each of a policy of its own, from a seed of its own, with its own score.

What comes of an episode depends on its weights, its seed and the statistics that observations are normalised
with, which stand still meanwhile: not on how many environments there are, nor on which of them played it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from zoo.algorithms.interaction import Interaction
from zoo.envs.monitor import EpisodeRecord
from zoo.envs.normalize import MomentsByRow, Normalizer, is_training
from zoo.errors import ZooError
from zoo.policies.acting import BatchedPolicy

Array = np.ndarray

LONGEST_EPISODE = 1_000_000
"""Steps without an end after which nobody waits any longer."""


class Played(NamedTuple):
    """What came of some episodes, in the order in which they were asked for."""

    results: Array
    """Of each the sum of the rewards that its environment gave, its steps, and what it has shown
    (`Normalizer.merge`): (episodes, 2 + …). Wrappers change that sum, other than the return of its record."""
    records: list[EpisodeRecord]
    """In the order in which they ended."""


class EpisodesApart(Interaction):
    """An interaction that plays as many episodes as it is told, and nothing else.

    Environments that can't be seeded one by one are reset together for the first episodes, and go on by
    themselves; so there the number of environments does make a difference.
    """

    looks_at_all = True

    def play(self, acting: BatchedPolicy, vectors: Array, episodes: Sequence[tuple[int, int]]) -> Played:
        """Play the episodes, a row of ``vectors`` and a seed each, as environments become free.

        Raises `ZooError` for an episode without end.
        """
        envs, normalizer = self.envs, self._to_be_told()
        moments = None if normalizer is None else MomentsByRow(normalizer, envs.num_envs)
        n_seen = 0 if moments is None else len(moments.seen_by(0))
        results, records = np.zeros((len(episodes), 2 + n_seen)), []
        steps, rewards = np.zeros(envs.num_envs, np.int64), np.zeros(envs.num_envs)
        everywhere = np.ones(envs.num_envs, np.bool_)
        waiting, playing = deque(range(len(episodes))), dict[int, int]()

        def begin(rows: Iterable[int]) -> None:
            seeds = {}
            for row, episode in zip(rows, [*waiting], strict=False):
                vector, seeds[row] = episodes[waiting.popleft()]
                acting.vectors[row].copy_(torch.from_numpy(vectors[vector]))
                playing[row], steps[row], rewards[row], envs.idle[row] = episode, 0, 0.0, False
            if seeds and moments is not None:
                moments.start(list(seeds))
            if seeds and envs.is_replayable:
                self.show(envs.begin(seeds))

        if not envs.is_replayable:
            self.reset([episodes[row % len(episodes)][1] for row in range(envs.num_envs)])
        envs.idle[:] = True
        begin(range(envs.num_envs))
        while playing:
            experience = self.step(lambda seen: {"actions": acting.act(seen)})
            counted = experience.outcome.valid
            counted = everywhere if counted is None else counted
            steps += counted
            rewards += np.where(counted, experience.outcome.rewards, 0.0)
            if moments is not None:
                moments.update(experience.observations, counted)
            for record in experience.outcome.episodes:
                row = record.env_index
                result = results[playing.pop(row)]
                result[:2] = rewards[row], steps[row]
                if moments is not None:
                    result[2:] = moments.seen_by(row)
                envs.idle[row] = True
                records.append(record)
            if experience.outcome.episodes:
                begin([record.env_index for record in experience.outcome.episodes])
            elif steps.max() > LONGEST_EPISODE:
                self._refuse_to_wait(int(steps.argmax()))
        return Played(results, records)

    def _to_be_told(self) -> Normalizer | None:
        """Return the normaliser whose statistics are to follow what the episodes show, if there is one."""
        normalizer = self.normalizer
        follows = normalizer is not None and normalizer.observations and is_training(self.envs.given_env)
        return normalizer if follows else None

    def _following(self) -> None:
        """While episodes are played no statistics change."""

    def _refuse_to_wait(self, row: int) -> None:
        raise ZooError(
            f"environment {row} has taken {LONGEST_EPISODE:,} steps without an end of its episode, and only"
            " whole episodes can be compared; give them a time limit (env.max_episode_steps)"
        )

    def state(self) -> dict[str, Any]:
        """Return nothing: whatever comes next begins with new episodes."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> list[int]:
        """Cut nothing."""
        return []
