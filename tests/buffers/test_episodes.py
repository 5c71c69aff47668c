"""Where in its episode each stored transition stands, against counting in lists."""

from __future__ import annotations

import numpy as np
import pytest

from zoo.buffers.rings import UNDER_WAY, Episodes


def counted_slowly(ended: list[bool]) -> tuple[list[int], list[int]]:
    """Return how many steps of its episode come before each, and how many behind it."""
    since, to_go = [], []
    for step in range(len(ended)):
        since.append(step - max([i + 1 for i in range(step) if ended[i]], default=0))
        ends = [i for i in range(step, len(ended)) if ended[i]]
        to_go.append(ends[0] - step if ends else UNDER_WAY)
    return since, to_go


@pytest.mark.parametrize("n_steps", [1, 5, 20, 57])
def test_steps_of_an_episode_before_and_behind_each_are_counted(n_steps: int) -> None:
    """Also those that a ring of 20 has overwritten, as long as their episode goes on."""
    length, n_envs = 20, 3
    ended = np.random.default_rng(0).random((n_steps, n_envs)) < [0.02, 0.1, 0.5]
    episodes, envs = Episodes(length, n_envs), np.arange(n_envs)
    for step in range(n_steps):
        episodes.added(np.full(n_envs, step % length), envs, ended[step])
    stored = np.arange(max(0, n_steps - length), n_steps)
    for env in range(n_envs):
        since, to_go = counted_slowly(ended[:, env].tolist())
        assert episodes.since[stored % length, env].tolist() == [since[step] for step in stored]
        assert episodes.to_go[stored % length, env].tolist() == [to_go[step] for step in stored]


def test_counting_goes_on_in_rings_that_were_taken_over() -> None:
    ended = np.array([[False, True], [True, False], [False, False], [False, True]])
    added, rebuilt, envs = Episodes(6, 2), Episodes(6, 2), np.arange(2)
    for step in range(4):
        added.added(np.full(2, step), envs, ended[step])
    ring = np.concatenate([ended, np.ones((2, 2), np.bool_)])
    rebuilt.rebuild(ring, np.full(2, 4), np.full(2, 4))
    for episodes in (added, rebuilt):
        episodes.added(np.full(2, 4), envs, np.array([True, False]))
        assert episodes.since[:5].T.tolist() == [[0, 1, 0, 1, 2], [0, 0, 1, 2, 0]]
        assert episodes.to_go[:5].T.tolist() == [[1, 0, 2, 1, 0], [0, 2, 1, 0, UNDER_WAY]]
