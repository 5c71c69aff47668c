"""Means and sizes that on-policy updates depend on: written out with NumPy, and by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from logged_envs import Logged
from torch import Tensor

from zoo import A2C, PPO1, PPO2, make_vec_env
from zoo.algorithms.batch_means import batch_mean, counted
from zoo.algorithms.on_policy import standardized

N_STEPS, N_ENVS = 8, 2


@pytest.mark.parametrize("weights", [None, [[1.0, 0.0, 1.0, 1.0], [1.0, 1.0, 0.0, 1.0]]])
def test_two_workers_standardise_by_the_mean_and_deviation_of_all_their_steps(
    weights: list[list[float]] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both sums of what the other worker has are put in where the mean over workers is taken."""
    both = np.random.default_rng(0).normal(3.0, 2.0, (2, 4))
    counts = np.ones((2, 4)) if weights is None else np.array(weights)
    chosen = both[counts > 0]

    def averaged(sums: Tensor) -> Tensor:
        other, count = both[1], counts[1]
        others = [count.sum(), (count * other).sum(), (count * other**2).sum()]
        return (sums + torch.tensor(others)) / 2

    monkeypatch.setattr("zoo.algorithms.on_policy.workers.count", lambda: 2)
    monkeypatch.setattr("zoo.algorithms.on_policy.workers.averaged", averaged)
    batch = {} if weights is None else {"weights": torch.tensor(counts[0])}
    found = standardized(torch.tensor(both[0]), batch)
    expected = (both[0] - chosen.mean()) / chosen.std(ddof=1)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize(("n_steps", "n_envs"), [(2, 1), (1, 2)])
def test_two_steps_can_be_standardised(n_steps: int, n_envs: int) -> None:
    options: dict[str, Any] = {"compile": False, "normalize_advantage": True}
    assert A2C({"net_arch": [4]}, "CartPole-v1", n_steps=n_steps, n_envs=n_envs, **options)._batch_size() == 2


def test_a_piece_holds_fewer_sequences_than_steps() -> None:
    """CartPole shows 4 floats of 4 bytes, and 8 of these are a sequence: 64 MiB hold 2**19."""
    options: dict[str, Any] = {"n_envs": 2, "n_steps": 16, "compile": False}
    recurrent = {"recurrent": "lstm", "lstm_hidden_size": 4, "net_arch": [4]}
    assert A2C(recurrent, "CartPole-v1", chunk_length=8, **options)._rows_at_once == 2**19
    assert A2C({"net_arch": [4]}, "CartPole-v1", **options)._rows_at_once == 2**22


@pytest.mark.parametrize(
    ("truncated", "envs"), [([False, True, False], [3]), ([True, False, True], [1, 4]), ([False] * 3, None)]
)
def test_only_episodes_that_were_cut_short_are_remembered(truncated: list[bool], envs: Any) -> None:
    """Of three that end at once, in environments 1, 3 and 4; what each of them ends with is its number."""
    model = A2C({"net_arch": [4]}, "CartPole-v1", n_steps=4, n_envs=5, compile=False)
    finished, is_cut = np.array([1, 3, 4]), np.zeros(5, np.bool_)
    is_cut[finished] = truncated
    final = np.repeat(finished[:, None], 4, axis=1).astype(np.float32)
    outcome = SimpleNamespace(truncated=is_cut, finished=finished, final_observations=final)
    experience: Any = SimpleNamespace(outcome=outcome)
    model._keep_truncations(experience)
    found = model.memory.truncations()
    assert (None if found is None else found.envs.tolist()) == envs
    if found is not None:
        assert found.final_observations[:, 0].tolist() == envs


def test_a_minibatch_may_be_one_sequence() -> None:
    recurrent = {"recurrent": "lstm", "lstm_hidden_size": 4, "net_arch": [4]}
    options: dict[str, Any] = {"n_envs": 2, "n_steps": 16, "chunk_length": 8, "compile": False}
    assert PPO2(recurrent, "CartPole-v1", n_minibatches=4, **options)._minibatches() == (4, 1)
    assert PPO2(recurrent, "CartPole-v1", n_minibatches=2, **options)._minibatches() == (2, 2)


class Changed(PPO1):
    """Finds that all its probabilities have changed by e^``log_ratio`` since the rollout."""

    log_ratio = 0.0

    def finished_rollout(self) -> dict[str, Any]:
        rollout = super().finished_rollout()
        rollout["log_prob"] = rollout["log_prob"] - self.log_ratio
        return rollout


def metrics_of(log_ratio: float, clip_range: float) -> dict[str, float]:
    settings: dict[str, Any] = {"n_steps": N_STEPS, "batch_size": 8, "n_epochs": 1, "learning_rate": 0.0}
    env = make_vec_env(lambda: Logged(), N_ENVS, check=False)
    model = Changed({"net_arch": [4]}, env, seed=1, compile=False, clip_range=clip_range, **settings)
    model.log_ratio = log_ratio
    return model.learn(N_STEPS * N_ENVS).read_metrics()


@pytest.mark.parametrize("log_ratio", [-110.0, -1.0, 0.5])
def test_divergence_of_ppo1_is_the_mean_of_ratio_minus_1_minus_its_logarithm(log_ratio: float) -> None:
    expected = np.exp(log_ratio) - 1 - log_ratio
    assert metrics_of(log_ratio, 0.2)["train/approx_kl"] == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(("first", "share"), [(0.99, 1.0), (1.0, 0.0)])
def test_ratios_beyond_the_clip_range_of_ppo1_are_counted(first: float, share: float) -> None:
    """All ratios are 0, so the change is 1."""
    assert metrics_of(-110.0, first)["train/clip_fraction"] == share


def test_steps_that_merely_reset_are_no_part_of_a_mean() -> None:
    column, weights = torch.tensor([3.0, 100.0, 5.0, 10.0]), torch.tensor([1.0, 0.0, 1.0, 1.0])
    batch = {"weights": weights}
    assert counted(batch)["n_counted"] == 3
    assert batch_mean(column, batch) == batch_mean(column, counted(batch)) == 6
    assert batch_mean(column, {}) == batch_mean(column, counted({})) == 29.5


def test_mean_over_workers_is_that_of_all_their_steps_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other worker has one step that counts, so a mean over both divides each sum by 2."""
    monkeypatch.setattr("zoo.algorithms.batch_means.workers.averaged", lambda own: (own + 1) / 2)
    column, weights = torch.tensor([3.0, 100.0, 5.0, 10.0]), torch.tensor([1.0, 0.0, 1.0, 1.0])
    assert batch_mean(column, counted({"weights": weights})) == 18 / 2


@pytest.mark.parametrize("weights", [None, [1.0, 0.0, 1.0, 1.0, 0.0, 1.0]])
def test_one_worker_standardises_by_the_steps_that_count(weights: list[float] | None) -> None:
    advantages = np.random.default_rng(0).normal(3.0, 2.0, 6)
    chosen = advantages if weights is None else advantages[np.array(weights) > 0]
    batch = {} if weights is None else {"weights": torch.tensor(weights, dtype=torch.float64)}
    found = standardized(torch.tensor(advantages), batch)
    np.testing.assert_allclose(found.numpy(), (advantages - chosen.mean()) / chosen.std(ddof=1), rtol=1e-6)


def test_one_step_that_counts_alone_is_no_deviation_at_all() -> None:
    batch = {"weights": torch.tensor([0.0, 1.0])}
    found = standardized(torch.tensor([7.0, 5.0]), batch)
    assert found[1] == 0
    assert found.isfinite().all()
