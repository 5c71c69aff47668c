"""Which environments a deviation of actions can be said for."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from zoo.algorithms.arguments import check_sde_options
from zoo.errors import ZooError
from zoo.policies.config import PolicyConfig

BOX, CHOICE = spaces.Box(-1.0, 1.0, (2,), np.float32), spaces.Discrete(2)


@pytest.mark.parametrize(
    ("space", "has_deviation"),
    [
        (BOX, True),
        (CHOICE, False),
        (spaces.Tuple([CHOICE, BOX]), True),
        (spaces.Tuple([CHOICE, CHOICE]), False),
        (spaces.Dict({"a": CHOICE, "b": spaces.Tuple([CHOICE, BOX])}), True),
        (spaces.Dict({"a": CHOICE, "b": spaces.MultiBinary(2)}), False),
    ],
    ids=str,
)
def test_a_deviation_is_of_actions_some_of_which_are_numbers(space: Any, has_deviation: bool) -> None:
    refused = pytest.raises(ZooError, match=r"`policy\.log_std_init` is of the deviation of Box actions")
    with nullcontext() if has_deviation else refused:
        check_sde_options("ppo2", SimpleNamespace(), PolicyConfig(log_std_init=-1.0), space, squashes=False)
