"""What may be said about an environment, and what is refused."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import pytest
from scripted import Counting

from zoo.envs import EnvConfig, make_vec_env
from zoo.envs.config import env_config
from zoo.errors import ZooError


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vectorisation": "sync"}, "did you mean `env.vectorization`"),
        ({"vectorization": "worker"}, "did you mean `workers`"),
        ({"normalize": {"gama": 1}}, "did you mean `env.normalize.gamma`"),
        ({"normalize": "yes"}, "wrong type"),
        ({"atari": {"frameskip": 2}}, "did you mean `env.atari.frame_skip`"),
        ({"action_repeat": 0}, "out of range"),
    ],
)
def test_wrong_value_is_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ZooError, match=message):
        env_config("CartPole-v1", **options)


def test_options_are_laid_over_a_config() -> None:
    config = env_config(EnvConfig("CartPole-v1", max_episode_steps=7), frame_stack=2)
    assert (config.id, config.max_episode_steps, config.frame_stack) == ("CartPole-v1", 7, 2)


def test_arguments_of_the_env_are_passed_on() -> None:
    env = make_vec_env("CartPole-v1", kwargs={"sutton_barto_reward": True}, max_episode_steps=5)
    assert env.envs[0].unwrapped._sutton_barto_reward
    assert env.envs[0].get_wrapper_attr("_max_episode_steps") == 5


def test_argument_that_the_env_does_not_have_is_refused() -> None:
    with pytest.raises(ZooError, match=r"does not take these env\.kwargs(.|\n)*colour"):
        make_vec_env("CartPole-v1", kwargs={"colour": "red"})


def test_time_limit_can_be_put_around_a_made_env() -> None:
    env = make_vec_env(Counting, max_episode_steps=1, check=False, seed=0)
    env.reset()
    assert env.step([0])[3].tolist() == [True]


def test_id_of_a_made_env_is_what_it_is_registered_as() -> None:
    assert env_config(gym.make("CartPole-v1")).id == "CartPole-v1"
    assert env_config(Counting).id == "Counting"
