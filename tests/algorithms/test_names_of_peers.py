"""What models, their methods and callbacks have elsewhere works, or is answered with what is meant here."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import zoo
from zoo.errors import ZooError
from zoo.training.checkpoint import CheckpointCallback

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
        ("rollout_buffer", "model.memory"),
        ("nothing", "nothing'"),
    ],
)
def test_attributes_of_peers_are_answered(model: zoo.PPO2, name: str, meant: str) -> None:
    with pytest.raises(AttributeError, match=meant):
        getattr(model, name)


@pytest.mark.parametrize(
    ("name", "meant"), [("callback", "callbacks"), ("render", "render_mode"), ("warn", "true returns")]
)
def test_arguments_of_evaluate_policy_are_answered(model: zoo.PPO2, name: str, meant: str) -> None:
    with pytest.raises(ZooError, match=f"evaluate_policy.{name}.*{meant}"):
        zoo.evaluate_policy(model, ENV, **{name: True})


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        *(("save_freq", "CheckpointCallback.every"), ("save_path", "first argument")),
        *(("save_replay_buffer", "always holds the memory"), ("everry", "CheckpointCallback.every")),
    ],
)
def test_arguments_of_checkpoints_are_answered(name: str, meant: str) -> None:
    with pytest.raises(ZooError, match=meant):
        CheckpointCallback(**{name: 100})


@pytest.mark.parametrize("callback", [lambda *_: True, [print], object()])
def test_callback_that_is_none_is_told(model: zoo.PPO2, callback: object) -> None:
    with pytest.raises(ZooError, match="callback is a "):
        model.learn(64, callback)  # type: ignore[arg-type]
