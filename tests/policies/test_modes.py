"""A policy of one's own is in training mode in gradient steps, and in evaluation mode otherwise."""

from __future__ import annotations

import copy
import logging
from typing import Any

import numpy as np
import pytest
import torch
from own_policies import Witness

from zoo import DDPG, DQN, PPO2, SAC, TD3, evaluate_policy
from zoo.algorithms.algorithm import Algorithm
from zoo.policies.own_policy import Modes

OFF_POLICY = {"learning_starts": 16, "train_freq": 8, "gradient_steps": 3, "batch_size": 16}

RUNS: dict[str, tuple[Any, str, str, dict[str, Any]]] = {
    "ppo2": (PPO2, "WitnessedActorCritic", "CartPole-v1", {"n_steps": 32, "n_epochs": 2}),
    "dqn": (DQN, "WitnessedQNetwork", "CartPole-v1", {**OFF_POLICY, "target_update_interval": 20}),
    "ddpg": (DDPG, "WitnessedDDPGPolicy", "Pendulum-v1", {**OFF_POLICY, "parameter_noise": {}}),
    "sac": (SAC, "WitnessedSACPolicy", "Pendulum-v1", OFF_POLICY),
    "td3": (TD3, "WitnessedTD3Policy", "Pendulum-v1", OFF_POLICY),
}


def make(name: str, *, compile: bool = False, seed: int = 1, **witness: Any) -> Algorithm:
    algorithm, policy, env_id, settings = RUNS[name]
    config = {"_target_": f"own_policies.{policy}", "net_arch": [8], "kwargs": witness}
    model: Algorithm = algorithm(config, env_id, seed=seed, compile=compile, threads=1, **settings)
    return model


def observations(model: Algorithm, n: int = 5) -> np.ndarray:
    return (
        np.random.default_rng(0).normal(size=(n, *(model.observation_space.shape or ()))).astype(np.float32)
    )


@pytest.fixture
def modes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bool, bool]]:
    """Return what the witnesses note from now on."""
    seen: list[tuple[bool, bool]] = []
    monkeypatch.setattr(Witness, "modes", seen)
    return seen


@pytest.mark.parametrize("name", RUNS)
def test_only_gradient_steps_are_taken_in_training_mode(
    name: str, modes: list[tuple[bool, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make(name)

    def noted(step: Any) -> Any:
        def noted_step(*arguments: Any) -> Any:
            before = Witness.stepping
            monkeypatch.setattr(Witness, "stepping", True)
            try:
                return step(*arguments)
            finally:
                monkeypatch.setattr(Witness, "stepping", before)

        return noted_step

    for step in ("_round", "_critic_steps") if name == "td3" else ("_gradient_step",):
        monkeypatch.setattr(model, step, noted(getattr(model, step)))
    model.learn(64)
    model.predict(observations(model), deterministic=False)
    model.action_probability(observations(model))
    evaluate_policy(model, RUNS[name][2], 1, seed=0)
    acting = [training for training, stepping in modes if not stepping]
    assert acting
    assert not any(acting)
    in_steps = {training for training, stepping in modes if stepping}
    # What an off-policy step learns towards is looked for in evaluation mode, as by target networks in SB3.
    assert in_steps == ({True} if name == "ppo2" else {True, False})


@pytest.mark.parametrize("name", ["dqn", "ddpg", "sac", "td3"])
def test_targets_are_computed_in_evaluation_mode(name: str, modes: list[tuple[bool, bool]]) -> None:
    model: Any = make(name).learn(64)
    batch = model._tensors(model.buffer.sample(model.rng, (16,)))
    batch["noise"] = torch.randn(16, 1)
    extra = (batch["noise"], torch.tensor(0.1)) if name == "sac" else ()
    for training in (True, False):
        model.policy.train(training)
        modes.clear()
        model.targets(model.runner.state, batch, *extra)
        assert {mode for mode, _ in modes} == {False}
        assert all(each.training == training for each in model.policy.modules())


@pytest.mark.parametrize("name", RUNS)
def test_acting_drops_nothing_and_moves_no_statistics(name: str) -> None:
    model = make(name, dropout=0.5, normalize=True).learn(64)
    assert any(value.any() for key, value in model.get_parameters().items() if "running_mean" in key)
    before, batch = model.get_parameters(), observations(model)
    first = model.action_probability(batch)
    model.policy.train()  # as a user's own training step leaves it
    np.testing.assert_array_equal(model.action_probability(batch), first)
    np.testing.assert_array_equal(model.predict(batch)[0], model.predict(batch)[0])
    for key, value in model.get_parameters().items():
        np.testing.assert_array_equal(value, before[key], err_msg=key)


def test_gradient_steps_drop() -> None:
    without, with_dropout = (make("ppo2", dropout=share).learn(32) for share in (0.0, 0.5))
    first, second = without.get_parameters(), with_dropout.get_parameters()
    assert any(not np.array_equal(value, second[key]) for key, value in first.items())


@pytest.mark.parametrize("name", ["ppo2", "sac"])
def test_steps_that_move_statistics_run_eagerly_and_say_so(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    eager = make(name, normalize=True).learn(64).get_parameters()
    with caplog.at_level(logging.WARNING):
        asked = make(name, compile=True, normalize=True).learn(64).get_parameters()
    assert "the update runs eagerly: no gradient step trains the policy's `" in caplog.text
    for key, value in eager.items():
        np.testing.assert_array_equal(asked[key], value, err_msg=key)


@pytest.mark.parametrize("name", RUNS)
def test_a_restored_run_with_dropout_and_statistics_ends_as_an_uninterrupted_one(name: str) -> None:
    straight = make(name, dropout=0.3, normalize=True).learn(64)
    resumed = make(name, seed=2, dropout=0.3, normalize=True)
    resumed.load_state(copy.deepcopy(straight.state()))
    torch.rand(7)
    for model in (straight, resumed):
        model.learn(64, reset_num_timesteps=False)
    for key, value in straight.get_parameters().items():
        np.testing.assert_array_equal(resumed.get_parameters()[key], value, err_msg=key)


def test_a_part_that_stays_in_evaluation_mode_does() -> None:
    model = make("ppo2", normalize=True)
    norm = model.policy.encoder.norm  # type: ignore[union-attr]
    norm.train = lambda mode=True: norm  # type: ignore[method-assign,assignment,union-attr]
    model.learn(64)
    assert not norm.running_mean.any()  # type: ignore[union-attr,operator]


def test_zoos_own_policies_are_never_switched() -> None:
    """Switching walks through all modules, which would cost a small network as much as a step."""
    for algorithm, env_id in ((PPO2, "CartPole-v1"), (DQN, "CartPole-v1"), (SAC, "Pendulum-v1")):
        policy = algorithm("LnMlpPolicy", env_id).policy
        modes = Modes(policy)
        with modes.training():
            assert not modes.matter
            assert not policy.training
