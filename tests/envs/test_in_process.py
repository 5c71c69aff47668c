"""The vector environment that steps in this process: seeds, steps, what is refused."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from scripted import Counting, Noisy, assert_same

from zoo.envs import EnvConfig, make_vec_env
from zoo.envs.config import env_config
from zoo.envs.replay import derived_seeds, small_seeds, worker_seed
from zoo.errors import ZooError


@pytest.mark.parametrize("make", [Counting, Noisy, lambda: gym.make("FrozenLake-v1")])
def test_steps_are_those_of_gymnasiums_same_step_env(make: Any) -> None:
    ours = make_vec_env(make, 3, check=False)
    theirs = SyncVectorEnv([make] * 3, autoreset_mode=AutoresetMode.SAME_STEP)
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    assert_same(ours.reset(seed=5), theirs.reset(seed=5))
    theirs.action_space.seed(0)
    for _ in range(60):
        actions = theirs.action_space.sample()
        for one, other in zip(ours.step(actions), theirs.step(actions), strict=True):
            assert_same(one, other)


def test_actions_stay_as_the_caller_gave_them() -> None:
    class Greedy(Noisy):
        def step(self, action: Any) -> Any:
            action *= 2
            return super().step(action)

    env = make_vec_env(Greedy, 2, seed=0, check=False)
    env.reset()
    actions = np.ones((2, 2), dtype=np.int64)
    env.step(actions)
    assert (actions == 1).all()


def test_actions_of_a_wrong_shape_are_refused() -> None:
    env = make_vec_env("CartPole-v1", 2, seed=0)
    env.reset()
    with pytest.raises(ValueError, match=r"shape \(2, 1\); expected \(2,\)"):
        env.step(np.zeros((2, 1)))


def test_envs_with_different_spaces_are_refused() -> None:
    makers = [lambda: gym.make("CartPole-v1"), lambda: gym.make("Acrobot-v1")]
    with pytest.raises(ZooError, match=r"env 1 has another observation_space than env 0: Box\(4,\) float32"):
        make_vec_env(lambda: makers.pop(0)(), 2, check=False)


def test_options_of_a_reset_reach_the_envs_but_for_which_are_reset() -> None:
    class Asked(Counting):
        options: Any = "never reset"

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
            self.options = options
            return super().reset(seed=seed)

    vector_env = make_vec_env(Asked, 2, check=False)

    def seen() -> list[Any]:
        return [env.unwrapped.options for env in vector_env.unwrapped.envs]  # type: ignore[attr-defined]

    vector_env.reset(seed=0, options={"level": 3})
    assert seen() == [{"level": 3}] * 2
    vector_env.reset(options={"reset_mask": np.array([True, False])})
    assert seen() == [None, {"level": 3}]


def test_only_the_masked_envs_are_reset() -> None:
    env = make_vec_env(Counting, 3, check=False)
    env.reset(seed=0)
    env.step(np.zeros(3))
    observations, _ = env.reset(options={"reset_mask": np.array([False, True, False])})
    assert observations.tolist() == [[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]


def test_one_env_instance_can_be_given() -> None:
    env = make_vec_env(gym.make("CartPole-v1"), seed=0)
    assert env.num_envs == 1
    with pytest.raises(ZooError, match="function that makes one"):
        make_vec_env(gym.make("CartPole-v1"), 2)


@pytest.mark.parametrize("seed", [-1, "3", 0.5])
def test_wrong_seed_is_refused(seed: Any) -> None:
    with pytest.raises(ZooError, match="expected a whole number, 0 or more"):
        make_vec_env("CartPole-v1", seed=seed)


def test_zero_envs_are_refused() -> None:
    with pytest.raises(ZooError, match="n_envs=0"):
        make_vec_env("CartPole-v1", 0)


def test_one_number_seeds_each_simulator_in_its_turn_and_none_is_too_large_for_one() -> None:
    assert small_seeds(5, 3) == small_seeds(np.int64(5), 3) == [5, 6, 7]
    assert small_seeds([9, 4], 2) == [9, 4]
    largest = 2**31 - 1
    assert small_seeds(largest - 2, 4) == [largest - 2, largest - 1, 0, 1]


def test_each_worker_of_each_run_has_a_seed_of_its_own() -> None:
    """Also one that no other stream of the run has."""
    seeds = [worker_seed(seed, rank) for seed in range(20) for rank in range(8)]
    others = [each for seed in range(20) for each in derived_seeds(seed, 8)]
    assert len({*seeds, *others}) == 2 * 20 * 8
    assert worker_seed(3, 2) == worker_seed(3, 2)


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


def test_id_of_a_made_env_is_what_it_is_registered_as() -> None:
    assert env_config(gym.make("CartPole-v1")).id == "CartPole-v1"
    assert env_config(Counting).id == "Counting"
