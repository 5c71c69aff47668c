"""Behaviour cloning as an algorithm: epochs, early end, exact resume, and what can go on from it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from zoo.algorithms.callback import Callback
from zoo.algorithms.ppo import PPO2
from zoo.core.tensors import join, split
from zoo.envs.config import EnvConfig
from zoo.errors import ZooError
from zoo.experiment.expert_recording import record_expert
from zoo.imitation.bc import BC
from zoo.imitation.expert_data import ExpertData

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
    values["collector"].get("envs", {}).pop("seconds", None)
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


@pytest.mark.parametrize(("policy", "normalize"), [(None, True), (LSTM, False)], ids=["mlp", "lstm"])
def test_same_seed_and_exact_resume(cartpole: ExpertData, policy: Any, normalize: bool) -> None:
    env = EnvConfig("CartPole-v1", normalize=normalize)
    kept: dict[int, Any] = {}

    class Keep(Callback):
        every = 400

        def on_steps(self, algorithm: Any) -> None:
            arrays, values = split(algorithm.state())
            kept[algorithm.num_timesteps] = {k: v.copy() for k, v in arrays.items()}, json.dumps(values)

    model = clone(cartpole, policy, env=env, patience=3).learn(2000, Keep())
    for steps in (400, 1200):
        arrays, values = kept[steps]
        resumed = clone(cartpole, policy, env=env, patience=3, seed=None)  # the seed is restored, too
        resumed.load_state(join(arrays, json.loads(values)))
        assert resumed.num_timesteps == steps
        resumed.learn(2000 - steps, Keep(), reset_num_timesteps=False)
        assert numbers(resumed) == numbers(model)


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
