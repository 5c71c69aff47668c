"""Rewards that depend on the info of a step, in hindsight replay with `copy_info_dict`."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from zoo import DQN
from zoo.envs import check_env, make_vec_env
from zoo.errors import ZooError

VECTOR = spaces.Box(-100.0, 100.0, (2,), np.float32)


class Numbered(gym.Env[Any, Any]):
    """Its info numbers its steps, in several types; that number is the reward, whatever goal is desired."""

    observation_space = spaces.Dict(dict.fromkeys(("observation", "achieved_goal", "desired_goal"), VECTOR))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._n = int(self.np_random.integers(10))
        self._end = self._n + 4
        return self._shown(), {}

    def step(self, action: Any) -> Any:
        self._n += 1
        info = {
            "whole": self._n,
            "single": np.float32(self._n),
            "array": np.array([self._n, 1.0]),
            "nested": {"list": [self._n, "text", None]},
            "unknown": object(),
        }
        shown = self._shown()
        reward = self.compute_reward(shown["achieved_goal"], shown["desired_goal"], info)
        return shown, reward, False, self._n == self._end, info

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        if not isinstance(info, dict):
            return np.array([self.compute_reward(None, None, each) for each in info])
        numbers = {info["whole"], float(info["single"]), info["array"][0], info["nested"]["list"][0]}
        (number,) = numbers
        assert isinstance(info["single"], np.float32)
        return number

    def _shown(self) -> Any:
        number = np.array([self._n, 0.0], np.float32)
        return {"observation": number, "achieved_goal": number + 1, "desired_goal": -number}


class OneAtATime(Numbered):
    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return super().compute_reward(achieved, desired, dict(info))


WAYS: dict[str, Any] = {
    "in_process": lambda: make_vec_env(Numbered, 2),
    "one_at_a_time": lambda: make_vec_env(OneAtATime, 2),
    "nan_check": lambda: make_vec_env(Numbered, 2, nan_check=True),
    "workers": lambda: make_vec_env(Numbered, 2, vectorization="workers", start_method="fork"),
    "next_step": lambda: SyncVectorEnv([Numbered] * 2, autoreset_mode=AutoresetMode.NEXT_STEP),
}


def trained(env: Any, *, n_step: int = 1, **settings: Any) -> DQN:
    memory = {"n_step": n_step, "hindsight": {"copy_info_dict": True}}
    policy = {"name": "MultiInputPolicy", "net_arch": [8]}
    options = {
        "learning_starts": 20,
        "buffer_size": 60,
        "batch_size": 16,
        "gamma": 1.0,
        "seed": 0,
        **settings,
    }
    return DQN(policy, env, replay=memory, compile=False, **options).learn(100)


def assert_rewards_are_those_of_the_infos(model: DQN) -> None:
    batch = model.buffer.sample(np.random.default_rng(0), (64,))
    reached = batch["next_observations"]["observation"][:, 0]
    assert (batch["next_observations"]["desired_goal"][:, 0] > 0).any(), "some have another goal"
    assert batch["rewards"].tolist() == reached.tolist()


@pytest.mark.parametrize("way", WAYS)
def test_rewards_of_other_goals_follow_from_the_info_of_the_step(way: str) -> None:
    env = WAYS[way]()
    assert_rewards_are_those_of_the_infos(trained(env))
    env.close()


def test_each_step_of_a_sum_has_its_own_info() -> None:
    model = trained(WAYS["in_process"](), n_step=2)
    batch = model.buffer.sample(np.random.default_rng(0), (64,))
    first = batch["observations"]["observation"][:, 0] + 1
    last = batch["next_observations"]["observation"][:, 0]
    assert batch["rewards"].tolist() == np.where(first == last, first, first + last).tolist()


def test_infos_are_in_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before, after = trained(WAYS["in_process"]()), trained(WAYS["in_process"](), seed=1)
    after.buffer.load_state(copy.deepcopy(before.buffer.state()))
    assert_rewards_are_those_of_the_infos(after)
    samples = [each.buffer.sample(np.random.default_rng(3), (9,)) for each in (before, after)]
    assert samples[0]["rewards"].tolist() == samples[1]["rewards"].tolist()


def test_without_it_the_info_is_empty_and_the_error_names_it() -> None:
    envs = make_vec_env(Numbered, 1, check=False)
    model = DQN("MultiInputPolicy", envs, replay={"hindsight": {}}, learning_starts=20)
    with pytest.raises(ZooError, match=r"replay\.hindsight\.copy_info_dict=true"):
        model.learn(50)
    assert any("copy_info_dict" in finding for finding in check_env(Numbered))
