"""Making a user's own policy class: it gets its arguments, and a wrong one is refused in words."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import recurrent_policies
import torch
from gymnasium import spaces

from zoo.errors import ZooError
from zoo.policies.acting import ActingPolicy
from zoo.policies.actor_critic import ActorCritic
from zoo.policies.config import PolicyConfig
from zoo.policies.own_policy import make_policy
from zoo.policies.q_network import QNetwork

OBSERVATIONS = spaces.Box(-1.0, 1.0, (4,), np.float32)
DOCS = Path(__file__).resolve().parents[2] / "docs" / "algorithms.md"

NOT_A_CLASS = 3


class Favourite(ActorCritic):
    """Has an argument of its own."""

    def __init__(self, *args: Any, favourite: int = 1) -> None:
        super().__init__(*args)
        self.favourite = favourite


def made(target: str | None = None, **kwargs: Any) -> ActorCritic:
    config = PolicyConfig(_target_=target, net_arch=[8], kwargs=kwargs)
    return make_policy(ActorCritic, OBSERVATIONS, spaces.Discrete(2), config)


def test_without_a_target_the_class_is_the_algorithms() -> None:
    assert type(made()) is ActorCritic
    network = make_policy(QNetwork, OBSERVATIONS, spaces.Discrete(2), PolicyConfig(), dueling=True)
    assert network.state_value is not None


def test_kwargs_reach_the_class() -> None:
    policy = made("test_own_policy.Favourite", favourite=0)
    assert type(policy).__name__ == "Favourite"
    assert policy.favourite == 0


def test_a_core_is_one_method() -> None:
    policy = made("recurrent_policies.GruActorCritic")
    assert isinstance(policy.core, recurrent_policies.GruCore)


def test_the_documented_policy_works() -> None:
    source = re.search(r"```python\n((?:(?!```).)*class MyActorCritic.*?)```", DOCS.read_text(), re.DOTALL)
    assert source is not None
    names: dict[str, Any] = {}
    exec(source[1], names)
    policy = names["MyActorCritic"](OBSERVATIONS, spaces.Discrete(2), PolicyConfig(), width=16)
    assert policy.critic[0].out_features == 16
    seen = {"observations": np.zeros((3, 4), np.float32)}
    assert policy({"observations": torch.zeros(3, 4)})[1].shape == (3,)
    assert ActingPolicy(policy).act(seen, None)[0].shape == (3,)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("test_own_policy.Missing", "has no `Missing`"),
        ("no_such_module.Policy", "can't import"),
        ("Policy", "can't import"),
        ("test_own_policy.NOT_A_CLASS", "is not a subclass of zoo.policies.actor_critic.ActorCritic"),
        ("zoo.policies.q_network.QNetwork", "is not a subclass of zoo.policies.actor_critic.ActorCritic"),
    ],
)
def test_wrong_classes_are_refused(target: str, message: str) -> None:
    with pytest.raises(ZooError, match=message):
        made(target)


def test_kwargs_without_a_class_are_refused() -> None:
    with pytest.raises(ZooError, match=r"name its class in `policy\._target_`"):
        made(favourite=1)


class Wide(ActorCritic):
    """Can't be made without its own argument, and takes no others."""

    def __init__(
        self, observation_space: Any, action_space: Any, config: PolicyConfig, *, width: int
    ) -> None:
        super().__init__(observation_space, action_space, config)


@pytest.mark.parametrize(
    ("kwargs", "problem"),
    [
        ({"widht": 3}, "it takes no `widht`; did you mean 'width'?"),
        ({}, "missing a required argument: 'width'"),
        ({"width": 3, "config": 1}, "multiple values for argument 'config'"),
    ],
)
def test_kwargs_that_do_not_fit_are_refused(kwargs: dict[str, Any], problem: str) -> None:
    with pytest.raises(ZooError) as caught:
        made("test_own_policy.Wide", **kwargs)
    assert str(caught.value).startswith("`policy.kwargs` don't fit test_own_policy.Wide: ")
    assert str(caught.value).endswith(problem)


class Open(ActorCritic):
    """Can't be made without its own argument, and takes any others."""

    def __init__(self, *args: Any, width: int, **others: Any) -> None:
        super().__init__(*args)


def test_a_class_that_takes_any_kwargs_is_not_said_to_take_some() -> None:
    with pytest.raises(ZooError, match="missing a required argument: 'width'"):
        made("test_own_policy.Open", colour=3)
