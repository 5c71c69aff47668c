"""When callbacks are due, and what is looked at before they write: schedules of two of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from zoo.algorithms.callback import Callback, CallbackSchedule


class Writing(Callback):
    def __init__(self, every: int) -> None:
        self.every, self.calls = every, 0

    def on_steps(self, algorithm: Any) -> None:
        self.calls += 1


class Looking(Writing):
    looks_often = True


def test_only_what_is_due_and_does_more_than_look_writes() -> None:
    schedule = CallbackSchedule([Writing(20), Looking(10)], 0)
    assert [steps for steps in (0, 9, 10, 19, 20, 21) if schedule.writes_at(steps)] == [20, 21]
    alone = CallbackSchedule([Writing(10)], 0)
    assert [steps for steps in (0, 9, 10, 11) if alone.writes_at(steps)] == [10, 11]


@pytest.mark.parametrize(("num_timesteps", "n_looked"), [(9, 0), (10, 0), (20, 1)])
def test_numbers_are_looked_at_if_one_of_those_that_are_due_writes(num_timesteps: int, n_looked: int) -> None:
    looked: list[int] = []
    algorithm: Any = SimpleNamespace(
        num_timesteps=num_timesteps, stop_reason=None, check_finite=lambda: looked.append(num_timesteps)
    )
    writing, looking = Writing(20), Looking(10)
    CallbackSchedule([writing, looking], 0).call_due(algorithm)
    assert len(looked) == n_looked
    assert writing.calls == num_timesteps // 20
    assert looking.calls == min(1, num_timesteps // 10)
