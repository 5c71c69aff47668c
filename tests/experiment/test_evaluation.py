"""What an evaluation plays, and what it makes of the returns."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from zoo.algorithms.ppo import PPO2
from zoo.envs.make_env import make_vec_env
from zoo.envs.vec_env import SyncVecEnv
from zoo.errors import ZooError, ZooWarning
from zoo.experiment import evaluation
from zoo.experiment.evaluation import Evaluation, EvaluationCancelledError, evaluate, evaluate_policy


class Fixed(gym.Env[Any, Any]):
    """Episodes of one length; each step is worth 1, and what is observed is the number of steps so far."""

    observation_space = spaces.Box(0, np.inf, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, length: int) -> None:
        self.length = length

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.n_steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.n_steps += 1
        done = self.n_steps == self.length
        info = {"is_success": self.length > 2} if done else {}
        return np.full(1, self.n_steps, np.float32), 1.0, done, False, info


class Recorder:
    """Acts with 0 and keeps what it was asked."""

    def __init__(self) -> None:
        self.observations: list[Any] = []
        self.starts: list[Any] = []
        self.states: list[Any] = []
        self.masks: list[Any] = []

    def predict(self, observations: Any, state: Any, episode_start: Any, **options: Any) -> tuple[Any, Any]:
        self.observations.append(np.copy(observations)[:, 0])
        self.starts.append(np.copy(episode_start))
        self.states.append(state)
        self.masks.append(options.get("action_masks"))
        return np.zeros(len(observations), np.int64), len(self.states)


def two_lengths() -> SyncVecEnv:
    return SyncVecEnv([lambda: Fixed(1), lambda: Fixed(10)])


def test_each_env_plays_equally_many_episodes() -> None:
    evaluation = evaluate(Recorder(), two_lengths(), 8)
    assert sorted(evaluation.lengths.tolist()) == [1, 1, 1, 1, 10, 10, 10, 10]
    assert evaluation.mean == 5.5


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_model_gets_episode_starts_in_autoreset_modes(mode: AutoresetMode) -> None:
    model = Recorder()
    envs = SyncVectorEnv([lambda: Fixed(2), lambda: Fixed(3)], autoreset_mode=mode)
    evaluation = evaluate(model, envs, 6)
    assert sorted(evaluation.lengths.tolist()) == [2, 2, 2, 3, 3, 3]
    for observations, starts in zip(model.observations, model.starts, strict=True):
        np.testing.assert_array_equal(starts, observations == 0)


def test_state_goes_from_one_call_to_the_next() -> None:
    model = Recorder()
    evaluate(model, lambda: Fixed(3), 1)
    assert model.states == [None, 1, 2]


def test_action_masks_reach_the_model() -> None:
    class Masked(Fixed):
        def action_masks(self) -> Any:
            return np.array([True, False])

    model = Recorder()
    evaluate(model, lambda: Masked(2), 1)
    np.testing.assert_array_equal(model.masks[0], [[True, False]])


def test_success_rate_is_there_where_the_env_says_so(ppo2: Callable[..., PPO2]) -> None:
    assert evaluate(Recorder(), two_lengths(), 8).success_rate == 0.5
    assert evaluate(ppo2(), "CartPole-v1", 2).success_rate is None


def test_seed_alone_decides_evaluation_episodes(ppo2: Callable[..., PPO2]) -> None:
    model, envs = ppo2(seed=3), make_vec_env("CartPole-v1", 3)
    first = evaluate(model, envs, 6, seed=4)
    other = evaluate(model, envs, 6, seed=5)
    again = evaluate(model, envs, 6, seed=4)
    np.testing.assert_array_equal(first.returns, again.returns)
    assert first.returns.tolist() != other.returns.tolist()


def test_normaliser_stands_still_and_returns_are_raw(ppo2: Callable[..., PPO2]) -> None:
    model = ppo2(normalize=True).learn(128)
    assert model.normalizer is not None
    before = model.normalizer.state()["arrays"]
    envs = make_vec_env("CartPole-v1", 2, normalize=True)
    evaluation = evaluate(model, envs, 4, seed=0)
    after = model.normalizer.state()["arrays"]
    for name, array in before.items():
        np.testing.assert_array_equal(array, after[name])
    np.testing.assert_array_equal(evaluation.returns, evaluation.lengths)


def test_evaluate_policy_returns_same_as_sb3(ppo2: Callable[..., PPO2]) -> None:
    model = ppo2()
    mean, std = evaluate_policy(model, "CartPole-v1", 5, seed=1)
    returns, lengths = evaluate_policy(model, "CartPole-v1", 5, seed=1, return_episode_rewards=True)
    assert mean == np.mean(returns)
    assert std == np.std(returns)
    assert returns == lengths


def test_evaluation_seeds_stay_the_recorded_ones() -> None:
    class Seeded(Fixed):
        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
            seeds.append(seed)
            return super().reset(seed=seed, options=options)

    seeds: list[int | None] = []
    evaluate(Recorder(), SyncVecEnv([lambda: Seeded(2)] * 3), 3, seed=4)
    assert seeds[:3] == [745480547, 909750677, 251012699]


def test_cancelled_evaluation_raises_within_an_episode() -> None:
    model = Recorder()
    with pytest.raises(EvaluationCancelledError):
        evaluate(model, lambda: Fixed(10), 1, cancelled=lambda: len(model.states) == 3)


def test_summary_names_what_zoo_evaluate_prints() -> None:
    expected = {"mean_return": 2.0, "std_return": 1.0, "iqm_return": 2.0, "ci95": [1.0, 3.0]}
    found = Evaluation(np.array([1.0, 3.0]), np.ones(2, np.int64)).summary()
    assert found == {**expected, "mean_length": 1.0, "n_episodes": 2}


def test_callback_of_evaluate_policy_sees_each_step() -> None:
    seen: list[dict[str, Any]] = []
    model = PPO2({"net_arch": [8]}, "CartPole-v1", compile=False, seed=0)
    returns, lengths = evaluate_policy(
        model.policy,
        "CartPole-v1",
        n_eval_episodes=3,
        callback=lambda locals_, globals_: seen.append(locals_),
        return_episode_rewards=True,
        warn=False,
        n_envs=2,
        seed=0,
    )
    assert len(seen) == sum(lengths) == sum(returns)
    assert [step["done"] for step in seen].count(True) == 3
    assert {(type(step["info"]), float(step["reward"])) for step in seen} == {(dict, 1.0)}
    with pytest.raises(ZooError, match="reward_threshold=500"):
        evaluate_policy(model, "CartPole-v1", 2, reward_threshold=500)
    with pytest.raises(ZooError, match=r"`evaluate_policy.reward_threshold`"):
        evaluate_policy(model, "CartPole-v1", reward_treshold=500)


def test_evaluation_that_does_not_end_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "PATIENCE", 0.01)
    deadline = time.monotonic() + 0.2
    with (
        pytest.warns(ZooWarning, match=r"no episode has ended for .* steps\); env.max_episode_steps"),
        pytest.raises(EvaluationCancelledError),
    ):
        evaluate(Recorder(), lambda: Fixed(-1), 1, cancelled=lambda: time.monotonic() > deadline)
