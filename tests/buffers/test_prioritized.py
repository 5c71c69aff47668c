"""Prioritised replay: how often transitions come, how much they count, and which never come."""

from __future__ import annotations

import copy
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transitions import transition

from zoo.buffers import prioritized
from zoo.buffers.arrays import ArraySpec
from zoo.buffers.config import PrioritizedConfig
from zoo.buffers.prioritized import FAN_OUT, PrioritizedSampler, SumTree
from zoo.buffers.replay import ReplayBuffer
from zoo.core.tensors import join, split

Array = np.ndarray

SPECS = {"observations": ArraySpec((), np.float32), "actions": ArraySpec((), np.int64)}
PLAIN = PrioritizedConfig(alpha=1.0, beta=1.0, epsilon=1e-12)

each_example = settings(deadline=None, derandomize=True, max_examples=60)


def buffer_of(
    capacity: int, n_envs: int, config: PrioritizedConfig = PLAIN, *, once: bool = False, **options: Any
) -> ReplayBuffer:
    sampler = PrioritizedSampler(config)
    return ReplayBuffer(capacity, n_envs, SPECS, sampler=sampler, optimize_memory_usage=once, **options)


class Numbered:
    """Adds transitions whose actions number them, each by environment and step: 1000·env + step."""

    def __init__(self, buffer: ReplayBuffer, *, ends: float = 0.2, seed: int = 0) -> None:
        self.buffer = buffer
        self.steps = np.zeros(buffer.n_envs, int)
        self.ends = ends
        self.rng = np.random.default_rng(seed)

    def add(self, valid: Array | None = None) -> None:
        buffer = self.buffer
        numbers = 1000 * np.arange(buffer.n_envs) + self.steps
        ended = self.rng.random(buffer.n_envs) < self.ends
        ended = ended if valid is None else ended & valid
        columns = {"observations": numbers.astype(np.float32), "actions": numbers}
        following, rewards = (numbers + 1).astype(np.float32), np.ones(buffer.n_envs)
        buffer.add(transition(columns, following, rewards, np.zeros(buffer.n_envs, bool), ended, valid))
        self.steps += 1 if valid is None else valid

    def kept(self) -> set[int]:
        most = self.buffer._most_rows
        return {
            1000 * env + step
            for env, steps in enumerate(self.steps)
            for step in range(max(0, steps - most), steps)
        }


def give_priorities(buffer: ReplayBuffer, priority_of: Any) -> None:
    """Draw until every transition has been given its own priority, a function of its number."""
    rng = np.random.default_rng(123)
    for _ in range(200):
        batch = buffer.sample(rng, (4, 32))
        buffer.update_priorities(priority_of(batch["actions"]))
        assert isinstance(buffer.sampler, PrioritizedSampler)


def chi_square(counts: Array, probabilities: Array) -> float:
    expected = counts.sum() * probabilities
    return float(((counts - expected) ** 2 / expected).sum())


def test_four_priorities_in_closed_form() -> None:
    buffer = buffer_of(4, 1)
    world = Numbered(buffer, ends=0)
    for _ in range(4):
        world.add()
    give_priorities(buffer, lambda numbers: numbers + 1.0)
    batch = buffer.sample(np.random.default_rng(0), (100, 400))
    counts = np.bincount(batch["actions"].reshape(-1), minlength=4)
    assert chi_square(counts, np.array([0.1, 0.2, 0.3, 0.4])) < 16.3  # 0.001 of the distribution, 3 degrees
    weight_of = dict(zip(batch["actions"].reshape(-1).tolist(), batch["weights"].reshape(-1), strict=True))
    assert weight_of == pytest.approx({0: 1.0, 1: 0.5, 2: 1 / 3, 3: 0.25}, rel=1e-6)
    assert batch["weights"].dtype == np.float32
    assert batch["weights"].shape == (100, 400)


def test_importance_weights_match_the_formula() -> None:
    config = PrioritizedConfig(alpha=0.7, beta=0.4, beta_fraction=0.5, epsilon=0.01)
    buffer = buffer_of(30, 3, config)
    world = Numbered(buffer)
    for _ in range(25):
        world.add()
    errors = {number: 0.1 + abs(np.sin(number)) for number in world.kept()}
    give_priorities(buffer, np.vectorize(errors.get))
    raw = np.array([(error + 0.01) ** 0.7 for error in errors.values()])
    probabilities = dict(zip(errors, raw / raw.sum(), strict=True))
    for progress, beta in ((0.0, 0.4), (0.25, 0.7), (0.5, 1.0), (1.0, 1.0)):
        batch = buffer.sample(np.random.default_rng(1), (50,), progress)
        largest = max((30 * each) ** -beta for each in probabilities.values())
        expected = [(30 * probabilities[number]) ** -beta / largest for number in batch["actions"].tolist()]
        np.testing.assert_allclose(batch["weights"], expected, rtol=1e-5)


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("n_step", [1, 3])
def test_sampling_is_proportional_in_a_wrapped_ring(once: bool, n_step: int) -> None:
    buffer = buffer_of(60, 3, once=once, n_step=n_step)
    world = Numbered(buffer)
    for step in range(70):
        world.add(np.array([True, step % 3 != 0, True]))
    give_priorities(buffer, lambda numbers: 1.0 + numbers % 7)
    numbers = np.array(sorted(world.kept()))
    drawn = buffer.sample(np.random.default_rng(2), (200, 300))["actions"].reshape(-1)
    assert set(drawn.tolist()) <= set(numbers.tolist())
    counts = np.array([(drawn == number).sum() for number in numbers])
    priorities = 1.0 + numbers % 7
    bound = len(numbers) + 5 * (2 * len(numbers)) ** 0.5
    assert chi_square(counts, priorities / priorities.sum()) < bound


