"""What a replay memory refuses to take over: numbers that no environment and no policy could have given."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from zoo import DQN
from zoo.algorithms.callback import Callback
from zoo.errors import ZooError
from zoo.memory.loading import check_inside, spaces_of_columns
from zoo.training.checkpoint import read_checkpoint, restore, write_checkpoint


@pytest.mark.parametrize("space", [spaces.Discrete(3, start=5), spaces.MultiDiscrete([3, 3], start=[5, 5])])
@pytest.mark.parametrize("number", [4, 8, -1, 2**62])
def test_a_number_outside_of_its_space_is_refused(space: spaces.Space[Any], number: int) -> None:
    stored = np.full((3, *(space.shape or ())), 7)
    within = spaces.Dict({"a": space})
    check_inside({"observations": stored}, {"observations": space, "next_observations": space})
    check_inside({"observations": {"a": stored}}, {"observations": within})
    stored[1] = number
    with pytest.raises(ValueError, match="among the `observations` of its memory is outside of their space"):
        check_inside({"observations": stored}, {"observations": space})
    with pytest.raises(ValueError, match="among the `observations` of its memory is outside of their space"):
        check_inside({"observations": {"a": stored}}, {"observations": within})


def make(env: str = "FrozenLake-v1", **options: Any) -> DQN:
    settings = {"learning_starts": 20, "batch_size": 8, "buffer_size": 60, **options}
    return DQN({"net_arch": [4]}, env, seed=0, compile=False, threads=1, **settings)


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


@pytest.mark.parametrize("steps", [30, 90])
def test_what_stands_apart_or_in_the_spare_row_is_looked_at_too(steps: int) -> None:
    usual = make(optimize_memory_usage=True)
    state = usual.learn(steps).state()["memory"]
    head = int(usual.memory.heads[0])
    for forged in ("spare row", "final"):
        model, spoilt = make(optimize_memory_usage=True), copy.deepcopy(state)
        if forged == "final":
            spoilt["final"]["observations"][0] = 16
        else:
            spoilt["segments"]["0"]["observations"][head] = 16
        model.memory.load_state(spoilt)
        with pytest.raises(ValueError, match="of its memory is outside"):
            model.memory.check_inside(spaces_of_columns(model.observation_space, model.action_space))


def test_final_observations_are_finite() -> None:
    def pole() -> DQN:
        return make("CartPole-v1", learning_starts=500, optimize_memory_usage=True, buffer_size=200)

    state = pole().learn(100).state()
    state["memory"]["final"]["observations"][0, 1] = np.inf
    with pytest.raises(ValueError, match="among the `final observations` of its memory is not finite"):
        pole().load_state(state)


def test_model_goes_back_to_before_a_number_that_was_not_finite(tmp_path: Any) -> None:
    """Rows behind those of the checkpoint are the model's own, of what came after it."""
    model = make(buffer_size=300).learn(50)
    write_checkpoint(tmp_path / "saved", model)
    model.learn(30, reset_num_timesteps=False)
    model.memory.columns["rewards"][70] = np.nan
    restore(read_checkpoint(tmp_path / "saved"), model)
    model.learn(10, reset_num_timesteps=False)


class Counting(Callback):
    """Has something to be kept."""

    def state(self) -> dict[str, Any]:
        return {"n": 1}


def test_checkpoint_that_lacks_a_callback_leaves_the_model_as_it_was(tmp_path: Any) -> None:
    write_checkpoint(tmp_path / "saved", make().learn(50), [Counting()])
    other = make()
    with pytest.raises(ZooError, match="holds the state of"):
        restore(read_checkpoint(tmp_path / "saved"), other)
    assert other.num_timesteps == 0
    other.learn(10)


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
