"""The toys: their best return is reached by the right actions and by nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import zoo.envs  # noqa: F401
from zoo.envs.toys import HIDDEN
from zoo.envs.wrappers import VELOCITIES

TOYS = sorted(env_id for env_id in gym.registry if env_id.startswith("Zoo/"))


def mean_return(env_id: str, act: Callable[[Any, Any], Any], n_episodes: int = 30) -> float:
    env = gym.make(env_id)
    total = 0.0
    for episode in range(n_episodes):
        observation, _ = env.reset(seed=episode)
        env.action_space.seed(1000 + episode)
        done = False
        while not done:
            observation, reward, terminated, truncated, _ = env.step(act(env, observation))
            total += float(reward)
            done = terminated or truncated
    return total / n_episodes


def sampled(env: Any, observation: Any) -> Any:
    return env.action_space.sample()


@pytest.mark.parametrize("env_id", TOYS)
def test_toy_is_a_proper_env(env_id: str) -> None:
    check_env(gym.make(env_id).unwrapped, skip_render_check=True)


@pytest.mark.parametrize("kind", ["", "Discrete", "Box", "MultiDiscrete", "MultiBinary"])
def test_repeating_the_observation_is_best(kind: str) -> None:
    env_id = f"Zoo/Identity{kind}-v0"
    assert mean_return(env_id, lambda env, observation: observation) == pytest.approx(20.0)
    assert mean_return(env_id, sampled) < 13.0


def test_bright_quarter_is_right() -> None:
    def act(env: Any, image: Any) -> int:
        quarters = [image[:18, :18], image[:18, 18:], image[18:, :18], image[18:, 18:]]
        return int(np.argmax([quarter.mean() for quarter in quarters]))

    assert mean_return("Zoo/IdentityImage-v0", act) == 20.0
    assert mean_return("Zoo/IdentityImage-v0", sampled) < 8.0


def test_all_parts_of_a_dictionary_count() -> None:
    def act(env: Any, observation: Any) -> Any:
        image = observation["image"].astype(float)
        quarter = 2 * (image[18:].sum() > 0) + (image[:, 18:].sum() > 0)
        return np.array([observation["vector"].sum() > 0, quarter, observation["number"]])

    assert mean_return("Zoo/IdentityDict-v0", act) == pytest.approx(20.0)
    assert mean_return("Zoo/IdentityDict-v0", sampled) < 10.0


def test_forbidden_action_ends_the_masked_env() -> None:
    def act(env: Any, observation: Any) -> int:
        return int(np.argmax(np.where(env.unwrapped.action_masks(), observation, -1.0)))

    assert mean_return("Zoo/Masked-v0", act) == pytest.approx(20.0)
    assert mean_return("Zoo/Masked-v0", lambda env, observation: int(np.argmax(observation))) < 4.0


def test_memory_is_needed_for_the_cue() -> None:
    cue = 0

    def remembering(env: Any, observation: Any) -> int:
        nonlocal cue
        cue = int(observation[0] > 0) if observation[0] else cue
        return cue

    assert mean_return("Zoo/Memory-v0", remembering) == 1.0
    assert abs(mean_return("Zoo/Memory-v0", sampled, 300)) < 0.3


def test_bits_can_all_be_flipped_in_time() -> None:
    def act(env: Any, observation: Any) -> int:
        return int(np.argmax(observation["observation"] != observation["desired_goal"]))

    def act_continuously(env: Any, observation: Any) -> Any:
        return np.where(observation["observation"] != observation["desired_goal"], 1.0, -1.0)

    assert mean_return("Zoo/BitFlipping-v0", act) > -12.0
    assert mean_return("Zoo/BitFlipping-v0", sampled) == -15.0
    assert mean_return("Zoo/BitFlippingContinuous-v0", act_continuously) == 0.0


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
