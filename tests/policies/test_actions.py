"""Codecs: what the environment takes lies in its space, and comes back as it was stored."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.errors import ZooError
from zoo.policies.acting import make_action_adapter

bounds = st.floats(-1000, 1000, width=32, allow_subnormal=False)

BOUNDED: list[spaces.Space[Any]] = [
    spaces.Discrete(3),
    spaces.Discrete(3, start=-2),
    spaces.Discrete(3, start=1, dtype=np.int32),
    spaces.MultiDiscrete([2, 3]),
    spaces.MultiDiscrete([2, 3], start=[5, -1]),
    spaces.MultiDiscrete(np.array([[2, 3], [4, 5]])),
    spaces.MultiDiscrete(np.array([[2, 3]]), start=np.array([[1, 2]]), dtype=np.int32),
    spaces.MultiBinary(3),
    spaces.MultiBinary((2, 2)),
    spaces.Box(-1.0, 1.0, (2,), np.float32),
    spaces.Box(-0.1, 0.3, (2, 3), np.float64),
    spaces.Box(np.float32([-2.0, 0.0]), np.float32([0.5, 10.0])),
    spaces.Box(0.0, 1.0, (), np.float32),
]
UNBOUNDED: list[spaces.Space[Any]] = [
    spaces.Box(np.float32([-1.0, -np.inf, -np.inf]), np.float32([np.inf, 3.0, np.inf]))
]


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("space", BOUNDED + UNBOUNDED, ids=str)
def test_actions_go_to_the_environment_and_back(space: spaces.Space[Any], scaled: bool) -> None:
    if scaled and space in UNBOUNDED:
        return
    action_adapter = make_action_adapter(space, scaled=scaled)
    batch = batch_space(space, 50)
    batch.seed(0)
    stored = action_adapter.from_env(batch.sample())
    assert stored.shape == (50, *action_adapter.spec.shape)
    assert stored.dtype == action_adapter.spec.dtype
    before = stored.copy()
    taken = action_adapter.to_env(stored)
    assert batch.contains(taken), taken[0]
    assert all(space.contains(row) for row in taken)
    again = action_adapter.from_env(taken)
    np.testing.assert_allclose(again, stored, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(stored, before)


def test_discrete_actions_count_from_the_spaces_start() -> None:
    action_adapter = make_action_adapter(spaces.Discrete(3, start=5), scaled=False)
    assert action_adapter.to_env(np.array([0, 1, 2])).tolist() == [5, 6, 7]
    action_adapter = make_action_adapter(spaces.MultiDiscrete([2, 3], start=[5, -1]), scaled=False)
    assert action_adapter.to_env(np.array([[0, 0], [1, 2]])).tolist() == [[5, -1], [6, 1]]
    assert action_adapter.from_env(np.array([[5, -1], [6, 1]])).tolist() == [[0, 0], [1, 2]]


def test_only_the_environments_action_is_clipped() -> None:
    action_adapter, actions = (
        make_action_adapter(BOUNDED[9], scaled=False),
        np.array([[5.0, 0.0]], np.float32),
    )
    assert action_adapter.to_env(actions).tolist() == [[1.0, 0.0]]
    assert actions.tolist() == [[5.0, 0.0]]


@given(low=bounds, high=bounds, action=st.floats(-1, 1, width=32, allow_subnormal=False))
@settings(derandomize=True, max_examples=300)
def test_no_scaled_action_leaves_the_bounds(low: float, high: float, action: float) -> None:
    low, high = min(low, high), max(low, high)
    space = spaces.Box(low, high, (1,), np.float32)
    action_adapter = make_action_adapter(space, scaled=True)
    for value in (-1.0, action, 1.0):
        row = action_adapter.to_env(np.array([[value]], np.float32))[0]
        assert space.contains(row), (row, low, high)
        assert np.abs(action_adapter.from_env(row[None])) <= 1.0


WHOLE_NUMBERS = [
    spaces.Box(0, 1, (1,), np.int8),
    spaces.Box(-2, 2, (1,), np.int16),
    spaces.Box(0, 3, (), np.int64),
    spaces.Box(3, 7, (1, 1), np.uint8),
    spaces.Box(0, 4, (1,), np.uint64),
    spaces.Box(-128, 127, (1,), np.int8),
    spaces.Box(0, 1, (1,), np.bool_),
]


@pytest.mark.parametrize("space", WHOLE_NUMBERS, ids=str)
def test_scaled_actions_split_evenly_into_integers(space: spaces.Box) -> None:
    action_adapter = make_action_adapter(space, scaled=True)
    numbers = np.arange(int(space.low.item()), int(space.high.item()) + 1)
    uniform = np.random.default_rng(0).uniform(-1, 1, (1_000 * len(numbers), 1)).astype(np.float32)
    taken = action_adapter.to_env(uniform)
    assert taken.dtype == space.dtype
    assert all(space.contains(row) for row in taken[:20])
    found, counts = np.unique(taken.astype(np.int64), return_counts=True)
    assert found.tolist() == numbers.tolist()
    assert counts.min() > 850
    assert counts.max() < 1_150
    each = numbers.astype(space.dtype).reshape(-1, *space.shape)
    np.testing.assert_array_equal(action_adapter.to_env(action_adapter.from_env(each)), each)


@pytest.mark.parametrize(
    ("action", "taken"), [(-9.0, 0), (-0.4, 0), (0.4, 0), (0.6, 1), (1.4, 1), (2.6, 3), (9.0, 3)]
)
def test_the_environment_gets_the_nearest_whole_number(action: float, taken: int) -> None:
    action_adapter = make_action_adapter(spaces.Box(0, 3, (1,), np.int64), scaled=False)
    assert action_adapter.to_env(np.array([[action]], np.float32)).tolist() == [[taken]]


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-60_000.0, 60_000.0, (1,), np.float16),
        spaces.Box(-3e38, 3e38, (1,), np.float32),
        spaces.Box(-100, 100, (1,), np.int8),
    ],
    ids=str,
)
def test_no_width_is_too_much_for_the_spaces_type(space: spaces.Box) -> None:
    action_adapter = make_action_adapter(space, scaled=True)
    taken = action_adapter.to_env(np.array([[-1.0], [0.0], [1.0]], np.float32))
    assert all(space.contains(row) for row in taken)
    middle = (float(space.low.item()) + float(space.high.item())) / 2
    expected = [float(space.low.item()), middle, float(space.high.item())]
    np.testing.assert_allclose(taken[:, 0].astype(np.float64), expected, rtol=1e-3, atol=1)


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_scaled_actions_need_bounds(dtype: Any) -> None:
    with pytest.raises(ZooError, match="finite bounds"):
        make_action_adapter(spaces.Box(-np.inf, np.inf, (1,), dtype), scaled=True)


def test_a_space_without_an_adapter_is_refused() -> None:
    with pytest.raises(ZooError, match="not supported"):
        make_action_adapter(spaces.Text(3), scaled=False)


def test_zero_width_dimension_is_stored_as_zero() -> None:
    space = spaces.Box(np.array([-1.0, 2.0], np.float32), np.array([1.0, 2.0], np.float32))
    action_adapter = make_action_adapter(space, scaled=True)
    with np.errstate(all="raise"):
        stored = action_adapter.from_env(np.array([[0.5, 2.0]], np.float32))
    assert stored.tolist() == [[0.5, 0.0]]
