"""What models, their methods and callbacks have elsewhere works, or is answered with what is meant here."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import zoo
from zoo.errors import ZooError

ENV = "CartPole-v1"


@pytest.fixture
def model() -> zoo.PPO2:
    return zoo.PPO2("MlpPolicy", ENV, n_steps=32, seed=0, compile=False, threads=1)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_model_is_pickled_after_it_learned_and_acted(model: zoo.PPO2, copied: object) -> None:
    observations = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    model.learn(64)
    actions, _ = model.predict(observations)
    again = copied(model)  # type: ignore[operator]
    assert np.array_equal(again.predict(observations)[0], actions)
    assert (again.num_timesteps, again.seed, again.config) == (64, 0, model.config)
    assert again.get_env() is None
    again.set_env(ENV)
    again.learn(32, reset_num_timesteps=False)
    assert again.num_timesteps == 96


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("logger", "LoggingCallback"),
        ("env", "get_env"),
        ("rollout_buffer", "model.buffer"),
        ("tensorboard_log", "TensorBoard"),
        ("nothing", "nothing'$"),
    ],
)
def test_attributes_of_peers_are_answered(model: zoo.PPO2, name: str, meant: str) -> None:
    with pytest.raises(AttributeError, match=meant):
        getattr(model, name)


@pytest.mark.parametrize(
    ("algorithm", "env", "name", "options"),
    [
        (zoo.PPO2, ENV, "learning_rate", {"n_steps": 16}),
        (zoo.A2C, ENV, "learning_rate", {}),
        (zoo.ARS, ENV, "learning_rate", {"n_delta": 1}),
        (zoo.DQN, ENV, "learning_rate", {"learning_starts": 10}),
        (
            zoo.DDPG,
            "Pendulum-v1",
            "actor_learning_rate",
            {"learning_starts": 10, "train_freq": 10, "gradient_steps": 1},
        ),
    ],
)
def test_rates_are_others_from_the_next_update_on(
    algorithm: type[Any], env: str, name: str, options: dict[str, Any], tmp_path: Path
) -> None:
    model = algorithm("MlpPolicy", env, seed=0, compile=False, threads=1, **options).learn(32)
    before = model.get_parameters()
    setattr(model, name, 0.0)
    model.learn(32, reset_num_timesteps=False)
    after = model.get_parameters()
    actors = [each for each in after if "critic" not in each]
    assert actors
    assert all(np.array_equal(before[each], after[each]) for each in actors)
    assert getattr(zoo.load(model.save(tmp_path / "agent")), name) == 0.0
    setattr(model, name, 0.25)
    model.learn(32, reset_num_timesteps=False)
    assert any((after[each] != model.get_parameters()[each]).any() for each in actors)
    with pytest.raises(ZooError, match=name):
        setattr(model, name, -1)


@pytest.mark.parametrize(
    ("name", "value", "named"),
    [
        ("n_epochs", 0, "at least 1"),
        ("clip_range", -0.1, "more than 0"),
        ("clip_range", None, "float"),
        ("learning_rate", lambda progress: 1e-3, "lin_3e-4"),
        *(
            ("n_epochs", 3, "n_epochs=…"),
            ("gamma", 0.9, "gamma=…"),
            ("clip_range_vf", 0.2, "clip_range_vf=…"),
        ),
        *(("policy", torch.nn.Linear(2, 2), "fixed"), ("config", None, "fixed")),
        *(("env", ENV, "get_env"), ("logger", None, "LoggingCallback"), ("verbose", 1, "callbacks")),
    ],
)
def test_what_would_do_nothing_is_not_taken(model: zoo.PPO2, name: str, value: Any, named: str) -> None:
    policy, config = model.policy, model.config
    with pytest.raises(ZooError, match=f"(?s){name}.*{named}"):
        setattr(model, name, value)
    assert model.policy is policy
    assert model.config is config


@pytest.mark.parametrize("callback", [lambda *_: True, [print], object()])
def test_callback_that_is_none_is_told(model: zoo.PPO2, callback: object) -> None:
    with pytest.raises(ZooError, match="callback is a "):
        model.learn(64, callback)  # type: ignore[arg-type]


def test_arguments_of_peers_load_and_make_vec_env_are_answered(model: zoo.PPO2, tmp_path: Path) -> None:
    path = model.save(tmp_path / "agent")
    for name, meant in {
        "custom_objects": "its spaces are those of env=",
        "print_system_info": "zoo doctor",
    }.items():
        with pytest.raises(ZooError, match=meant):
            zoo.load(path, **{name: True})
    with pytest.raises(ZooError, match="vectorization"):
        zoo.make_vec_env(ENV, vec_env_cls=object)


def test_recurrent_ppo_needs_a_policy_that_remembers(tmp_path: Path) -> None:
    with pytest.raises(ZooError, match="policy=MlpLstmPolicy"):
        zoo.RecurrentPPO("MlpPolicy", ENV, compile=False, threads=1)
    recurrent = zoo.RecurrentPPO("MlpLstmPolicy", ENV, compile=False, threads=1)
    assert zoo.RecurrentPPO.load(recurrent.save(tmp_path / "agent")).config == recurrent.config
