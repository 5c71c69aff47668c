"""Dictionaries of observations keep the order of their keys in files: networks read them in that order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

import zoo
from zoo.envs.spaces import space_from_dict, space_to_dict


class Unsorted(gym.Env[Any, Any]):
    """Shows two numbers under keys that are not in alphabetical order."""

    observation_space = spaces.Dict(
        z=spaces.Box(-1.0, 1.0, (1,), np.float32), a=spaces.Box(-1.0, 1.0, (1,), np.float32)
    )
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return {"z": np.array([0.9], np.float32), "a": np.array([-0.9], np.float32)}, {}

    def step(self, action: Any) -> Any:
        return *self.reset()[:1], 0.0, False, True, {}


def test_space_comes_back_in_its_order() -> None:
    again = space_from_dict(space_to_dict(Unsorted.observation_space))
    assert isinstance(again, spaces.Dict)
    assert list(again.spaces) == ["z", "a"]


def test_agent_acts_after_loading_as_before(tmp_path: Path) -> None:
    model = zoo.SAC({"name": "MultiInputPolicy", "net_arch": [8]}, Unsorted(), seed=0, compile=False)
    model.save(tmp_path / "agent")
    seen = {"z": np.array([[0.9], [0.1]], np.float32), "a": np.array([[-0.9], [0.7]], np.float32)}
    before, _ = model.predict(seen, deterministic=True)
    after, _ = zoo.load(tmp_path / "agent").predict(seen, deterministic=True)
    assert np.array_equal(before, after)
    assert abs(float(before[0, 0] - before[1, 0])) > 1e-4
