"""An agent that was saved and loaded acts exactly as the one that was trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from playing_agents import save_agent

import zoo
from zoo.algorithms.registry import ALGORITHMS, algorithm_class
from zoo.envs.config import EnvConfig
from zoo.errors import ZooError
from zoo.experiment.expert_recording import record_expert
from zoo.imitation.expert_data import ExpertData

SMALL: dict[str, dict[str, Any]] = {
    "ppo2": {"n_steps": 16},
    "acer": {"n_steps": 16, "replay_start": 20},
    "ddpg": {"learning_starts": 20, "batch_size": 16, "train_freq": 10, "gradient_steps": 2},
    "gail": {"n_steps": 64, "batch_size": 32},
    "dqn": {"learning_starts": 20, "batch_size": 16},
    "qrdqn": {"learning_starts": 20, "batch_size": 16, "buffer_size": 1000},
    "sac": {"learning_starts": 20, "batch_size": 16},
    "td3": {"learning_starts": 20, "batch_size": 16, "train_freq": 10, "gradient_steps": 2},
    "tqc": {"learning_starts": 20, "batch_size": 16},
}
ENVS = {spaces.Discrete: "CartPole-v1", spaces.Box: "Pendulum-v1"}
CASES = [
    (algo, env)
    for algo in ALGORITHMS
    for kind, env in ENVS.items()
    if kind in algorithm_class(algo).supported_actions
]


def shown_by(env: str) -> ExpertData:
    return record_expert(lambda _: 1, env, 1, seed=0)


def trained(algo: str, env: str, normalize: bool) -> Any:
    config = EnvConfig(id=env, normalize=normalize)
    options = {**SMALL.get(algo, {}), **({"dataset": shown_by(env)} if algo in ("bc", "gail") else {})}
    agent = algorithm_class(algo)("MlpPolicy", config, seed=0, compile=False, **options)
    return agent.learn(64)


@pytest.mark.parametrize(("algo", "env"), CASES)
def test_loaded_agent_predicts_identically(tmp_path: Path, algo: str, env: str) -> None:
    agent = trained(algo, env, normalize=env == "Pendulum-v1")
    loaded = zoo.load(agent.save(tmp_path / ("agent.zip" if algo in ("ppo2", "sac") else "agent")))
    assert type(loaded) is type(agent)
    assert loaded.num_timesteps == agent.num_timesteps
    generator = np.random.default_rng(0)
    shape = agent.observation_space.shape
    observations = generator.standard_normal((200, *shape)).astype(np.float32)
    np.testing.assert_array_equal(loaded.predict(observations)[0], agent.predict(observations)[0])
    np.testing.assert_array_equal(loaded.predict(observations[0])[0], agent.predict(observations[0])[0])
    for parameter, value in agent.get_parameters().items():
        np.testing.assert_array_equal(loaded.get_parameters()[parameter], value)


def test_class_loads_its_own_agents_only(tmp_path: Path) -> None:
    path = save_agent(tmp_path / "agent", "a2c")
    with pytest.raises(ZooError, match="a2c"):
        algorithm_class("ppo2").load(path)
