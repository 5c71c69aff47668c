"""Runs end early where they were told to."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from zoo.algorithms.ppo2 import PPO2
from zoo.training.eval_callback import EvalCallback
from zoo.training.stopping import (
    StopTrainingOnMaxEpisodes,
    StopTrainingOnNoModelImprovement,
    StopTrainingOnRewardThreshold,
)

ALREADY_PERFECT = {"n_seen": 0, "n_without": 0, "best": 500.0}


@pytest.fixture
def evaluation() -> EvalCallback:
    return EvalCallback("CartPole-v1", every=64, n_eval_episodes=2, seed=0)


def test_run_ends_with_the_evaluation_that_reaches_the_threshold(
    ppo2: Callable[..., PPO2], evaluation: EvalCallback
) -> None:
    model = ppo2()
    model.learn(6400, [evaluation, StopTrainingOnRewardThreshold(evaluation, 1.0)])
    assert model.num_timesteps == 64
    assert model.stop_reason is not None
    assert "has reached the threshold 1" in model.stop_reason


def test_reaching_the_threshold_exactly_is_enough(
    ppo2: Callable[..., PPO2], evaluation: EvalCallback
) -> None:
    """Many environments have a best return that no agent can exceed."""
    ppo2().learn(64, evaluation)
    assert evaluation.last is not None
    reached = evaluation.last.mean
    for threshold, steps in ((reached, 64), (np.nextafter(reached, np.inf), 128)):
        again = EvalCallback("CartPole-v1", every=64, n_eval_episodes=2, seed=0)
        model = ppo2().learn(128, [again, StopTrainingOnRewardThreshold(again, float(threshold))])
        assert model.num_timesteps == steps


def test_run_goes_on_below_the_threshold(ppo2: Callable[..., PPO2], evaluation: EvalCallback) -> None:
    model = ppo2()
    model.learn(256, [evaluation, StopTrainingOnRewardThreshold(evaluation, 501.0)])
    assert model.num_timesteps == 256


def test_run_ends_after_evaluations_without_a_better_one(
    ppo2: Callable[..., PPO2], evaluation: EvalCallback
) -> None:
    model, stop = ppo2(), StopTrainingOnNoModelImprovement(evaluation, max_no_improvement_evals=2)
    stop.load_state(ALREADY_PERFECT)
    model.learn(6400, [evaluation, stop])
    assert evaluation.n_evaluations == 3
    assert model.stop_reason == "no better mean return than 500 in 3 evaluations"


def test_first_evaluations_do_not_count_for_no_improvement(
    ppo2: Callable[..., PPO2], evaluation: EvalCallback
) -> None:
    stop = StopTrainingOnNoModelImprovement(evaluation, max_no_improvement_evals=2, min_evals=4)
    stop.load_state(ALREADY_PERFECT)
    ppo2().learn(6400, [evaluation, stop])
    assert evaluation.n_evaluations == 7


def test_count_without_improvement_goes_on_after_a_resume(evaluation: EvalCallback) -> None:
    stop = StopTrainingOnNoModelImprovement(evaluation, 2)
    stop.load_state({"n_seen": 4, "n_without": 2, "best": 30.0})
    assert stop.state() == {"n_seen": 4, "n_without": 2, "best": 30.0}


def test_run_ends_with_the_last_episode_it_may_have(ppo2: Callable[..., PPO2]) -> None:
    model = ppo2()
    model.learn(6400, StopTrainingOnMaxEpisodes(5))
    assert 5 <= model.n_episodes < 15
    assert model.num_timesteps < 6400
