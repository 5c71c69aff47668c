"""What a replay memory refuses to take over: numbers that no environment and no policy could have given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from zoo import DQN
from zoo.errors import ZooError
from zoo.memory.loading import check_values
from zoo.memory.sampling import Rings
from zoo.training.checkpoint import read_checkpoint, restore, write_checkpoint

RINGS = Rings(np.array([2, 1]), np.array([2, 1]), 3)
"""Of two environments, one of which has a row less."""


def columns(observations: Any) -> dict[str, Any]:
    return {"observations": observations, "rewards": np.zeros((3, 2), np.float32)}


@pytest.mark.parametrize("space", [spaces.Discrete(3, start=5), spaces.MultiDiscrete([3, 3], start=[5, 5])])
@pytest.mark.parametrize("number", [4, 8, -1, 2**62])
def test_a_number_outside_of_its_space_is_refused(space: spaces.Space[Any], number: int) -> None:
    stored = np.zeros((3, 2, *(space.shape or ())), np.int64)  # what nobody wrote is zero, and outside too
    stored[:2, 0] = stored[0, 1] = 7
    check_values(columns(stored), RINGS, {"observations": space})
    within = spaces.Dict({"a": space})
    check_values(columns({"a": stored}), RINGS, {"observations": within})
    stored[1, 0] = number
    with pytest.raises(ValueError, match="among the `observations` of its memory is outside of their space"):
        check_values(columns(stored), RINGS, {"observations": space})
    with pytest.raises(ValueError, match="among the `observations` of its memory is outside of their space"):
        check_values(columns({"a": stored}), RINGS, {"observations": within})


def make(**options: Any) -> DQN:
    settings = {"learning_starts": 20, "batch_size": 8, "buffer_size": 60, **options}
    return DQN({"net_arch": [4]}, "FrozenLake-v1", seed=0, compile=False, threads=1, **settings)


def reward_is_nan(state: dict[str, Any]) -> None:
    state["memory"]["segments"]["0"]["rewards"][3] = np.nan


def observation_is_outside(state: dict[str, Any]) -> None:
    state["memory"]["segments"]["0"]["observations"][3] = 16


def next_observation_is_outside(state: dict[str, Any]) -> None:
    state["memory"]["segments"]["0"]["next_observations"][3] = -1


def action_is_outside(state: dict[str, Any]) -> None:
    state["memory"]["segments"]["0"]["actions"][3] = 4


@pytest.mark.parametrize(
    "forge", [reward_is_nan, observation_is_outside, next_observation_is_outside, action_is_outside]
)
def test_memory_that_nothing_could_have_filled_is_refused_at_once(forge: Callable[[Any], None]) -> None:
    state = make().learn(50).state()
    make().load_state(state)
    forge(state)
    with pytest.raises(ValueError, match="of its memory is"):
        make().load_state(state)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"buffer_size": 30}, r"`algo\.buffer_size`"),
        ({"buffer_size": 300}, r"`algo\.buffer_size`"),
        ({"memory": {"prioritized": {}}}, r"`memory\.prioritized`"),
        ({"optimize_memory_usage": True}, r"`algo\.optimize_memory_usage`"),
    ],
)
def test_model_of_another_memory_says_which_setting_is_another_and_learns_no_more(
    options: dict[str, Any], named: str, tmp_path: Any
) -> None:
    write_checkpoint(tmp_path / "saved", make().learn(80))
    saved = read_checkpoint(tmp_path / "saved")
    restore(saved, usual := make())
    usual.learn(10, reset_num_timesteps=False)
    model = make(**options)
    with pytest.raises(ZooError, match=rf"does not fit this algorithm: .*{named}"):
        restore(saved, model)
    with pytest.raises(ZooError, match="was restored in part; make the model anew"):
        model.learn(10, reset_num_timesteps=False)
