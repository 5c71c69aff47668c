"""One environment in several hands: refused where it can't be, left open, noticed where others step it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from zoo import A2C, PPO2, check_env, evaluate_policy
from zoo.envs import VecEnvAdapter, make_vec_env
from zoo.envs.sync_vec_env import SyncVecEnv
from zoo.errors import ZooError

SMALL = {"net_arch": [4]}


class Clock(gym.Env[Any, Any]):
    """Observes how often it was reset and stepped in all, so that no two moments look alike."""

    observation_space = spaces.Box(0, 1e6, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self.n_resets = self.n_steps = self.n_closed = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.n_resets += 1
        return self._shown(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.n_steps += 1
        return self._shown(), 1.0, self.n_steps % 10 == 0, False, {}

    def _shown(self) -> Any:
        return np.array([self.n_resets, self.n_steps], np.float32)

    def close(self) -> None:
        self.n_closed += 1


def one(count: int, **options: Any) -> Callable[[Clock], Any]:
    return lambda env: make_vec_env(lambda: env, count, **options)


@pytest.mark.parametrize(
    "make",
    [
        one(2),
        one(3, check=False),
        one(2, training=False),
        one(2, vectorization="workers", check=False, start_method="fork", n_workers=1),
        lambda env: make_vec_env(lambda: gym.wrappers.TimeLimit(env, 5), 2, check=False),
        lambda env: SyncVecEnv([lambda: Clock(), lambda: env, lambda: env]),
        lambda env: VecEnvAdapter(gym.vector.SyncVectorEnv([lambda: env] * 2)),
        lambda env: PPO2(SMALL, lambda: env, n_envs=8, compile=False),
        lambda env: evaluate_policy(PPO2(SMALL, Clock, compile=False), lambda: env, n_envs=2),
    ],
)
def test_one_env_in_several_places_is_refused_by_name_and_left_open(make: Callable[[Clock], Any]) -> None:
    env = Clock()
    with pytest.raises(ZooError, match=r"Clock.*expected"):
        make(env)
    assert env.n_closed == 0


@pytest.mark.parametrize(
    "use",
    [
        lambda env: PPO2(SMALL, lambda: env, compile=False),
        lambda env: PPO2(SMALL, env, compile=False),
        lambda env: make_vec_env(lambda: gym.wrappers.TimeLimit(env, 5)),
        lambda env: check_env(lambda: env, frame_stack=2),
        lambda env: check_env(env),
    ],
)
def test_trial_closes_nothing_of_the_users_own(use: Callable[[Clock], Any]) -> None:
    env = Clock()
    used = use(env)
    assert used is not None
    assert env.n_closed == 0


def test_trial_closes_each_env_that_a_function_makes() -> None:
    made: list[Clock] = []

    def make() -> Clock:
        made.append(Clock())
        return made[-1]

    check_env(make)
    assert made
    assert all(env.n_closed == 1 for env in made)


def test_whoever_steps_a_vector_env_that_a_model_holds_disturbs_it() -> None:
    for envs in (make_vec_env("CartPole-v1", 2), make_vec_env(Clock, 2, check=False)):
        model = A2C(SMALL, envs, seed=0, n_steps=4, compile=False).learn(12)
        assert model.envs is not None
        assert not model.envs.was_disturbed
        envs.step(envs.action_space.sample())
        assert model.envs.was_disturbed
        model.learn(12, reset_num_timesteps=False)
        assert not model.envs.was_disturbed
        evaluate_policy(model, envs, 2)
        assert model.envs.was_disturbed
