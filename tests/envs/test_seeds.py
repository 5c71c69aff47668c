"""Seeds of environments and their spaces."""

from __future__ import annotations

import gymnasium as gym
import numpy as np

from zoo.envs import make_vec_env
from zoo.envs.seeds import derived_seeds, seed_spaces, small_seeds, worker_seed


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


def test_trial_draws_from_spaces_as_the_first_episode_of_a_run_does() -> None:
    run = make_vec_env("CartPole-v1", 1, seed=5)
    run.reset()
    trial = gym.make("CartPole-v1")
    seed_spaces(trial, 5)
    for name in ("action_space", "observation_space"):
        tried, played = getattr(trial, name), getattr(run.envs[0], name)
        for _ in range(20):
            assert np.array_equal(tried.sample(), played.sample())
