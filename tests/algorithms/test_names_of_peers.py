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


@pytest.mark.parametrize("generator", ["trpo", "ppo2", "ppo1", "a2c", "acktr"])
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_model_of_gail_is_pickled(generator: str, copied: object) -> None:
    model = zoo.GAIL("MlpPolicy", ENV, generator=generator, seed=0, compile=False, threads=1)
    again, config = copied((model, model.config))  # type: ignore[operator]
    assert type(again) is type(model)
    assert config == model.config
    observations = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    assert np.array_equal(again.predict(observations)[0], model.predict(observations)[0])


def test_fourth_argument_of_predict_is_deterministic(model: zoo.PPO2) -> None:
    observations = np.random.default_rng(0).normal(size=(500, 4)).astype(np.float32)
    likeliest, _ = model.predict(observations, None, None, True)
    drawn, _ = model.predict(observations, None, None, False)
    assert np.array_equal(likeliest, model.predict(observations)[0])
    assert not np.array_equal(likeliest, drawn)
    with pytest.raises(ZooError, match="masks are given by name: action_masks="):
        model.predict(observations, None, None, np.ones((500, 2), np.bool_))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        ({"observation": [0, 0, 0, 0]}, "it is `predict.observations` here"),
        ({"observations": [0, 0, 0, 0], "mask": [False]}, "`mask` is `predict.episode_start` here"),
        ({}, "predict needs observations"),
    ],
)
def test_arguments_of_predict_are_answered(
    model: zoo.PPO2, arguments: dict[str, list[float]], meant: str
) -> None:
    with pytest.raises(ZooError, match=meant):
        model.predict(**arguments)  # type: ignore[arg-type]


def test_arguments_of_learn_without_a_name_are_answered(model: zoo.PPO2) -> None:
    with pytest.raises(ZooError, match="not 5 arguments; anything else is given by name"):
        model.learn(64, None, 1, "PPO", True)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("logger", "LoggingCallback"),
        ("env", "get_env"),
        ("rollout_buffer", "model.memory"),
        *(("n_steps", "model.config.n_steps"), ("learning_rate", "model.config.learning_rate")),
        ("nothing", "nothing'$"),
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
