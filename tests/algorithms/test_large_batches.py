"""A batch that is larger than what it is drawn from: all of a rollout is one batch, and the user is told."""

from __future__ import annotations

from typing import Any

import pytest

import zoo
from zoo.errors import ZooWarning

ENV = "CartPole-v1"
QUIET: dict[str, Any] = {"seed": 0, "compile": False, "threads": 1}


@pytest.mark.parametrize(
    ("algorithm", "policy", "options", "n_updates"),
    [
        (zoo.PPO, "MlpPolicy", {"n_steps": 32}, 10),  # n_epochs, one batch each
        (zoo.RecurrentPPO, "MlpLstmPolicy", {"n_steps": 16, "n_envs": 2}, 10),
        (zoo.PPO1, "MlpPolicy", {"n_steps": 32}, 4),
        (zoo.PPO2, "MlpPolicy", {"n_steps": 32, "batch_size": 33}, 4),
        (zoo.TRPO, "MlpPolicy", {"n_steps": 32}, 11),  # one of the actor, ten of the critic
    ],
)
def test_rollout_is_the_batch(
    algorithm: type[Any], policy: str, options: dict[str, Any], n_updates: int
) -> None:
    with pytest.warns(ZooWarning, match="batch_size") as told:
        model = algorithm(policy, ENV, **options, **QUIET).learn(32)
    assert len([each for each in told if "batch_size" in str(each.message)]) == 1
    assert model.n_updates == n_updates


@pytest.mark.parametrize(
    ("algorithm", "env", "options"),
    [
        (zoo.DQN, ENV, {"buffer_size": 20}),
        (zoo.DQN, ENV, {"buffer_size": 20, "replay": {"prioritized": {}}}),
        (zoo.SAC, "Pendulum-v1", {"buffer_size": 30}),
    ],
)
def test_memory_that_is_smaller_than_a_batch_is_learned_from(
    algorithm: type[Any], env: str, options: dict[str, Any]
) -> None:
    with pytest.warns(ZooWarning, match="batch_size"):
        model = algorithm("MlpPolicy", env, learning_starts=10, train_freq=1, **options, **QUIET)
    assert model.learn(40).n_updates == 30
