"""Policy classes of a user: making them, that they decide and learn, and their two modes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from own_policies import ResidualActorCritic

import zoo
from zoo import A2C, DQN, PPO2, SAC
from zoo.errors import ZooError
from zoo.policies.acting import ActingPolicy
from zoo.policies.actor_critic import ActorCritic
from zoo.policies.config import PolicyConfig
from zoo.policies.custom_policy import make_policy
from zoo.policies.q_networks import QNetwork

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
        ("zoo.policies.q_networks.QNetwork", "is not a subclass of zoo.policies.actor_critic.ActorCritic"),
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
        ({"widht": 3}, "missing a required argument: 'width'"),
        ({}, "missing a required argument: 'width'"),
        ({"width": 3, "config": 1}, "multiple values for argument 'config'"),
    ],
)
def test_kwargs_that_do_not_fit_are_refused(kwargs: dict[str, Any], problem: str) -> None:
    with pytest.raises(ZooError) as caught:
        made("test_own_policy.Wide", **kwargs)
    assert str(caught.value).startswith("`policy.kwargs` don't fit test_own_policy.Wide: ")
    assert str(caught.value).endswith(problem)


def own(name: str, **kwargs: Any) -> dict[str, Any]:
    return {"_target_": f"own_policies.{name}", "net_arch": [8], "kwargs": kwargs}


@pytest.mark.parametrize("favourite", [0, 1])
def test_what_the_class_says_is_what_it_does(favourite: int) -> None:
    model = PPO2(own("FixedActorCritic", favourite=favourite), "CartPole-v1")
    observations = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    for deterministic in (True, False):
        actions, _ = model.predict(observations, deterministic=deterministic)
        assert actions.tolist() == [favourite] * 20


def test_an_actor_of_any_form_acts_and_learns() -> None:
    model = A2C(own("ResidualActorCritic"), "CartPole-v1", seed=0, compile=False)
    before = model.get_parameters()
    model.learn(20)
    after = model.get_parameters()
    assert not np.array_equal(after["actor.layers.0.weight"], before["actor.layers.0.weight"])


def test_a_q_network_of_ones_own_decides() -> None:
    model = DQN(own("FixedQNetwork"), "CartPole-v1")
    actions, _ = model.predict(np.random.default_rng(0).normal(size=(20, 4)))
    assert actions.tolist() == [1] * 20


def test_a_sac_policy_of_ones_own_decides() -> None:
    model = SAC(own("TimidSACPolicy"), "Pendulum-v1")
    actions, _ = model.predict(np.ones((3, 3), np.float32), deterministic=False)
    np.testing.assert_allclose(actions, 0.0, atol=1e-5)


def test_policy_may_be_a_class(tmp_path: Path) -> None:
    own = zoo.PPO2(ResidualActorCritic, "CartPole-v1", compile=False, threads=1).learn(128)
    assert isinstance(own.policy, ResidualActorCritic)
    own.save(tmp_path / "agent")
    assert isinstance(zoo.load(tmp_path / "agent", trust=True).policy, ResidualActorCritic)

    class Inside(ResidualActorCritic):
        pass

    with pytest.raises(ZooError, match="top of a module"):
        zoo.PPO2(Inside, "CartPole-v1")
    with pytest.raises(ZooError, match="is no policy"):
        zoo.PPO2(Path, "CartPole-v1")  # type: ignore[arg-type]
    with pytest.raises(ZooError, match="policy is a int"):
        zoo.PPO2(3, "CartPole-v1")  # type: ignore[arg-type]
