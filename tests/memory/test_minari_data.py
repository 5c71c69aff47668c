"""Minari's datasets, through its package, or where that is not installed a stand-in with its attributes."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from zoo.errors import ZooError
from zoo.memory import minari_data
from zoo.memory.expert_files import read_expert


def episode(n_steps: int, **infos: Any) -> SimpleNamespace:
    return SimpleNamespace(
        observations=np.arange(2 * (n_steps + 1), dtype=np.float64).reshape(-1, 2),
        actions=np.ones(n_steps, np.int64),
        rewards=np.full(n_steps, 2.0),
        terminations=np.arange(n_steps) == n_steps - 1,
        truncations=np.zeros(n_steps, np.bool_),
        infos=infos,
    )


def dataset(*episodes: SimpleNamespace) -> SimpleNamespace:
    return SimpleNamespace(
        observation_space=spaces.Box(-np.inf, np.inf, (2,), np.float64),
        action_space=spaces.Discrete(2),
        env_spec=SimpleNamespace(id="Some-v0"),
        total_steps=sum(len(each.rewards) for each in episodes),
        iterate_episodes=lambda: iter(episodes),
    )


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("minari")
    monkeypatch.setitem(sys.modules, "minari", module)
    return module


def test_steps_of_all_episodes_are_joined(stand_in: Any) -> None:
    episodes = [episode(3, success=np.array([False, False, False, True])), episode(2, success=np.zeros(3))]
    stand_in.load_dataset = lambda name: {"a/b-v0": dataset(*episodes)}[name]
    data = read_expert("minari:a/b-v0")
    assert data.lengths.tolist() == [3, 2]
    assert data.observations.tolist() == [[0, 1], [2, 3], [4, 5], [0, 1], [2, 3]]
    assert data.returns.tolist() == [6.0, 4.0]
    assert data.terminated is not None
    assert data.terminated.tolist() == [True, True]
    assert data.successes is not None
    assert data.successes.tolist() == [True, False]
    assert data.card == {"env": "Some-v0", "source": {"format": "Minari", "dataset": "a/b-v0"}}
    with pytest.raises(ZooError, match="the observations of minari:a/b-v0 and the environment's differ"):
        read_expert("minari:a/b-v0", (spaces.Discrete(2), spaces.Discrete(2)))


def test_nested_observations_become_one_dictionary(stand_in: Any) -> None:
    one = episode(2)
    one.observations = ({"b": one.observations}, np.array([3, 1, 2]))
    made = dataset(one)
    parts = spaces.Dict({"b": spaces.Box(-9.0, 9.0, (2,), np.float32)})
    made.observation_space = spaces.Tuple((parts, spaces.Discrete(4)))
    stand_in.load_dataset = lambda name: made
    data = read_expert("minari:x-v0")
    assert data.observations["0/b"].tolist() == [[0, 1], [2, 3]]
    assert data.observations["1"].tolist() == [3, 1]


def test_dictionaries_and_actions_with_parts(stand_in: Any) -> None:
    made = dataset(episode(2))
    made.observation_space = spaces.Dict({"a": spaces.Box(-9.0, 9.0, (2,), np.float32)})
    made.action_space = spaces.Tuple([spaces.Discrete(2), spaces.Box(-1.0, 1.0, (1,), np.float32)])
    one = episode(2)
    one.observations, one.actions = {"a": one.observations}, (np.array([0, 1]), np.zeros((2, 1)))
    made.iterate_episodes = lambda: iter([one])
    stand_in.load_dataset = lambda name: made
    data = read_expert("minari:x-v0")
    assert data.observations["a"].shape == (2, 2)
    assert data.actions["0"].tolist() == [0, 1]
    assert data.successes is None


def test_what_there_is_not_is_named(stand_in: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def load_dataset(name: str) -> Any:
        raise FileNotFoundError(f"Dataset {name} not found locally")

    stand_in.load_dataset = load_dataset
    with pytest.raises(ZooError, match=r"Minari has no x-v0 .*minari download x-v0"):
        read_expert("minari:x-v0")
    stand_in.load_dataset = lambda name: dataset()
    with pytest.raises(ZooError, match="minari:x-v0 is empty"):
        read_expert("minari:x-v0")
    stand_in.load_dataset = lambda name: dataset(episode(3))
    with pytest.raises(ZooError, match="minari:x-v0 needs"):
        minari_data.read("minari:x-v0", 2 * 3 * 16 - 1)
    assert minari_data.read("minari:x-v0", 2 * 3 * 16).n_steps == 3
    monkeypatch.setitem(sys.modules, "minari", None)
    with pytest.raises(ZooError, match="pip install"):
        read_expert("minari:x-v0")


def test_dataset_that_minari_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    minari = pytest.importorskip("minari")
    pytest.importorskip("h5py")
    import gymnasium as gym

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    env = minari.DataCollector(gym.make("CartPole-v1"))
    for seed in range(2):
        env.reset(seed=seed)
        done = False
        while not done:
            _, _, terminated, truncated, _ = env.step(0)
            done = terminated or truncated
    env.create_dataset("cartpole/left-v0")
    data = read_expert("minari:cartpole/left-v0")
    assert data.card["env"] == "CartPole-v1"
    assert data.n_episodes == 2
    assert data.returns.tolist() == data.lengths.tolist()
    assert data.terminated is not None
    assert data.terminated.all()
    np.testing.assert_array_equal(data.observations[0], gym.make("CartPole-v1").reset(seed=0)[0])
