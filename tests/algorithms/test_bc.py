"""Behaviour cloning as an algorithm: epochs, early end, exact resume, and what can go on from it."""

from __future__ import annotations

import json
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from zoo.algorithms.bc import BC
from zoo.algorithms.callback import Callback
from zoo.algorithms.ppo2 import PPO2
from zoo.envs.config import EnvConfig
from zoo.envs.normalize import VecNormalize
from zoo.errors import ZooError
from zoo.files.tensors import join, split
from zoo.memory.expert_data import ExpertData
from zoo.training.expert_recording import record_expert

LSTM = {"name": "MlpLstmPolicy", "lstm_hidden_size": 8, "net_arch": [8]}


def controller(observation: Any) -> int:
    return int(observation[2] + observation[3] > 0)


@pytest.fixture(scope="module")
def cartpole() -> ExpertData:
    """Five episodes of a controller that stays up."""
    return record_expert(controller, EnvConfig("CartPole-v1", max_episode_steps=100), 5, seed=0)


def clone(data: ExpertData | None, policy: Any = None, *, compile: bool = False, **options: Any) -> BC:
    policy = {"net_arch": [16]} if policy is None else policy
    defaults = {"seed": 1, "threads": 1, "env": "CartPole-v1", "learning_rate": 1e-2}
    return BC(policy, dataset=data, compile=compile, **{**defaults, **options})


def numbers(model: BC) -> dict[str, Any]:
    arrays, values = split(model.state())
    del values["counts"]["timings"]
    values["interaction"].get("envs", {}).pop("seconds", None)
    return {**{name: array.tobytes() for name, array in arrays.items()}, "values": json.dumps(values)}


def test_a_step_of_the_run_is_a_step_of_the_expert(cartpole: ExpertData) -> None:
    model = clone(cartpole, validation_fraction=0.2).learn(1000)
    assert model.num_timesteps == 3 * 400  # whole epochs of four episodes
    assert model.n_updates == 3 * 7
    assert model.read_metrics()["train/validation_loss"] > 0
    everything = clone(cartpole, validation_fraction=0.0).learn(1000)
    assert everything.num_timesteps == 2 * 500
    assert "train/validation_loss" not in everything.read_metrics()


def test_clone_does_what_the_expert_does(cartpole: ExpertData) -> None:
    model = clone(cartpole).learn(15_000)
    assert (model.predict(cartpole.observations)[0] == cartpole.actions).mean() > 0.95


def test_only_good_episodes_are_learned_from(cartpole: ExpertData) -> None:
    assert clone(cartpole, n_episodes=2, validation_fraction=0.0).learn(1).num_timesteps == 200
    with pytest.raises(ZooError, match=r"min_return=101 leaves nothing of 5 episodes"):
        clone(cartpole, min_return=101)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("policy", [None, LSTM], ids=["mlp", "lstm"])
def test_same_seed_and_exact_resume(cartpole: ExpertData, policy: Any, normalize: bool) -> None:
    env = EnvConfig("CartPole-v1", normalize=normalize)
    kept: dict[int, Any] = {}

    class Keep(Callback):
        every = 400

        def on_steps(self, algorithm: Any) -> None:
            arrays, values = split(algorithm.state())
            kept[algorithm.num_timesteps] = {k: v.copy() for k, v in arrays.items()}, json.dumps(values)

    model = clone(cartpole, policy, env=env, patience=3).learn(2000, Keep())
    again = clone(cartpole, policy, env=env, patience=3).learn(2000, Keep())
    assert numbers(again) == numbers(model)
    assert numbers(clone(cartpole, policy, env=env, seed=2).learn(2000)) != numbers(model)
    for steps in (400, 1200):
        arrays, values = kept[steps]
        resumed = clone(cartpole, policy, env=env, patience=3, seed=None)  # the seed is restored, too
        resumed.load_state(join(arrays, json.loads(values)))
        assert resumed.num_timesteps == steps
        resumed.learn(2000 - steps, Keep(), reset_num_timesteps=False)
        assert numbers(resumed) == numbers(model)


def test_run_goes_on_with_the_data_that_it_learned_from_alone(cartpole: ExpertData) -> None:
    state = clone(cartpole).learn(400).state()
    other = clone(cartpole.filtered(n_episodes=4))
    before = numbers(other)
    with pytest.raises(ZooError, match="not those that the run has learned from"):
        other.load_state(state)
    assert numbers(other) == before
    clone(None).load_state(state)  # an agent acts without them
    clone(cartpole).load_state({**state, "expert": None})
    del state["expert"]  # as before it was kept
    clone(cartpole).load_state(state)


def test_run_ends_with_the_best_parameters_where_validation_gets_no_better(cartpole: ExpertData) -> None:
    losses: list[tuple[float, dict[str, np.ndarray]]] = []

    class Watch(Callback):
        every = 1

        def on_steps(self, algorithm: Any) -> None:
            losses.append(
                (algorithm.cloning.validation_loss(algorithm._demonstrations), algorithm.get_parameters())
            )

    model = clone(cartpole, learning_rate=0.5, patience=2).learn(40_000, Watch())
    assert model.stop_reason is not None
    assert model.stop_reason.startswith("no better validation loss than")
    assert model.num_timesteps < 40_000
    best = min(losses, key=lambda each: each[0])[1]
    for name, value in model.get_parameters().items():
        np.testing.assert_array_equal(value, best[name])
    assert clone(cartpole, learning_rate=0.5, patience=None).learn(6_000).stop_reason is None


def validated(model: BC) -> float:
    assert model._demonstrations is not None
    return model.cloning.validation_loss(model._demonstrations)


