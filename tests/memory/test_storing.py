"""Storing some steps at once: when that is done, and what is stored when something raises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from experiences import experience

from zoo.memory.columns import ColumnSpec
from zoo.memory.config import PrioritizedConfig
from zoo.memory.experience import Experience
from zoo.memory.prioritized import PrioritizedSampler
from zoo.memory.replay import ReplayMemory
from zoo.memory.storing import Storing

IMAGE = ColumnSpec((84, 84, 4), np.uint8)
SMALL = ColumnSpec((3,), np.float32)
EMPTY = {"a": ColumnSpec((2,), np.float32), "none": ColumnSpec((0,), np.float32)}


def memory_of(observations: Any, **options: Any) -> ReplayMemory:
    return ReplayMemory(
        200, 2, {"observations": observations, "actions": ColumnSpec((), np.int64)}, **options
    )


def step(number: int, observations: Any = None) -> Experience:
    shown = np.full((2, 3), number, np.float32) if observations is None else observations
    no = np.zeros(2, np.bool_)
    columns = {"observations": shown, "actions": np.full(2, number)}
    return experience(columns, shown, np.zeros(2, np.float32), no, no)


def store(memory: ReplayMemory, numbers: range, ends_with: type[BaseException] | None = None) -> None:
    with Storing(memory, waits=True) as storing:
        for number in numbers:
            storing.add(step(number))
        if ends_with is not None:
            raise ends_with


def test_small_steps_of_a_plain_memory_are_stored_at_once() -> None:
    memory, sizes = memory_of(SMALL), []
    with Storing(memory, waits=True) as storing:
        for number in range(70):
            storing.add(step(number))
            sizes.append(int(memory.sizes[0]))
    assert sorted(set(sizes)) == [0, 32, 64]
    assert memory.columns["actions"][:70, 1].tolist() == list(range(70))
    assert len(memory) == 140


@pytest.mark.parametrize(
    ("memory", "waits"),
    [
        (memory_of(IMAGE), True),
        (memory_of(SMALL, optimize_memory_usage=True), True),
        (memory_of(SMALL, sampler=PrioritizedSampler(PrioritizedConfig(), 100, 2)), True),
        (memory_of(SMALL), False),
    ],
)
def test_others_are_stored_one_after_the_other(memory: ReplayMemory, waits: bool) -> None:
    shown = np.zeros((2, *IMAGE.shape), np.uint8) if memory.columns["observations"].ndim > 3 else None
    with Storing(memory, waits=waits) as storing:
        for number in range(3):
            storing.add(step(number, shown))
            assert memory.sizes.tolist() == [number + 1] * 2


def test_what_was_collected_is_stored_when_something_raises() -> None:
    memory = memory_of(SMALL)
    with pytest.raises(KeyboardInterrupt):
        store(memory, range(40), ends_with=KeyboardInterrupt)
    assert memory.columns["actions"][:41, 0].tolist() == [*range(40), 0]
    assert memory.sizes.tolist() == [40, 40]


def test_what_comes_after_an_interrupted_store_does_not_follow_what_was_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory = memory_of(SMALL)

    def interrupted(_: int) -> None:
        raise KeyboardInterrupt

    store(memory, range(32))
    monkeypatch.setattr(memory, "_move_on", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store(memory, range(32, 64))
    monkeypatch.undo()
    memory.extend([step(64), step(65)])
    assert memory.sizes.tolist() == [34, 34]
    assert memory.columns["ended"][:34, 0].tolist() == [False] * 31 + [True, False, False]


def test_observations_may_have_parts_of_no_numbers() -> None:
    memory = memory_of(EMPTY)
    shown = {"a": np.ones((2, 2), np.float32), "none": np.ones((2, 0), np.float32)}
    memory.extend([step(number, shown) for number in range(3)])
    assert memory.columns["observations"]["a"][:3].all()
    assert memory.sizes.tolist() == [3, 3]
