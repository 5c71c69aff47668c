"""Runs end early where they were told to."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from zoo.algorithms.ppo import PPO2
from zoo.experiment.callbacks import (
    EvalCallback,
    StopTrainingOnMaxEpisodes,
    StopTrainingOnNoModelImprovement,
    StopTrainingOnRewardThreshold,
)

ALREADY_PERFECT = {"n_seen": 0, "n_without": 0, "best": 500.0}


@pytest.fixture
def evaluation() -> EvalCallback:
    return EvalCallback("CartPole-v1", every=64, n_eval_episodes=2, seed=0)


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


def test_run_ends_with_the_last_episode_it_may_have(ppo2: Callable[..., PPO2]) -> None:
    model = ppo2()
    model.learn(6400, StopTrainingOnMaxEpisodes(5))
    assert model.stop_reason == "5 episodes are done"
    assert 5 <= model.n_episodes < 15
    assert model.num_timesteps < 6400
