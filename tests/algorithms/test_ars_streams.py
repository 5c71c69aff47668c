"""What ARS draws from: streams of their own for directions and for episodes, others at each update."""

from __future__ import annotations

from zoo import ARS
from zoo.algorithms.ars import DIRECTIONS, EPISODES


def test_directions_and_episodes_have_streams_of_their_own_at_each_update() -> None:
    model = ARS("LinearPolicy", "CartPole-v1", seed=3, compile=False, threads=1)
    drawn = set()
    for n_updates in range(3):
        model.n_updates = n_updates
        drawn |= {model._drawn(stream).random() for stream in (DIRECTIONS, EPISODES)}
    assert len(drawn) == 6
    model.n_updates = 0
    assert {model._drawn(stream).random() for stream in (DIRECTIONS, EPISODES)} < drawn
