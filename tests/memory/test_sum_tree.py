"""Drawing in proportion to numbers, against adding them up one by one."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.memory import sum_tree
from zoo.memory.sum_tree import FAN_OUT, SumTree

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
    widest_top=st.sampled_from([FAN_OUT, 40, 4096]),
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


@pytest.mark.parametrize("widest_top", [FAN_OUT, 4096])
def test_what_is_0_is_never_drawn_however_badly_sums_round(widest_top: int) -> None:
    rng = np.random.default_rng(0)
    tree = tree_of(2000, widest_top)
    numbers = 10.0 ** rng.uniform(-12, 12, 2000) * (rng.random(2000) < 0.3)
    tree.set(np.arange(2000), numbers)
    drawn, drawn_numbers = tree.draw(lambda: rng.random(100_000))
    assert (numbers[drawn] > 0).all()
    np.testing.assert_allclose(drawn_numbers, numbers[drawn], rtol=1e-3)


def test_where_rounding_leads_to_a_0_it_is_drawn_again() -> None:
    """Shares at the borders of groups, where what is left for the next level may round out of it."""
    n_astray = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        tree = tree_of(2000, FAN_OUT)
        tree.set(np.arange(2000), 10.0 ** rng.uniform(-3, 3, 2000) * (rng.random(2000) < 0.3))
        ends = tree.numbers.cumsum()
        borders = np.unique(ends[FAN_OUT - 1 :: FAN_OUT] / ends[-1])
        shares = np.clip(np.concatenate([borders, np.nextafter(borders, 0)]), 0, np.nextafter(1.0, 0))
        astray = shares[tree._at(shares)[1] == 0]
        n_astray += len(astray)
        waiting = [np.full(len(shares), 0.5), shares]
        places, numbers = tree.draw(waiting.pop)
        assert (tree.numbers[places] > 0).all()
        assert numbers.all()
    assert n_astray


def test_nothing_is_drawn_of_nothing() -> None:
    with pytest.raises(ValueError, match="nothing to draw"):
        tree_of(1000, FAN_OUT).draw(lambda: np.zeros(1))


def test_the_ends_of_the_range_fall_on_the_first_and_the_last_number() -> None:
    tree = tree_of(1000, FAN_OUT)
    tree.set(np.array([300, 700]), np.array([0.1, 0.7]))
    places, _ = tree._at(np.array([0.0, np.nextafter(1.0, 0.0)]))
    assert places.tolist() == [300, 700]


def test_the_same_numbers_give_the_same_tree_whatever_was_there_before() -> None:
    rng = np.random.default_rng(0)
    changed, fresh = tree_of(3000, FAN_OUT), tree_of(3000, FAN_OUT)
    for _ in range(50):
        changed.set(rng.integers(0, 3000, 200), rng.random(200))
    fresh.set(np.arange(3000), changed.numbers[:3000].copy())
    for ours, theirs in zip(changed._sums + changed._ends, fresh._sums + fresh._ends, strict=True):
        assert ours.tobytes() == theirs.tobytes()


@pytest.mark.parametrize("size", [3, FAN_OUT + 1, FAN_OUT**2 + 1])
def test_the_smallest_positive_number_may_be_smaller_than_1(size: int) -> None:
    tree = SumTree(size)
    assert tree.smallest == np.inf
    tree.set(np.array([0, 1, size - 1]), np.array([0.0, 2.0, 0.25]))
    assert tree.smallest == 0.25


@pytest.mark.parametrize("size", [24, 48])
def test_last_number_of_a_whole_group_can_be_drawn(size: int) -> None:
    tree = SumTree(size)
    tree.set(np.arange(size), np.ones(size))
    places, numbers = tree.draw(lambda: (np.arange(size) + 0.5) / size)
    assert places.tolist() == list(range(size))
    assert numbers.tolist() == [1.0] * size


def test_numbers_without_a_sum_are_refused() -> None:
    tree = SumTree(2500)
    tree.set(np.array([0, 2499]), np.array([1.7e308, 1.7e308]))
    with np.errstate(all="ignore"), pytest.raises(ValueError, match="sum is none"):
        tree.draw(lambda: np.array([0.2, 0.7]))
