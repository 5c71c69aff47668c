"""Storing some steps at once: when that is done, and what is stored when something raises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from experiences import experience

from zoo.envs.goals import ACHIEVED, DESIRED
from zoo.envs.monitor import EpisodeRecord
from zoo.memory import replay
from zoo.memory.columns import ColumnSpec
from zoo.memory.config import PrioritizedConfig
from zoo.memory.experience import Experience
from zoo.memory.hindsight import Hindsight
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
    with Storing(memory, memory.steps_at_once) as storing:
        for number in numbers:
            storing.add(step(number))
        if ends_with is not None:
            raise ends_with


def test_small_steps_of_a_plain_memory_are_stored_at_once() -> None:
    memory, sizes = memory_of(SMALL), []
    with Storing(memory, memory.steps_at_once) as storing:
        for number in range(70):
            storing.add(step(number))
            sizes.append(int(memory.sizes[0]))
    assert sorted(set(sizes)) == [0, 32, 64]
    assert memory.columns["actions"][:70, 1].tolist() == list(range(70))
    assert len(memory) == 140


@pytest.mark.parametrize("kind", ["images", "observations once", "prioritized", "hindsight"])
def test_others_are_stored_one_after_the_other(kind: str) -> None:
    goals = dict.fromkeys(("observation", ACHIEVED, DESIRED), SMALL)
    memory = {
        "images": lambda: memory_of(IMAGE),
        "observations once": lambda: memory_of(SMALL, optimize_memory_usage=True),
        "prioritized": lambda: memory_of(SMALL, sampler=PrioritizedSampler(PrioritizedConfig(), 100, 2)),
        "hindsight": lambda: memory_of(goals, relabelling=Hindsight(None)),  # type: ignore[arg-type]
    }[kind]()
    assert memory.steps_at_once == 1
    small = np.zeros((2, 3), np.float32)
    shown = {"images": np.zeros((2, *IMAGE.shape), np.uint8), "hindsight": dict.fromkeys(goals, small)}
    with Storing(memory, memory.steps_at_once) as storing:
        for number in range(3):
            storing.add(step(number, shown.get(kind, small)))
            assert memory.sizes.tolist() == [number + 1] * 2


def test_what_was_collected_is_stored_when_something_raises() -> None:
    memory = memory_of(SMALL)
    with pytest.raises(KeyboardInterrupt):
        store(memory, range(40), ends_with=KeyboardInterrupt)
    assert memory.columns["actions"][:41, 0].tolist() == [*range(40), 0]
    assert memory.sizes.tolist() == [40, 40]


def test_nothing_waits_when_an_episode_ends() -> None:
    memory = memory_of(SMALL)
    with Storing(memory, memory.steps_at_once) as storing:
        for number in range(3):
            storing.add(step(number))
        assert not len(memory)
        last = step(3)
        last.outcome.episodes.append(EpisodeRecord(0, 1.0, 4, 0.1))
        storing.add(last)
        assert memory.sizes.tolist() == [4, 4]


@pytest.mark.parametrize("column", ["observations", "actions", "next_observations", "rewards", "ended"])
def test_an_interrupted_store_leaves_no_half_written_rows(
    column: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ring is full: where some columns are new and others not, a row is none that ever was."""
    memory = memory_of(SMALL)
    store(memory, range(120))
    original, has_interrupted = replay.assign, False

    def interrupted(target: Any, *rest: Any) -> None:
        nonlocal has_interrupted
        if target is memory.columns[column] and not has_interrupted:
            has_interrupted = True
            raise KeyboardInterrupt
        original(target, *rest)

    monkeypatch.setattr(replay, "assign", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store(memory, range(120, 150))
    assert has_interrupted
    numbers = [*range(100, 150), *range(50, 100)]
    assert memory.columns["actions"][:, 0].tolist() == numbers
    for name in ("observations", "next_observations"):
        assert memory.columns[name][:, 1, 0].tolist() == numbers
    assert (memory.heads.tolist(), memory.sizes.tolist()) == ([50, 50], [100, 100])


def test_observations_may_have_parts_of_no_numbers() -> None:
    memory = memory_of(EMPTY)
    shown = {"a": np.ones((2, 2), np.float32), "none": np.ones((2, 0), np.float32)}
    memory.extend([step(number, shown) for number in range(3)])
    assert memory.columns["observations"]["a"][:3].all()
    assert memory.sizes.tolist() == [3, 3]
