"""n-step returns, against walking through lists of transitions one by one, and against Stable-Baselines3."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from transitions import transition

from zoo.buffers.arrays import ArraySpec
from zoo.buffers.config import PrioritizedConfig
from zoo.buffers.prioritized import PrioritizedSampler
from zoo.buffers.replay import Batch, NStepWindows, ReplayBuffer, UniformSampler
from zoo.errors import ZooError

Array = np.ndarray

SPECS = {
    "observations": ArraySpec((), np.float32),
    "actions": ArraySpec((), np.int64),
    "action_masks": ArraySpec((2,), np.bool_),
}
GAMMA = 0.5

each_example = settings(deadline=None, derandomize=True, max_examples=80)


def buffer_of(capacity: int, n_envs: int, n_step: int, *, once: bool = False, **options: Any) -> ReplayBuffer:
    return ReplayBuffer(
        *(capacity, n_envs, SPECS), n_step=n_step, gamma=GAMMA, optimize_memory_usage=once, **options
    )


def masked(numbers: Any) -> Array:
    return np.stack([numbers % 2 == 0, numbers % 3 == 0], axis=-1)


def add(buffer: ReplayBuffer, shown: Any, rewards: Any, *ends: Array, valid: Array | None = None) -> None:
    """Add a step of all environments from observations that are its numbers to the numbers that follow."""
    shown, rewards = np.array(shown), np.array(rewards)
    terminated, ended = ends or [np.zeros(len(shown), bool)] * 2
    columns = {"observations": shown.astype(np.float32), "actions": shown, "action_masks": masked(shown)}
    following = (shown + 1).astype(np.float32)
    buffer.add(transition(columns, following, rewards, terminated, ended, valid, masks=masked(shown + 1)))


@dataclass
class Lists:
    """What each environment lived through: (number, reward, terminated, ended), a list for each."""

    past: list[list[tuple[int, float, bool, bool]]]

    def expected(self, env: int, start: int, oldest: int, n_step: int) -> tuple[float, ...]:
        """Return the discounted sum, γ^k, terminated, and what was observed at the end, step by step."""
        assert start >= oldest
        past, total, discount = self.past[env], 0.0, 1.0
        for last in past[start : start + n_step]:
            total += discount * last[1]
            discount *= GAMMA
            if last[3]:
                break
        return total, discount, float(last[2]), last[0] + 1


@given(
    n_envs=st.integers(1, 3),
    rows=st.integers(2, 12),
    n_step=st.integers(1, 6),
    once=st.booleans(),
    prioritized=st.booleans(),
    seed=st.integers(0, 999),
    what=st.lists(st.sampled_from(["add"] * 9 + ["some", "cut"]), min_size=1, max_size=40),
)
@each_example
def test_buffer_agrees_with_lists_of_transitions(
    n_envs: int, rows: int, n_step: int, once: bool, prioritized: bool, seed: int, what: list[str]
) -> None:
    """In rings that have wrapped, of different fill, with reset steps between, and with episodes cut."""
    n_step = min(n_step, rows - once)
    sampler = PrioritizedSampler(PrioritizedConfig()) if prioritized else UniformSampler()
    buffer = buffer_of(rows * n_envs, n_envs, n_step, once=once, sampler=sampler)
    lists = Lists([[] for _ in range(n_envs)])
    rng = np.random.default_rng(seed)
    numbers = 1000 * np.arange(n_envs)
    for each in what:
        if each == "cut":
            buffer.cut()
            for env, past in enumerate(lists.past):
                if past:
                    past[-1] = (*past[-1][:3], True)
                numbers[env] += 1
            continue
        valid = np.ones(n_envs, bool) if each == "add" else rng.random(n_envs) < 0.5
        rewards, ends = rng.normal(size=n_envs).astype(np.float32), rng.random(n_envs)
        terminated, ended = (ends < 0.15) & valid, ((ends < 0.15) | (ends > 0.85)) & valid
        add(buffer, numbers, rewards, terminated, ended, valid=valid)
        for env in np.flatnonzero(valid):
            step = (int(numbers[env]), float(rewards[env]), bool(terminated[env]))
            lists.past[env].append((*step, bool(ended[env])))
        numbers += np.where(ended, 7, 1) * valid
    if not len(buffer):
        return
    batch = buffer.sample(rng, (2, 60))
    assert ("discounts" in batch) == (n_step > 1)
    discounts = batch.get("discounts", np.full((2, 60), GAMMA))
    places = {step[0]: (env, i) for env, past in enumerate(lists.past) for i, step in enumerate(past)}
    for index in np.ndindex(2, 60):
        env, start = places[int(batch["actions"][index])]
        oldest = len(lists.past[env]) - (rows - once)
        total, discount, terminated_, end = lists.expected(env, start, oldest, n_step)
        assert batch["observations"][index] == batch["actions"][index]
        assert batch["rewards"][index] == pytest.approx(total, abs=1e-5)
        assert discounts[index] == discount
        assert batch["terminated"][index] == terminated_
        assert batch["next_observations"][index] == end
        assert batch["next_action_masks"][index].tolist() == masked(end).tolist()


def test_rewards_are_normalized_before_n_step_sums() -> None:
    """So a bound on normalised rewards holds for those of single steps."""

    def bounded(batch: Batch) -> Batch:
        return {**batch, "rewards": np.clip(batch["rewards"], -1, 1)}

    buffer = buffer_of(10, 1, 3, transforms=(bounded,))
    for number, reward in enumerate([10.0, -10.0, 0.5]):
        add(buffer, [number], [reward])
    batch = buffer.sample(np.random.default_rng(0), (50,))
    assert set(batch["rewards"][batch["actions"] == 0].tolist()) == {1.0 - 0.5 + 0.125}


class NewGoals:
    """Replaces the rewards of all steps of a window by the numbers of their observations."""

    def relabel(
        self, buffer: ReplayBuffer, rng: Any, windows: NStepWindows, batch: Batch
    ) -> tuple[NStepWindows, Batch, Array]:
        shown = buffer.columns["observations"][windows.steps, windows.envs[..., None]]
        return windows, {**batch, "rewards": shown}, np.arange(windows.first.size)


def test_goals_are_replaced_before_n_step_sums() -> None:
    buffer = buffer_of(30, 2, 3, relabelling=NewGoals())
    for number in range(10):
        add(buffer, [number, 100 + number], [0.0, 0.0])
    batch = buffer.sample(np.random.default_rng(0), (4, 50))
    first = batch["observations"]
    inside = first % 100 < 8
    expected = first + GAMMA * (first + 1) + GAMMA**2 * (first + 2)
    assert (batch["rewards"][inside] == expected[inside]).all()


@pytest.mark.parametrize(("capacity", "once"), [(7, False), (8, True)])
def test_more_steps_than_a_ring_holds_are_refused(capacity: int, once: bool) -> None:
    buffer_of(8, 2, 4)
    with pytest.raises(ZooError, match=r"`replay.n_step=4` is longer .* `algo.buffer_size=\d` keeps 3"):
        buffer_of(capacity, 2, 4, once=once)


buffers = pytest.importorskip("stable_baselines3.common.buffers")


class At(UniformSampler):
    """Draws the places that it is told."""

    def __init__(self, positions: Array, envs: Array) -> None:
        self.drawn = positions, envs, None

    def sample(self, *_: Any) -> tuple[Array, Array, None]:
        return self.drawn


@pytest.mark.parametrize("n_step", [1, 2, 5])
@pytest.mark.parametrize("n_added", [20, 50, 64])
def test_batches_are_the_peers(n_step: int, n_added: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before and after the ring has wrapped, over terminal and truncated ends, with 3 environments."""
    rng = np.random.default_rng(n_added)
    n_envs, length = 3, 32
    sides = spaces.Box(-np.inf, np.inf, (2,)), spaces.Discrete(9)
    settings = {"n_envs": n_envs, "n_steps": n_step, "gamma": 0.9}
    theirs = buffers.NStepReplayBuffer(length * n_envs, *sides, "cpu", **settings)
    specs = {"observations": ArraySpec((2,), np.float32), "actions": ArraySpec((), np.int64)}
    ours = ReplayBuffer(length * n_envs, n_envs, specs, n_step=n_step, gamma=0.9)
    for _ in range(n_added):
        shown, following = rng.normal(size=(2, n_envs, 2)).astype(np.float32)
        actions, rewards = rng.integers(0, 9, n_envs), rng.normal(size=n_envs)
        terminated = rng.random(n_envs) < 0.1
        truncated = (rng.random(n_envs) < 0.1) & ~terminated
        infos = [{"TimeLimit.truncated": bool(each)} for each in truncated]
        theirs.add(shown, following, actions, rewards, terminated | truncated, infos)
        columns = {"observations": shown, "actions": actions}
        ours.add(transition(columns, following, rewards, terminated, terminated | truncated))
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
