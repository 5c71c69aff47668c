"""Replay and hindsight in algorithms: relabelled goals, infos, what goes wrong."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from zoo import DQN, PPO2, SAC, make_vec_env
from zoo.envs.env_checker import check_env
from zoo.errors import ZooError, ZooWarning
from zoo.experiment.evaluation import evaluate

SMALL = {"net_arch": [8]}


@pytest.mark.parametrize(
    ("algorithm", "options", "message"),
    [
        (DQN, {"replay": {"n_step": 9}, "buffer_size": 16, "batch_size": 8}, r"`replay\.n_step=9` is longer"),
        (DQN, {"replay": {"alpha": 1.0}}, r"unknown key `replay\.alpha`"),
        (PPO2, {"replay": {"n_step": 2}}, "replay"),
    ],
)
def test_replay_that_does_not_fit_is_refused(algorithm: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ZooError, match=message):
        algorithm(SMALL, "CartPole-v1", n_envs=2, **options)


# -- Off-policy algorithms learn from goals that they reached, in whatever form the environments come -----

HINDSIGHT = {"hindsight": {}}
QUIET: dict[str, Any] = {"seed": 0, "compile": False, "threads": 1}


def test_dqn_solves_eight_bits_only_with_hindsight() -> None:
    kwargs = {"n_bits": 8}
    settings = {"learning_starts": 200, "batch_size": 128, "learning_rate": 3e-3, "gamma": 0.95}
    settings |= {"train_freq": 4, "target_update_interval": 100, "exploration_fraction": 0.8}
    success = {}
    for name, memory in {"hindsight": HINDSIGHT, "uniform": {}}.items():
        env = make_vec_env("Zoo/BitFlipping-v0", 4, kwargs=kwargs)
        model = DQN({"net_arch": [64]}, env, **QUIET, replay=memory, exploration_final_eps=0.05, **settings)
        model.learn(4000 if memory else 1500)
        played = evaluate(model, make_vec_env("Zoo/BitFlipping-v0", 5, kwargs=kwargs), 100, seed=3)
        success[name] = played.success_rate
    assert success["hindsight"] >= 0.95
    assert success["uniform"] <= 0.2


def test_goals_are_compared_before_normalization() -> None:
    env = make_vec_env("Zoo/BitFlippingContinuous-v0", 2, normalize=True, kwargs={"n_bits": 4})
    model = SAC(SMALL, env, **QUIET, replay=HINDSIGHT, learning_starts=1000).learn(200)
    normalizer = model.normalizer
    assert normalizer is not None
    batch = model.buffer.sample(np.random.default_rng(4), (3, 40))
    model.buffer.transforms = ()
    raw = model.buffer.sample(np.random.default_rng(4), (3, 40))
    following = raw["next_observations"]
    reached = (following["achieved_goal"] == following["desired_goal"]).all(-1)
    assert reached.any()
    np.testing.assert_array_equal(raw["rewards"], reached - 1.0)
    np.testing.assert_array_equal(raw["terminated"], reached)
    np.testing.assert_array_equal(batch["rewards"], normalizer.normalize_rewards(raw["rewards"]))
    for name in ("observations", "next_observations"):
        expected = normalizer.normalize_observations(raw[name])
        for key, values in expected.items():
            np.testing.assert_array_equal(batch[name][key], values)


def test_hindsight_refuses_env_without_goals() -> None:
    with pytest.raises(
        ZooError, match=r"hindsight needs an env with goals: .* but they are Box\(4,\) float32"
    ):
        DQN(SMALL, "CartPole-v1", replay=HINDSIGHT)


# -- Rewards that depend on the info of a step, in hindsight replay with `copy_info_dict` -----------------

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


WAYS: dict[str, Any] = {
    "in_process": lambda: make_vec_env(Numbered, 2),
    "workers": lambda: make_vec_env(Numbered, 2, vectorization="workers", start_method="fork"),
    "next_step": lambda: SyncVectorEnv([Numbered] * 2, autoreset_mode=AutoresetMode.NEXT_STEP),
}


def trained(env: Any, *, n_step: int = 1) -> DQN:
    memory = {"n_step": n_step, "hindsight": {"copy_info_dict": True}}
    policy = {"name": "MultiInputPolicy", "net_arch": [8]}
    options = {"learning_starts": 20, "buffer_size": 60, "batch_size": 16, "gamma": 1.0, "seed": 0}
    return DQN(policy, env, replay=memory, compile=False, **options).learn(100)


def assert_rewards_are_those_of_the_infos(model: DQN) -> None:
    batch = model.buffer.sample(np.random.default_rng(0), (64,))
    reached = batch["next_observations"]["observation"][:, 0]
    assert (batch["next_observations"]["desired_goal"][:, 0] > 0).any(), "some have another goal"
    assert batch["rewards"].tolist() == reached.tolist()


@pytest.mark.parametrize("n_sampled_goal", [1, 4])
def test_share_of_other_goals_is_that_of_the_config(n_sampled_goal: int) -> None:
    memory = {"hindsight": {"n_sampled_goal": n_sampled_goal, "copy_info_dict": True}}
    options: dict[str, Any] = {"learning_starts": 1000, "batch_size": 10, **QUIET}
    with pytest.warns(ZooWarning, match="nothing will be learned"):
        model = DQN(SMALL, make_vec_env(Numbered, 2, check=False), replay=memory, **options).learn(
            8
        )  # one episode in each
    goals = model.buffer.sample(np.random.default_rng(0), (10,))["observations"]["desired_goal"]
    assert (goals[:, 0] > 0).sum() == 10 * n_sampled_goal / (n_sampled_goal + 1)


@pytest.mark.parametrize("way", WAYS)
def test_relabelled_rewards_use_the_info_of_the_step(way: str) -> None:
    env = WAYS[way]()
    assert_rewards_are_those_of_the_infos(trained(env))
    env.close()


def test_each_step_of_a_sum_has_its_own_info() -> None:
    model = trained(WAYS["in_process"](), n_step=2)
    batch = model.buffer.sample(np.random.default_rng(0), (64,))
    first = batch["observations"]["observation"][:, 0] + 1
    last = batch["next_observations"]["observation"][:, 0]
    assert batch["rewards"].tolist() == np.where(first == last, first, first + last).tolist()


def test_error_on_empty_info_names_copy_info_dict() -> None:
    envs = make_vec_env(Numbered, 1, check=False)
    model = DQN("MultiInputPolicy", envs, replay={"hindsight": {}}, learning_starts=20)
    with pytest.raises(ZooError, match=r"replay\.hindsight\.copy_info_dict=true"):
        model.learn(50)
    assert any("copy_info_dict" in finding for finding in check_env(Numbered))
