"""Spaces as data, in the order of their keys, and compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import zoo
from zoo.envs.spaces import (
    action_array,
    check_supported,
    choice_sizes,
    mask_size,
    space_from_dict,
    space_to_dict,
    spaces_differ,
)
from zoo.errors import ZooError

SPACES = [
    spaces.Box(-1.0, 1.0, (3,), np.float32),
    spaces.Box(np.array([-1.0, -np.inf]), np.array([np.inf, 2.0]), dtype=np.float64),
    spaces.Box(0, 255, (4, 4, 3), np.uint8),
    spaces.Box(np.iinfo(np.int64).min, np.iinfo(np.int64).max, (2,), np.int64),
    spaces.Box(-0.1, 0.3, (), np.float32),
    spaces.Discrete(3),
    spaces.Discrete(3, start=-2),
    spaces.MultiDiscrete([2, 5], start=[1, 0]),
    spaces.MultiBinary(4),
    spaces.MultiBinary([2, 3]),
    spaces.Tuple((spaces.Discrete(3, start=1), spaces.Tuple((spaces.MultiBinary(2),)))),
    spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Dict({"c": spaces.Box(-1, 1, (2,))})}),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_space_survives_json(space: Any) -> None:
    text = json.dumps(space_to_dict(space), allow_nan=False)
    again = space_from_dict(json.loads(text))
    assert again == space
    assert spaces_differ(space, again) is None


@pytest.mark.parametrize("space", [spaces.Text(3), spaces.Sequence(spaces.Discrete(2))])
def test_unsupported_space_is_refused(space: Any) -> None:
    with pytest.raises(ZooError, match="not supported"):
        space_to_dict(space)


@pytest.mark.parametrize("data", [{"type": "Box"}, {"type": "Discrete", "n": -1, "start": 0}, {}])
def test_damaged_description_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(ZooError, match="damaged description"):
        space_from_dict(data)


@pytest.mark.parametrize(
    ("a", "b", "difference"),
    [
        (spaces.Discrete(2), spaces.Discrete(3), "Discrete(2) is not Discrete(3)"),
        (spaces.Discrete(2), spaces.Discrete(2, start=1), "Discrete(2) is not Discrete(2, start=1)"),
        (spaces.Box(0, 1, (2,)), spaces.Box(0, 1, (3,)), "Box(2,) float32 is not Box(3,) float32"),
        (spaces.Box(0, 1, (2,)), spaces.Box(0, 2, (2,)), "high [1. 1.] is not [2. 2.]"),
        (spaces.Box(0, 1, (2,)), spaces.MultiBinary(2), "Box(2,) float32 is not MultiBinary(2)"),
        (
            spaces.Dict({"a": spaces.Discrete(2)}),
            spaces.Dict({"b": spaces.Discrete(2)}),
            "keys ['a'] are not ['b']",
        ),
        (
            spaces.Dict({"a": spaces.Discrete(2)}),
            spaces.Dict({"a": spaces.Discrete(4)}),
            "a: Discrete(2) is not Discrete(4)",
        ),
        (
            spaces.Tuple((spaces.Discrete(2), spaces.MultiBinary(2))),
            spaces.Tuple((spaces.Discrete(2), spaces.MultiBinary(3))),
            "part 1: MultiBinary(2) is not MultiBinary(3)",
        ),
        (
            spaces.Tuple((spaces.Discrete(2),)),
            spaces.Tuple((spaces.Discrete(2), spaces.Discrete(3))),
            "Tuple(Discrete(2)) is not Tuple(Discrete(2), Discrete(3))",
        ),
    ],
)
def test_difference_of_two_spaces_is_named(a: Any, b: Any, difference: str) -> None:
    assert spaces_differ(a, b) == difference


def test_choices_of_an_action_are_those_of_its_parts() -> None:
    parts = [spaces.MultiDiscrete([[2, 5], [3, 4]]), spaces.Box(-1, 1, (2,)), spaces.MultiBinary((1, 2))]
    space = spaces.Dict({"z": spaces.Discrete(3, start=4), "a": spaces.Tuple(parts)})
    assert choice_sizes(space) == [2, 5, 3, 4, 2, 2, 3]
    assert mask_size(space) == 21
    assert choice_sizes(parts[1]) == []
    assert mask_size(parts[1]) is None


def test_parts_whose_names_would_be_the_same_are_refused() -> None:
    observed, box = spaces.Discrete(2), spaces.Box(-1, 1, (2,))
    for space in (spaces.Dict({"a/0": box, "a": spaces.Tuple((box,))}), spaces.Tuple(()), spaces.Dict({})):
        with pytest.raises(ZooError, match="need parts, at least one, whose names joined by / differ"):
            check_supported(observed, space)


def test_bounds_that_are_the_same_everywhere_become_one_number() -> None:
    described = space_to_dict(spaces.Box(-1.0, np.array([2.0, 3.0]), dtype=np.float64))
    assert (described["low"], described["high"]) == (-1.0, [2.0, 3.0])
    assert space_to_dict(spaces.Box(-np.inf, 5.0, (2, 2)))["low"] == "-inf"


def test_array_of_composite_actions_is_of_zeros_by_the_paths_of_their_parts() -> None:
    space = spaces.Tuple((spaces.Discrete(3, start=1), spaces.Dict({"force": spaces.Box(1.0, 2.0, (2,))})))
    actions = action_array(space, 4, 5)
    assert actions.shape == (4, 5)
    assert actions.dtype.names == ("0", "1/force")
    assert not actions["0"].any()
    assert not actions["1/force"].any()
    assert actions["1/force"].shape == (4, 5, 2)


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


def test_agent_acts_after_loading_as_before(tmp_path: Path) -> None:
    model = zoo.SAC({"name": "MultiInputPolicy", "net_arch": [8]}, Unsorted(), seed=0, compile=False)
    model.save(tmp_path / "agent")
    seen = {"z": np.array([[0.9], [0.1]], np.float32), "a": np.array([[-0.9], [0.7]], np.float32)}
    before, _ = model.predict(seen, deterministic=True)
    after, _ = zoo.load(tmp_path / "agent").predict(seen, deterministic=True)
    assert np.array_equal(before, after)
    assert abs(float(before[0, 0] - before[1, 0])) > 1e-4
