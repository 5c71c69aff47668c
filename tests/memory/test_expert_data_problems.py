"""Numbers of expert data that do not fit together: which step is told, and how much they may be off."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from test_expert_data import expert

from zoo.errors import ZooError


def test_first_step_whose_observations_are_not_finite_is_told() -> None:
    observations = np.where(np.isin(np.arange(12), [7, 10]), np.nan, 0.0).reshape(6, 2).astype(np.float32)
    with pytest.raises(ZooError, match="observations at step 3 are not finite"):
        expert(observations=observations)


@pytest.mark.parametrize("name", ["rewards", "returns"])
def test_one_number_that_is_not_finite_is_enough(name: str) -> None:
    numbers = {
        "rewards": np.array([1, 2, 3, 4, np.nan, 6], np.float32),
        "returns": np.array([3.0, 3.0, np.nan]),
    }
    with pytest.raises(ZooError, match="its rewards are not finite"):
        expert(**{name: numbers[name]})


@pytest.mark.parametrize(("share", "fits"), [(0.5e-3, True), (1.5e-3, False)])
def test_a_return_may_differ_by_a_thousandth_of_what_its_rewards_are(share: float, fits: bool) -> None:
    """Their sizes are 1,000,000 together, though their sum is 0."""
    rewards = np.array([5e5, -5e5, 1.0, 1.0, 1.0, 1.0], np.float32)
    returns = np.array([share * 1e6, 1.0, 3.0])
    with nullcontext() if fits else pytest.raises(ZooError, match="episode 0 add up to 0"):
        expert(rewards=rewards, returns=returns)


@pytest.mark.parametrize("wrong", [(2, 3), (-1, 3), (1, 2), (1, 6)])
def test_each_of_several_choices_begins_where_its_space_does(wrong: tuple[int, int]) -> None:
    space = spaces.MultiDiscrete([2, 3], start=[0, 3])
    actions = np.array([[0, 3], [1, 5], [0, 4], [1, 3], [0, 5], [1, 4]])
    changes: dict[str, Any] = {"action_space": space, "action_masks": None}
    assert expert(actions=actions, **changes).n_steps == 6
    actions[4] = wrong
    with pytest.raises(ZooError, match=r"at step 4 is no action of"):
        expert(actions=actions, **changes)
