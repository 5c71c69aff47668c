"""Rollouts hold what happened, and their advantages follow from it, however environments reset."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from logged_envs import KINDS, LENGTHS, Logged, Transition, logged_vector_env

from zoo import A2C, PPO2, make_vec_env
from zoo.algorithms import on_policy
from zoo.algorithms.on_policy import OnPolicyAlgorithm

N_STEPS, N_ENVS = 11, 3


def collected(kind: str, **hyperparameters: Any) -> tuple[A2C, list[list[Transition]], list[Logged]]:
    """Return an algorithm with its second rollout, what each environment saw in it, and the environments."""
    vector_env, envs = logged_vector_env(kind)
    model = A2C(
        {"net_arch": [8]}, vector_env, seed=0, compile=False, n_steps=N_STEPS, **hyperparameters
    ).learn(N_STEPS * N_ENVS)
    before = [len(env.log) for env in envs]
    model.collect()
    return model, [env.log[start:] for env, start in zip(envs, before, strict=True)], envs


def value(model: OnPolicyAlgorithm, observation: np.ndarray) -> float:
    with torch.no_grad():
        return float(model.policy.values({"observations": torch.from_numpy(observation[None])})[0])


def slow_advantages(model: A2C, log: list[Transition], gamma: float, gae_lambda: float) -> list[float]:
    """Return A = r + γ·V(s′) − V(s) + γλ·A′, with no V(s′) after a termination, no A′ over any end."""
    advantages: list[float] = []
    following = 0.0
    for step in reversed(log):
        if step.terminated or step.truncated:
            following = 0.0
        next_value = 0.0 if step.terminated else value(model, step.next_observation)
        difference = step.reward + gamma * next_value - value(model, step.observation)
        following = difference + gamma * gae_lambda * following
        advantages.append(following)
    return advantages[::-1]


def test_normalization_includes_the_current_step() -> None:
    """Each step sees statistics of all until then and of itself; so does its reward those of returns."""
    envs = [Logged(lengths) for lengths in LENGTHS]
    waiting = list(envs)
    vector_env = make_vec_env(lambda: waiting.pop(0), N_ENVS, check=False, normalize=True, gamma=0.9)
    settings: dict[str, Any] = {"seed": 0, "compile": False, "n_steps": N_STEPS, "gamma": 0.9}
    model = A2C({"net_arch": [8]}, vector_env, **settings).learn(N_STEPS * N_ENVS)
    raw = np.array([[step.observation for step in env.log] for env in envs], np.float64).swapaxes(0, 1)
    running, returns = np.zeros(N_ENVS), []
    for i in range(N_STEPS):
        seen = raw[: i + 1].reshape(-1, 3)
        expected = (raw[i] - seen.mean(0)) / np.sqrt(seen.var(0) + 1e-8)
        np.testing.assert_allclose(model.buffer.columns["observations"][i], expected, rtol=1e-5, atol=1e-6)
        steps = [env.log[i] for env in envs]
        rewards = np.array([step.reward for step in steps])
        running = 0.9 * running + rewards
        returns.append(running.copy())
        expected = rewards / np.sqrt(np.var(returns) + 1e-8)
        np.testing.assert_allclose(model.buffer.rewards[i], expected.clip(-10, 10), rtol=1e-5)
        running[[step.terminated or step.truncated for step in steps]] = 0.0


@pytest.mark.parametrize("kind", KINDS)
def test_a_rollout_holds_what_happened(kind: str) -> None:
    model, logs, envs = collected(kind)
    memory = model.buffer
    for env, log in enumerate(logs):
        np.testing.assert_array_equal(
            memory.columns["observations"][:, env], [step.observation for step in log[:N_STEPS]]
        )
        assert memory.columns["actions"][:, env].tolist() == [step.action for step in log[:N_STEPS]]
        np.testing.assert_array_equal(
            memory.rewards[:, env], np.array([step.reward for step in log[:N_STEPS]], np.float32)
        )
        ends = [step.terminated or step.truncated for step in log[:N_STEPS]]
        assert memory.dones[:, env].tolist() == ends
    lengths = {len(log) for log in logs}
    assert (lengths == {N_STEPS}) == (kind != "NEXT_STEP")
    assert min(lengths) == N_STEPS
    assert model.num_timesteps == sum(len(env.log) for env in envs)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gae_lambda", [0.0, 0.7, 1.0])
def test_only_truncated_episodes_bootstrap(kind: str, gae_lambda: float) -> None:
    model, logs, _ = collected(kind)
    model.config.gamma, model.config.gae_lambda = 0.9, gae_lambda
    rollout = model.finished_rollout()
    torch.testing.assert_close(rollout["returns"], rollout["advantages"] + rollout["values"])
    table = rollout["advantages"].reshape(N_STEPS, N_ENVS).numpy()
    for env, log in enumerate(logs):
        assert any(step.truncated for step in log[:N_STEPS]) == (env != 2)
        np.testing.assert_allclose(
            table[:, env],
            slow_advantages(model, log[:N_STEPS], 0.9, gae_lambda),
            rtol=1e-4,
            atol=1e-5,
        )


@pytest.mark.parametrize(
    ("algorithm", "policy", "env"),
    [
        (A2C, {"net_arch": [8]}, "CartPole-v1"),
        (PPO2, {"net_arch": [8], "activation": "elu"}, "CartPole-v1"),
        (A2C, {"encoder": "multi", "features_dim": 8}, "Zoo/IdentityDict-v0"),
    ],
)
def test_long_rollouts_are_valued_in_pieces(algorithm: Any, policy: Any, env: str, monkeypatch: Any) -> None:
    rollouts = []
    for piece_bytes in (on_policy.PIECE_BYTES, 0):
        monkeypatch.setattr(on_policy, "PIECE_BYTES", piece_bytes)
        model = algorithm(policy, env, n_envs=N_ENVS, seed=0, compile=False, n_steps=N_STEPS)
        model.learn(1)
        rollouts.append(model.finished_rollout())
    whole, in_pieces = rollouts
    for name in ("values", "advantages", "returns", *(["log_prob"] if algorithm is PPO2 else [])):
        assert whole[name].shape == (N_STEPS * N_ENVS,)
        torch.testing.assert_close(in_pieces[name], whole[name], rtol=1e-4, atol=1e-5)


def test_values_of_pictures_come_with_the_actions() -> None:
    cnn = {"encoder": "cnn", "features_dim": 8, "share_encoder": False}
    model = PPO2(cnn, "Zoo/IdentityImage-v0", n_envs=N_ENVS, seed=0, compile=False, n_steps=N_STEPS)
    model.learn(1)
    model.collect()
    rollout = model.finished_rollout()
    assert {"values", "log_prob"} <= model.buffer.columns.keys()
    with torch.no_grad():
        parameters, values, _ = model.policy(rollout)
        log_prob = model.policy.head.log_prob(parameters, rollout["actions"])
    torch.testing.assert_close(rollout["values"], values, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(rollout["log_prob"], log_prob, rtol=1e-4, atol=1e-5)
