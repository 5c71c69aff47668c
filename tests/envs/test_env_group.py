"""Environments that are stepped one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from scripted import Counting

from zoo.envs.env_group import EnvGroup
from zoo.envs.step_arrays import StepArrays
from zoo.envs.whereabouts import Whereabouts


def test_it_is_known_which_environment_is_at_work_while_it_is() -> None:
    at_work: list[str | None] = []

    class Looking(Counting):
        def reset(self, **options: Any) -> Any:
            at_work.append(whereabouts.at_work())
            return super().reset(**options)

        def step(self, action: Any) -> Any:
            at_work.append(whereabouts.at_work())
            return super().step(action)

    group = EnvGroup([Looking, Looking], 3, reseed_every=1000, renew=False)
    arrays = StepArrays.allocate(2, group.observation_space, group.action_space)
    group.use_arrays(arrays)
    whereabouts = Whereabouts(arrays.whereabouts, 3)
    group.reset([7, 8], None, [0, 1])
    assert at_work == ["env 3 (seed 7)", "env 4 (seed 8)"]
    assert whereabouts.at_work() is None
    at_work.clear()
    group.step(np.zeros(2, np.int64))
    assert at_work == ["env 3 (step 1 after seed 7)", "env 4 (step 1 after seed 8)"]
    assert whereabouts.at_work() is None


class Told(Counting):
    """Shows what it is told, and the episode's steps."""

    told = 0.0

    def __init__(self) -> None:
        super().__init__(lengths=(9,))
        plain = self.observation_space
        self.observation_space: Any = spaces.Dict({"steps": plain, "told": spaces.Box(-9.0, 9.0, (1,))})

    def _shown(self) -> Any:
        return {"steps": super()._shown() * [0, 1], "told": np.full(1, self.told, np.float32)}


@pytest.mark.parametrize("told", [0.0, np.nan, 1.0])
def test_every_part_of_an_observation_says_whether_a_replay_came_out_the_same(told: float) -> None:
    """A NaN is equal to itself."""
    group = EnvGroup([Told], reseed_every=1000, renew=False)
    group.use_arrays(StepArrays.allocate(1, group.observation_space, group.action_space))
    Told.told = told if np.isnan(told) else 0.0
    group.reset([7], None, [0])
    group.step(np.zeros(1, np.int64))
    state = group.states()
    Told.told = told
    assert group.load_states(state) == ([0] if told == 1.0 else [])
    Told.told = 0.0


def test_it_is_known_which_step_is_repeated_while_it_is() -> None:
    at_work: list[str | None] = []

    class Looking(Counting):
        def step(self, action: Any) -> Any:
            at_work.append(whereabouts.at_work())
            return super().step(action)

    group = EnvGroup([Looking, Looking], 3, reseed_every=1000, renew=False)
    arrays = StepArrays.allocate(2, group.observation_space, group.action_space)
    group.use_arrays(arrays)
    whereabouts = Whereabouts(arrays.whereabouts, 3)
    group.reset([7, 8], None, [0, 1])
    for _ in range(2):
        group.step(np.zeros(2, np.int64))
    states = group.states()
    at_work.clear()
    again = EnvGroup([Looking, Looking], 3, reseed_every=1000, renew=False)
    again.use_arrays(arrays)
    again.load_states(states)
    assert at_work == [f"env {i} (step {n} after seed {i + 4})" for i in (3, 4) for n in (1, 2)]
    assert whereabouts.at_work() is None


def test_nothing_is_gained_before_the_first_reset() -> None:
    group = EnvGroup([Counting, Counting], reseed_every=1000, renew=False)
    group.use_arrays(StepArrays.allocate(2, group.observation_space, group.action_space))
    assert [(state.episode_return, state.length) for state in group.states()] == [(0.0, 0)] * 2
