"""n-step returns against Stable-Baselines3's buffer, on the same transitions and the same draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from experiences import experience
from gymnasium import spaces

from zoo.memory.columns import ColumnSpec
from zoo.memory.replay import ReplayMemory
from zoo.memory.sampling import Drawn, UniformSampler

buffers = pytest.importorskip("stable_baselines3.common.buffers")

Array = np.ndarray


class At(UniformSampler):
    """Draws the places that it is told."""

    def __init__(self, positions: Array, envs: Array) -> None:
        self.drawn = Drawn(positions, envs)

    def draw(self, *_: Any) -> Drawn:
        return self.drawn


@pytest.mark.parametrize("n_step", [1, 2, 5])
@pytest.mark.parametrize("n_added", [20, 50, 64])
def test_batches_are_those_of_stable_baselines3(
    n_step: int, n_added: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and after the ring has wrapped, over terminal and truncated ends, with 3 environments."""
    rng = np.random.default_rng(n_added)
    n_envs, length = 3, 32
    theirs = buffers.NStepReplayBuffer(
        length * n_envs,
        spaces.Box(-np.inf, np.inf, (2,)),
        spaces.Discrete(9),
        "cpu",
        n_envs=n_envs,
        n_steps=n_step,
        gamma=0.9,
    )
    specs = {"observations": ColumnSpec((2,), np.float32), "actions": ColumnSpec((), np.int64)}
    ours = ReplayMemory(length * n_envs, n_envs, specs, n_step=n_step, gamma=0.9)
    for _ in range(n_added):
        shown, following = rng.normal(size=(2, n_envs, 2)).astype(np.float32)
        actions, rewards = rng.integers(0, 9, n_envs), rng.normal(size=n_envs)
        terminated = rng.random(n_envs) < 0.1
        truncated = (rng.random(n_envs) < 0.1) & ~terminated
        infos = [{"TimeLimit.truncated": bool(each)} for each in truncated]
        theirs.add(shown, following, actions, rewards, terminated | truncated, infos)
        columns = {"observations": shown, "actions": actions}
        ours.add(experience(columns, following, rewards, terminated, terminated | truncated))
    positions = rng.integers(0, min(n_added, length), 300)
    envs = rng.integers(0, n_envs, 300)
    monkeypatch.setattr(np.random, "randint", lambda *_, **__: envs)
    expected = theirs._get_samples(positions)
    ours.sampler = At(positions, envs)
    batch = ours.sample(rng, (300,))
    for name in ("observations", "next_observations"):
        np.testing.assert_array_equal(batch[name], getattr(expected, name).numpy())
    assert (batch["actions"] == expected.actions.numpy()[:, 0]).all()
    assert (batch["terminated"] == expected.dones.numpy()[:, 0]).all()
    np.testing.assert_allclose(batch["rewards"], expected.rewards.numpy()[:, 0], rtol=1e-6, atol=1e-6)
    discounts = batch.get("discounts", np.full(300, 0.9, np.float32))
    np.testing.assert_allclose(discounts, expected.discounts.numpy()[:, 0], rtol=1e-6)
