"""Every algorithm learns from every kind of observation, stored and normalised as it should be."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from zoo import A2C, ACER, ARS, DDPG, DQN, PPO1, PPO2, QRDQN, SAC, TD3, TQC, TRPO, make_vec_env

IMAGE = spaces.Box(0, 255, (3, 36, 40), np.uint8)
WIDE = spaces.Box(-1e3, 1e3, (2,), np.float64)

KINDS: dict[str, tuple[spaces.Space[Any], Any]] = {
    "single": (spaces.Box(-1.0, 1.0, (), np.float32), {"net_arch": [8]}),
    "table": (spaces.Box(-1.0, 1.0, (2, 3), np.float32), {"net_arch": [8]}),
    "double": (WIDE, {"net_arch": [8]}),
    "whole": (spaces.Box(-9, 9, (3,), np.int64), {"net_arch": [8]}),
    "number": (spaces.Discrete(3, start=-1), {"net_arch": [8]}),
    "numbers": (spaces.MultiDiscrete([2, 3]), {"net_arch": [8]}),
    "bits": (spaces.MultiBinary(3), {"net_arch": [8]}),
    "image": (IMAGE, {"encoder": "cnn", "features_dim": 8}),
    "flat_image": (spaces.Box(0, 255, (4, 4, 1), np.uint8), {"net_arch": [8]}),
    "dict": (
        spaces.Dict({"image": IMAGE, "wide": WIDE, "number": spaces.Discrete(3, start=-1)}),
        {"encoder": "multi", "features_dim": 8, "net_arch": [8]},
    ),
}

ALGORITHMS: dict[str, tuple[Any, spaces.Space[Any], dict[str, Any]]] = {
    "ppo2": (PPO2, spaces.MultiDiscrete([2, 3]), {"n_steps": 8, "n_epochs": 1}),
    "a2c": (A2C, spaces.MultiBinary((2, 2)), {}),
    "acer": (ACER, spaces.Discrete(3, start=1), {"n_steps": 4, "buffer_size": 40, "replay_start": 10}),
    "acer_box": (
        ACER,
        spaces.Box(-1.0, 3.0, (2, 1), np.float64),
        {"n_steps": 4, "buffer_size": 40, "replay_start": 10},
    ),
    "ars": (ARS, spaces.Box(-1.0, 3.0, (2, 1), np.float64), {"n_delta": 1, "zero_policy": False}),
    "ppo1": (PPO1, spaces.Discrete(3, start=1), {"n_steps": 8, "n_epochs": 1, "batch_size": 8}),
    "trpo": (TRPO, spaces.MultiDiscrete([2, 3]), {"n_steps": 8, "batch_size": 8, "n_critic_updates": 1}),
    "dqn": (DQN, spaces.Discrete(3, start=1), {"learning_starts": 10, "batch_size": 4, "train_freq": 8}),
    "dqn_once": (
        DQN,
        spaces.Discrete(3, start=1),
        {
            "learning_starts": 10,
            "batch_size": 4,
            "train_freq": 8,
            "buffer_size": 40,
            "optimize_memory_usage": True,
        },
    ),
    "qrdqn": (
        QRDQN,
        spaces.Discrete(3, start=1),
        {
            "learning_starts": 10,
            "batch_size": 4,
            "train_freq": 8,
            "buffer_size": 40,
            "n_quantiles": 5,
            "dueling": True,
        },
    ),
    "ddpg": (
        DDPG,
        spaces.Box(-1.0, 3.0, (2, 1), np.float64),
        {
            "learning_starts": 10,
            "batch_size": 4,
            "train_freq": 8,
            "gradient_steps": 2,
            "normalize_returns": True,
            "enable_popart": True,
            "parameter_noise": {},
        },
    ),
    "sac": (
        SAC,
        spaces.Box(-1.0, 3.0, (2, 1), np.float64),
        {"learning_starts": 10, "batch_size": 4, "train_freq": 8},
    ),
    "td3": (
        TD3,
        spaces.Box(-1.0, 3.0, (2, 1), np.float64),
        {"learning_starts": 10, "batch_size": 4, "train_freq": 8, "gradient_steps": 3},
    ),
    "tqc": (
        TQC,
        spaces.Box(-1.0, 3.0, (2, 1), np.float64),
        {"learning_starts": 10, "batch_size": 4, "train_freq": 8, "buffer_size": 100},
    ),
}


class Samples(gym.Env[Any, Any]):
    """Shows samples of its space and checks each action; ends now as terminated, now as truncated."""

    def __init__(self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> None:
        self.observation_space, self.action_space = observation_space, action_space
        self._n_episodes = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self._n_steps = 0
        self._n_episodes += 1
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        self._n_steps += 1
        ends, odd = self._n_steps == 5, self._n_episodes % 2 == 1
        return self.observation_space.sample(), self.np_random.normal(), ends and odd, ends and not odd, {}


CELLS = [
    *(("ppo2", kind, "same_step") for kind in KINDS),
    *(("dqn_once", kind, "next_step") for kind in ("table", "double", "number", "image")),
    *(("sac", kind, "same_step") for kind in ("single", "whole", "numbers", "bits", "flat_image")),
    *((name, "dict", "next_step") for name in ALGORITHMS),
]


@pytest.mark.parametrize(("name", "kind", "autoreset"), CELLS)
def test_learning_from_every_kind_of_observation(name: str, kind: str, autoreset: str) -> None:
    algorithm, actions, hyperparameters = ALGORITHMS[name]
    observations, policy = KINDS[kind]

    def env() -> Samples:
        return Samples(observations, actions)

    envs: Any = (
        make_vec_env(env, 2, normalize=True, check=False)
        if autoreset == "same_step"
        else SyncVectorEnv([env] * 2, autoreset_mode=AutoresetMode.NEXT_STEP)
    )
    model = algorithm(policy, envs, seed=0, compile=False, threads=1, learning_rate=0.01, **hyperparameters)
    before = model.get_parameters()
    model.learn(60)
    after = model.get_parameters()
    assert all(np.isfinite(value).all() for value in after.values())
    assert sum(not np.array_equal(before[name], after[name]) for name in after) > len(after) // 2
    action, _ = model.predict(observations.sample())
    assert actions.contains(np.asarray(action, actions.dtype))


def scaled(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """Show everything a hundred times larger and shifted."""
    space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    return gym.wrappers.TransformObservation(env, lambda values: values * 100 + 500, space)


def test_rollouts_of_normalised_environments_are_normalised_in_all_their_parts() -> None:
    raw = gym.make("Pendulum-v1", max_episode_steps=10)
    envs = make_vec_env(lambda: scaled(raw), 1, normalize=True, check=False)
    model = A2C({"net_arch": [8]}, envs, seed=0, compile=False, n_steps=25).learn(200)
    memory, normalizer = model.buffer, model.normalizer
    assert normalizer is not None
    truncations = memory.truncations()
    assert truncations is not None
    steps, _, final_observations, _ = truncations
    assert len(steps) >= 2
    stored = memory.columns["observations"]
    for array in (stored, final_observations, model.collector.seen["observations"]):
        assert array.dtype == np.float32
        assert np.abs(array).max() < 10
    assert np.abs(stored.mean((0, 1))).max() < 2
    before_ends, ends = stored[steps, 0], final_observations
    assert np.abs(ends - before_ends).max() < 1
    assert np.abs(memory.rewards).max() < 10
    assert memory.rewards.max() < 0
