"""PPO as it is used today: a learning rate that follows the KL divergence, noise on means in updates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from zoo import PPO1, PPO2, ZooError, make_vec_env
from zoo.algorithms.ppo import adapted

SMALL: dict[str, Any] = {"n_steps": 16, "n_epochs": 2, "n_minibatches": 2, "compile": False, "threads": 1}


def make(env: str = "Pendulum-v1", **options: Any) -> Any:
    options = {"policy": {"net_arch": [8]}, "seed": 1, **SMALL, **options}
    return PPO2(env=make_vec_env(env, 2), **options)


def rate(kl: float, learning_rate: float = 1e-3, *, is_first: bool = False) -> float:
    values = (torch.tensor(value) for value in (learning_rate, kl))
    return float(adapted(*values, 0.01, torch.tensor(is_first)))


@pytest.mark.parametrize(
    ("kl", "expected"),
    [(0.021, 6.667e-4), (0.004, 1.5e-3), (0.0, 1e-3), (0.01, 1e-3), (0.019, 1e-3), (float("nan"), 1e-3)],
)
def test_learning_rate_follows_the_kl_divergence(kl: float, expected: float) -> None:
    assert rate(kl) == pytest.approx(expected, rel=1e-3)


def test_adapted_learning_rate_stays_within_bounds() -> None:
    assert rate(1.0, 1e-5) == pytest.approx(1e-5)
    assert rate(1e-3, 9e-3) == pytest.approx(1e-2)
    assert rate(1.0, is_first=True) == pytest.approx(1e-3)


def test_kl_divergence_of_two_gaussians() -> None:
    head = make().policy.head
    old, new = torch.tensor([0.0, 0.0]), torch.tensor([0.1, np.log(0.9)], dtype=torch.float32)
    assert float(head.kl(old, new)) == pytest.approx(0.018096, abs=1e-6)


@pytest.mark.parametrize("env", ["Pendulum-v1", "Zoo/MaskedComposite-v0"])
def test_steps_take_the_adapted_rate(env: str) -> None:
    """Step by step, against the divergence of the policies before and now."""
    model = make(env, desired_kl=0.01, learning_rate=5e-3)
    model._reset_envs()
    model.collect()
    rollout, state = model.finished_rollout(), model.runner.state
    expected, shared = 5e-3, {"rollout": rollout, **model.rates(0.0)}
    assert "learning_rate" not in shared
    for i in range(6):
        parameters, _, _ = model.policy(rollout, None)
        kl = float(model.policy.head.kl(rollout["parameters"], parameters.detach()).mean())
        if i and kl > 0.02:
            expected /= 1.5
        elif i and kl < 0.005:
            expected = min(expected * 1.5, 1e-2)
        row = {"rows": torch.arange(32), "is_first": torch.tensor(i == 0)}
        metrics = model._gradient_step(state, shared, row).metrics
        assert float(metrics["kl"]) == pytest.approx(kl, abs=1e-6)
        assert float(metrics["learning_rate"]) == pytest.approx(expected, rel=1e-5)
    assert expected != 5e-3


def test_adapted_rate_is_logged() -> None:
    model = make(desired_kl=1e-4, learning_rate=1e-2).learn(64)
    assert 1e-5 <= model.read_metrics()["train/learning_rate"] < 1e-2
    assert float(model.runner.state["learning_rate"]) < 1e-2
    assert make(learning_rate=1e-2).learn(64).read_metrics()["train/learning_rate"] == pytest.approx(1e-2)


@pytest.mark.parametrize("options", [{"policy": {"net_arch": [8]}}, {"policy": {"recurrent": "lstm"}}])
def test_noise_moves_means_in_updates_alone(options: dict[str, Any]) -> None:
    chunks = {"chunk_length": 4} if "recurrent" in options["policy"] else {}
    model = make(rpo_alpha=0.5, **options, **chunks)
    model._reset_envs()
    model.collect()
    rollout = model.finished_rollout()
    inputs = model._steps_inputs(np.arange(2 * model.buffer.n_rows).reshape(2, -1) % model.buffer.n_rows)
    noise = inputs["mean_noise"]
    assert noise.shape == (*inputs["rows"].shape, *chunks.values(), 1)
    assert -0.5 <= noise.min() < -0.4
    assert 0.4 < noise.max() <= 0.5
    parameters, _, _ = model.policy(rollout, rollout.get("states"))
    mean, log_std = parameters.chunk(2, -1)
    moved = torch.distributions.Normal(mean + torch.from_numpy(noise[0]), log_std.exp())
    ratio = (moved.log_prob(rollout["actions"]).sum(-1) - rollout["log_prob"]).exp()
    row = {name: torch.from_numpy(value)[0] for name, value in inputs.items()}
    metrics = model._gradient_step(model.runner.state, {"rollout": rollout, **model.rates(0.0)}, row).metrics
    assert float(metrics["approx_kl"]) == pytest.approx(
        float((ratio - 1 - ratio.log()).mean().detach()), rel=1e-3
    )
    assert float(metrics["approx_kl"]) > 1e-3


def test_noise_changes_the_weights() -> None:
    plain, noisy = make().learn(64), make(rpo_alpha=0.5).learn(64)
    assert not torch.equal(plain.runner.state["policy"], noisy.runner.state["policy"])


def test_errors_name_the_key() -> None:
    with pytest.raises(ZooError, match=r"algo\.desired_kl"):
        make(desired_kl=0.01, learning_rate="lin_1e-3")
    with pytest.raises(ZooError, match=r"algo\.desired_kl"):
        PPO1(env="CartPole-v1", desired_kl=0.01)
    with pytest.raises(ZooError, match=r"algo\.rpo_alpha"):
        make("CartPole-v1", rpo_alpha=0.5)
