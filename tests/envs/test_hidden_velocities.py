"""Environments without velocities are those that show them, with zeros in their place."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

import zoo.envs  # noqa: F401
from zoo.envs.hidden_velocities import HIDDEN
from zoo.envs.wrappers import VELOCITIES

LIGHT = [env_id for env_id in HIDDEN if "Lander" not in env_id]


@pytest.mark.parametrize("env_id", LIGHT)
def test_only_velocities_are_hidden(env_id: str) -> None:
    hiding, showing = gym.make(env_id), gym.make(HIDDEN[env_id])
    assert hiding.spec is not None
    assert showing.spec is not None
    assert hiding.spec.max_episode_steps == showing.spec.max_episode_steps
    hidden = list(VELOCITIES[env_id.partition("NoVel")[0]])
    seen = [env.reset(seed=3)[0] for env in (hiding, showing)]
    moved = False
    hiding.action_space.seed(0)
    for _ in range(5):
        moved |= bool(seen[1][hidden].all())
        expected = seen[1].copy()
        expected[hidden] = 0
        np.testing.assert_array_equal(seen[0], expected)
        action = hiding.action_space.sample()
        steps = [env.step(action) for env in (hiding, showing)]
        assert steps[0][1:4] == steps[1][1:4]
        seen = [step[0] for step in steps]
    assert moved


def test_their_time_limit_is_the_only_one() -> None:
    env = gym.make("PendulumNoVel-v1", max_episode_steps=300)
    env.reset(seed=0)
    ends = [env.step(env.action_space.sample())[3] for _ in range(300)]
    assert ends.index(True) == 299


def test_all_of_them_are_registered() -> None:
    for env_id, shown in HIDDEN.items():
        assert gym.spec(env_id).reward_threshold == gym.spec(shown).reward_threshold