class Losses(Callback):
    """Notes the validation loss after each epoch but the last."""

    every = 1

    def __init__(self) -> None:
        self.found: list[float] = []

    def on_steps(self, algorithm: Any) -> None:
        self.found.append(validated(algorithm))


def test_run_that_goes_through_all_its_steps_ends_with_the_best_parameters(cartpole: ExpertData) -> None:
    losses = Losses()
    model = clone(cartpole, learning_rate=0.5, patience=None).learn(6_000, losses)
    best = model.cloning.patience.best
    assert validated(model) == best == min(losses.found)
    last = clone(cartpole, learning_rate=0.5, patience=None).learn(6_400, losses := Losses())
    assert losses.found[14] > best, "the last epoch was the best one: nothing is shown"
    assert validated(last) <= best


@pytest.mark.parametrize("where", ["here", "resumed"])
def test_run_that_goes_on_is_as_one_that_was_longer_from_the_beginning(
    cartpole: ExpertData, where: str
) -> None:
    options: Any = {"learning_rate": 0.5, "patience": None}
    whole, part = clone(cartpole, **options).learn(8_000), clone(cartpole, **options).learn(6_000)
    if where == "resumed":
        state, part = part.state(), clone(cartpole, **options)
        part.load_state(state)
    part.learn(2_000, reset_num_timesteps=False)
    parts = part.cloning.patience.state(), whole.cloning.patience.state()
    for name, value in parts[0].items():
        np.testing.assert_array_equal(value, parts[1][name])
    for name, tensor in whole.program.state.items():
        np.testing.assert_array_equal(part.program.state[name].numpy(), tensor.numpy())


def test_parameters_that_somebody_has_set_are_gone_on_from(cartpole: ExpertData) -> None:
    model = clone(cartpole, learning_rate=0.5, patience=None).learn(6_000)
    zeros = {name: np.zeros_like(value) for name, value in model.get_parameters().items()}
    model.set_parameters(zeros)
    model.collect()
    assert not any(value.any() for value in model.get_parameters().values())


def test_patience_begins_anew_with_a_new_run(cartpole: ExpertData) -> None:
    model = clone(cartpole, learning_rate=0.5, patience=2).learn(40_000)
    first, best = model.num_timesteps, model.cloning.patience.best
    assert first < 40_000
    model.learn(40_000)
    assert model.num_timesteps > 800, "it ended after one epoch"
    assert validated(model) <= best
    model.learn(40_000, reset_num_timesteps=False)
    assert model.cloning.patience.n_worse == 2


def test_statistics_of_a_normaliser_that_stands_still_are_left_alone(cartpole: ExpertData) -> None:
    for training, expected in ((True, 500), (False, 0)):
        envs = VecNormalize(gym.make_vec("CartPole-v1", 1, vectorization_mode="sync"), training=training)
        model = clone(cartpole, env=envs).learn(400)
        model.learn(400)
        assert model.normalizer is not None
        assert model.normalizer.moments[""].count == pytest.approx(expected, abs=2)


@pytest.mark.slow  # compiling takes longer than all the rest
def test_compiled_equals_eager(cartpole: ExpertData) -> None:
    options: Any = {"ent_coef": 0.1, "l2_coef": 0.01, "max_grad_norm": 0.5}
    eager = clone(cartpole, **options).learn(800).get_parameters()
    compiled = clone(cartpole, compile=True, **options).learn(800).get_parameters()
    for name, value in eager.items():
        np.testing.assert_allclose(compiled[name], value, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("space", ["Box", "MultiDiscrete", "MultiBinary", "Composite", "Image", "Dict"])
def test_every_space_is_cloned(space: str) -> None:
    name = f"Zoo/{space if space == 'Composite' else f'Identity{space}'}-v0"
    expert = PPO2("MlpPolicy", name, seed=3, compile=False, threads=1, n_steps=32)
    expert.set_parameters({key: 8 * value for key, value in expert.get_parameters().items()})
    data = record_expert(expert, name, 20, n_envs=4, seed=0)
    model = BC("MlpPolicy", name, dataset=data, seed=0, compile=False, threads=1, learning_rate=3e-3)
    model.learn(400)
    first = model.read_metrics()["train/validation_loss"]
    model.learn(6_000, reset_num_timesteps=False)
    assert model.cloning.patience.best < 0.9 * first


def test_ppo2_goes_on_from_a_clone(cartpole: ExpertData, tmp_path: Any) -> None:
    import zoo

    model = clone(cartpole).learn(2000)
    loaded = zoo.load(model.save(tmp_path / "agent"))
    np.testing.assert_array_equal(
        loaded.predict(cartpole.observations)[0], model.predict(cartpole.observations)[0]
    )
    successor = PPO2({"net_arch": [16]}, "CartPole-v1", compile=False, n_steps=64)
    successor.set_parameters(loaded.get_parameters())


def test_wrong_input_gets_one_clear_line(cartpole: ExpertData) -> None:
    with pytest.raises(ZooError, match=r"bc learns from expert data: dataset=PATH"):
        clone(None).learn(100)
    with pytest.raises(ZooError, match=r"the observations of .* differ: Box\(4,\)"):
        clone(cartpole, env="Acrobot-v1")
    with pytest.raises(ZooError, match=r"there is no nothing\.npz"):
        BC("MlpPolicy", "CartPole-v1", dataset="nothing.npz")
    assert spaces.Tuple in BC.supported_actions


def test_gradient_steps_are_foreseen(cartpole: ExpertData) -> None:
    assert clone(cartpole, batch_size=50).gradient_steps_in(1000) == 20.0
