"""Evaluation while training."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.wrappers import TimeLimit

from zoo.algorithms.algorithm import Algorithm
from zoo.algorithms.callback import PREEMPTED, Callback
from zoo.algorithms.ppo import PPO2
from zoo.envs.vec_env import make_vec_env
from zoo.experiment.callbacks import EvalCallback, read_evaluations
from zoo.experiment.evaluation import evaluate
from zoo.experiment.run_folder import RunFolder


class Spy(Callback):
    """Keeps what was logged at each evaluation."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.metrics: list[dict[str, float]] = []

    def on_steps(self, algorithm: Algorithm) -> None:
        self.metrics.append(algorithm.read_metrics())


def test_evaluations_are_written_under_the_names_of_stable_baselines(
    run: RunFolder, ppo2: Callable[..., PPO2]
) -> None:
    ppo2().learn(384, EvalCallback("CartPole-v1", every=128, n_eval_episodes=3, run=run))
    with np.load(run.evaluations) as file:
        assert sorted(file.files) == ["ep_lengths", "results", "timesteps"]
        assert file["timesteps"].tolist() == [128, 256, 384]
        assert file["results"].shape == file["ep_lengths"].shape == (3, 3)


def test_successes_are_written_where_there_are_any(run: RunFolder, ppo2: Callable[..., PPO2]) -> None:
    class Succeeding(CartPoleEnv):
        def step(self, action: Any) -> Any:
            observation, reward, terminated, truncated, info = super().step(action)
            return observation, reward, terminated, truncated, {**info, "is_success": not terminated}

    def env() -> TimeLimit[Any, Any, Any]:
        return TimeLimit(Succeeding(), 10)

    spy = Spy(128)
    ppo2().learn(256, [EvalCallback(env, every=128, n_eval_episodes=4, run=run), spy])
    with np.load(run.evaluations) as file:
        assert file["successes"].shape == (2, 4)
        assert spy.metrics[0]["eval/success_rate"] == file["successes"][0].mean()


def test_best_agent_is_the_one_that_scored_best(run: RunFolder, ppo2: Callable[..., PPO2]) -> None:
    evaluation = EvalCallback("CartPole-v1", every=64, n_eval_episodes=3, seed=5, run=run)
    ppo2().learn(1280, evaluation)
    results = [each.mean for _, each in read_evaluations(run.evaluations)]
    card = json.loads((run.best_agent / "card.json").read_text())
    assert card["mean_return"] == max(results)
    assert card["n_eval_episodes"] == 3
    # Of equal ones it is the latest.
    number = max(i for i, result in enumerate(results) if result == max(results))
    assert card["timesteps"] == 64 * (number + 1)
    best = PPO2.load(run.best_agent)
    again = evaluate(best, make_vec_env("CartPole-v1", 3), 3, seed=(5, number))
    assert again.mean == max(results)


def test_confirmed_best_agent_is_judged_by_more_episodes_from_the_same_seeds(
    run: RunFolder, ppo2: Callable[..., PPO2]
) -> None:
    evaluation = EvalCallback("CartPole-v1", every=64, n_eval_episodes=2, seed=5, confirm=20, run=run)
    confirmed = []

    class Judged(Callback):
        every = 64

        def on_steps(self, algorithm: Algorithm) -> None:
            short, long = (
                evaluate(algorithm, make_vec_env("CartPole-v1", 2), n, seed=(5, i)).mean
                for i, n in enumerate((2, 20))
            )
            best = max(confirmed, default=-np.inf)
            if short >= best and long >= best:
                confirmed.append(long)

    ppo2().learn(1280, [Judged(), evaluation])
    card = json.loads((run.best_agent / "card.json").read_text())
    assert len(confirmed) > 1
    assert card["mean_return"] == confirmed[-1] == max(confirmed)
    assert card["n_eval_episodes"] == 20
    assert {each.n_episodes for _, each in read_evaluations(run.evaluations)} == {2}


def test_evaluation_that_a_signal_interrupts_counts_for_nothing(
    run: RunFolder, ppo2: Callable[..., PPO2]
) -> None:
    class Signal(Callback):
        every = 128

        def on_steps(self, algorithm: Algorithm) -> None:
            algorithm.request_stop(PREEMPTED)

    evaluation = EvalCallback("CartPole-v1", every=128, run=run)
    ppo2().learn(256, [Signal(), evaluation])
    assert evaluation.n_evaluations == 0
    assert not run.evaluations.exists()


def test_of_agents_that_score_the_same_the_latest_is_the_best(
    run: RunFolder, ppo2: Callable[..., PPO2]
) -> None:
    env = TimeLimit(CartPoleEnv(), 3)  # no pole falls so soon
    ppo2().learn(192, EvalCallback(env, every=64, n_eval_episodes=1, run=run))
    assert json.loads((run.best_agent / "card.json").read_text())["timesteps"] == 192
