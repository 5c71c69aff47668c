"""Drawing in proportion to numbers, against adding them up one by one."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.memory import sum_tree
from zoo.memory.sum_tree import SumTree

Array = np.ndarray

each_example = settings(deadline=None, derandomize=True, max_examples=100)


def tree_of(size: int, widest_top: int) -> SumTree:
    """Return a tree that has more levels the narrower its top is."""
    with mock.patch.object(sum_tree, "WIDEST_TOP", widest_top):
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
    widest_top=st.sampled_from([16, 40, 4096]),
    seed=st.integers(0, 999),
    changes=st.lists(st.integers(1, 300), min_size=1, max_size=6),
)
@each_example
def test_tree_agrees_with_adding_up_whole_numbers(
    size: int, widest_top: int, seed: int, changes: list[int]
) -> None:
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
        found, found_numbers = tree._at(targets / total)
        assert found.tolist() == [slow_place(numbers, target) for target in targets]
        assert found_numbers.tolist() == [numbers[place] for place in found]


@pytest.mark.parametrize("widest_top", [16, 4096])
def test_what_is_0_is_never_drawn_however_badly_sums_round(widest_top: int) -> None:
    rng = np.random.default_rng(0)
    tree = tree_of(2000, widest_top)
    numbers = 10.0 ** rng.uniform(-12, 12, 2000) * (rng.random(2000) < 0.3)
    tree.set(np.arange(2000), numbers)
    drawn, drawn_numbers = tree.draw(rng, 100_000)
    assert (numbers[drawn] > 0).all()
    np.testing.assert_allclose(drawn_numbers, numbers[drawn], rtol=1e-3)


def test_the_ends_of_the_range_fall_on_the_first_and_the_last_number() -> None:
    tree = tree_of(1000, 16)
    tree.set(np.array([300, 700]), np.array([0.1, 0.7]))
    places, _ = tree._at(np.array([0.0, np.nextafter(1.0, 0.0)]))
    assert places.tolist() == [300, 700]


def test_the_same_numbers_give_the_same_tree_whatever_was_there_before() -> None:
    rng = np.random.default_rng(0)
    changed, fresh = tree_of(3000, 16), tree_of(3000, 16)
    for _ in range(50):
        changed.set(rng.integers(0, 3000, 200), rng.random(200))
    fresh.set(np.arange(3000), changed.numbers[:3000].copy())
    for ours, theirs in zip(changed._sums + changed._ends, fresh._sums + fresh._ends, strict=True):
        assert ours.tobytes() == theirs.tobytes()