def test_new_transitions_get_the_largest_priority_ever() -> None:
    buffer = buffer_of(50, 1)
    world = Numbered(buffer)
    for _ in range(5):
        world.add()
    assert (buffer.sample(np.random.default_rng(0), (9,))["weights"] == 1).all(), "all are new"
    give_priorities(buffer, lambda numbers: np.full(numbers.shape, 8.0))
    give_priorities(buffer, lambda numbers: np.full(numbers.shape, 0.5))
    world.add()
    drawn = buffer.sample(np.random.default_rng(0), (20_000,))["actions"]
    assert (drawn == 5).mean() == pytest.approx(8 / (8 + 5 * 0.5), abs=0.02)


def test_nonfinite_errors_leave_priorities_unchanged() -> None:
    buffer = buffer_of(2, 1)
    Numbered(buffer).add()
    buffer.sample(np.random.default_rng(0), (2,))
    buffer.update_priorities(np.array([3.0, 3.0]))
    before = copy.deepcopy(buffer.sampler.state())
    for errors in ([np.nan, 1.0], [9.0, np.inf]):
        buffer.update_priorities(np.array(errors))
        np.testing.assert_equal(buffer.sampler.state(), before)
    assert buffer.sample(np.random.default_rng(0), (5,))["actions"].tolist() == [0] * 5


worlds = st.tuples(
    st.integers(1, 3), st.integers(2, 24), st.booleans(), st.integers(1, 3), st.integers(0, 999)
)


@given(
    world=worlds,
    what=st.lists(st.sampled_from(["add"] * 8 + ["some", "draw", "cut", "save"]), min_size=1, max_size=60),
)
@each_example
def test_what_is_stored_is_drawn_and_nothing_else(world: tuple[Any, ...], what: list[str]) -> None:
    """Also in rings of different fill, after reset steps, cut episodes, and a way through a checkpoint."""
    n_envs, rows, once, n_step, seed = world
    n_step = min(n_step, rows - once)
    config = PrioritizedConfig(alpha=0.5)
    buffer = buffer_of(rows * n_envs, n_envs, config, once=once, n_step=n_step)
    numbered = Numbered(buffer, seed=seed)
    rng = np.random.default_rng(seed)
    for each in what:
        if each == "add":
            numbered.add()
        elif each == "some":
            numbered.add(rng.random(n_envs) < 0.5)
        elif each == "cut":
            buffer.cut()
        elif each == "draw" and len(buffer):
            batch = buffer.sample(rng, (3, 5))
            assert set(batch["actions"].reshape(-1).tolist()) <= numbered.kept()
            assert (batch["weights"] <= 1).all()
            buffer.update_priorities(rng.random((3, 5)))
        elif each == "save":
            saved = join(*split(buffer.state()))
            fresh = buffer_of(rows * n_envs, n_envs, config, once=once, n_step=n_step)
            fresh.load_state(saved)
            numbered.buffer = buffer = fresh
    if len(buffer):
        drawn = set(buffer.sample(rng, (4000,))["actions"].tolist())
        assert drawn <= numbered.kept()
        assert len(drawn) > 0.5 * len(numbered.kept())
        assert (buffer.sampler.tree.numbers > 0).sum() == len(buffer)  # type: ignore[attr-defined]


def tree_of(size: int, widest_top: int) -> SumTree:
    """Return a tree that has more levels the narrower its top is."""
    with mock.patch.object(prioritized, "WIDEST_TOP", widest_top):
        return SumTree(size)


def slow_place(numbers: list[int], target: float) -> int:
    """Return the place in which the sum of the numbers passes the target."""
    total = 0
    for place, number in enumerate(numbers):
        total += number
        if target < total:
            return place
    raise AssertionError


@given(
    size=st.integers(1, 900),
    widest_top=st.sampled_from([FAN_OUT, 40, 4096]),
    seed=st.integers(0, 999),
    changes=st.lists(st.integers(1, 300), min_size=1, max_size=6),
)
@each_example
def test_tree_agrees_with_whole_numbers(size: int, widest_top: int, seed: int, changes: list[int]) -> None:
    rng = np.random.default_rng(seed)
    tree, numbers = tree_of(size, widest_top), [0] * size
    for n in changes:
        places, new = rng.integers(0, size, n), rng.integers(0, 4, n)
        tree.set(places, new.astype(float))
        for place, number in zip(places.tolist(), new.tolist(), strict=True):
            numbers[place] = number
        total = sum(numbers)
        if not total:
            assert tree.smallest == np.inf
            continue
        assert tree.smallest == min(number for number in numbers if number)
        targets = np.arange(total) + 0.5
        found, found_numbers = tree.draw(targets / total)
        assert found.tolist() == [slow_place(numbers, target) for target in targets]
        assert found_numbers.tolist() == [numbers[place] for place in found]


@pytest.mark.parametrize("widest_top", [FAN_OUT, 4096])
def test_zero_priority_is_never_drawn_despite_rounding(widest_top: int) -> None:
    rng = np.random.default_rng(0)
    tree = tree_of(2000, widest_top)
    numbers = 10.0 ** rng.uniform(-12, 12, 2000) * (rng.random(2000) < 0.3)
    tree.set(np.arange(2000), numbers)
    drawn, drawn_numbers = tree.draw(rng.random(100_000))
    assert (numbers[drawn] > 0).all()
    np.testing.assert_allclose(drawn_numbers, numbers[drawn], rtol=1e-3)
