"""Environments compute the same in the training process and in workers, denormal numbers included."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from zoo import A2C
from zoo.envs import VecEnvAdapter, make_vec_env
from zoo.optim.runtime import torch_settings

SMALL = np.float32(1e-30)
DENORMAL = np.float32(1e-40)


class Shrinking(gym.Env[Any, Any]):
    """Shows products that are denormal, and whether another number was taken for zero."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self._observation(), {}

    def step(self, action: Any) -> Any:
        observation = self._observation()
        return observation, float(observation[2]), False, False, {}

    def _observation(self) -> Any:
        factors = np.full(2, SMALL) * np.array([1e-10, 2e-10], np.float32)
        return np.array([*factors, DENORMAL * np.float32(1e38) > 0], np.float32)


def observations(vectorization: str, **options: Any) -> list[Any]:
    envs = VecEnvAdapter(make_vec_env(Shrinking, 2, vectorization=vectorization, check=False, **options))
    with torch_settings(threads=1):
        shown = [envs.reset([0, 1]), *(envs.step(np.zeros(2, np.int64)).observations for _ in range(3))]
    envs.close()
    return [each.view(np.uint32).tolist() for each in shown]


@pytest.mark.parametrize("start_method", ["fork", "forkserver", "spawn"])
def test_worker_takes_denormal_numbers_for_zero_as_the_training_process_does(start_method: str) -> None:
    here = observations("sync")
    assert here == [[[0, 0, 0], [0, 0, 0]]] * 4
    assert observations("workers", start_method=start_method) == here


def test_learning_is_the_same_wherever_denormal_numbers_are_computed() -> None:
    weights = []
    for vectorization in ("sync", "workers"):
        env = make_vec_env(Shrinking, 2, vectorization=vectorization, check=False)
        model = A2C({"name": "MlpPolicy", "net_arch": [4]}, env, seed=0, compile=False, threads=1)
        model.learn(40)
        assert model.buffer.rewards.sum() == 0
        weights.append(model.get_parameters())
        env.close()
    for name, array in weights[0].items():
        np.testing.assert_array_equal(weights[1][name], array)


def test_first_reset_computes_as_all_later_ones() -> None:
    seen = []

    class Watched(Shrinking):
        def reset(self, **options: Any) -> Any:
            observation, info = super().reset(**options)
            seen.append(observation.tolist())
            return observation, info

    A2C("MlpPolicy", make_vec_env(Watched, 1, check=False), seed=0, compile=False, threads=1).learn(10)
    assert seen[-1] == [0, 0, 0]
