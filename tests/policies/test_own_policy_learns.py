"""A user's own policy class is what acts and what learns in each algorithm."""

from __future__ import annotations

from typing import Any

import numpy as np
import own_policies
import pytest

from zoo import A2C, DQN, PPO2, QRDQN, SAC


def own(name: str, **kwargs: Any) -> dict[str, Any]:
    return {"_target_": f"own_policies.{name}", "net_arch": [8], "kwargs": kwargs}


def test_kwargs_reach_the_class() -> None:
    model = PPO2(own("FixedActorCritic", favourite=0), "CartPole-v1")
    assert isinstance(model.policy, own_policies.FixedActorCritic)
    assert model.policy.favourite == 0


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


def test_a_quantile_network_of_ones_own_decides_by_its_means() -> None:
    model = QRDQN(own("FixedQuantileNetwork"), "CartPole-v1", buffer_size=100, n_quantiles=4)
    actions, _ = model.predict(np.random.default_rng(0).normal(size=(20, 4)))
    assert actions.tolist() == [1] * 20


def test_a_sac_policy_of_ones_own_decides() -> None:
    model = SAC(own("TimidSACPolicy"), "Pendulum-v1")
    actions, _ = model.predict(np.ones((3, 3), np.float32), deterministic=False)
    np.testing.assert_allclose(actions, 0.0, atol=1e-5)
