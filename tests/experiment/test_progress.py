"""How far a run is, on a terminal and elsewhere."""

from __future__ import annotations

import io
import os
import pty
import select
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from zoo.algorithms.ppo import PPO2
from zoo.experiment.loggers import ProgressBarCallback
from zoo.optim.update_runner import UpdateRunner


def test_without_a_terminal_lines_say_steps_speed_time_and_return(
    ppo2: Callable[..., PPO2],
) -> None:
    stream = io.StringIO()
    ppo2().learn(1280, ProgressBarCallback(line_seconds=0, stream=stream))
    lines = stream.getvalue().splitlines()
    assert lines[0].startswith("64/1,280 steps (5%), ")
    assert "steps/s" in lines[0]
    assert "left" in lines[0]
    assert "mean return" in lines[5]
    assert lines[-1].startswith("1,280/1,280 steps (100%), ")
    assert "left" not in lines[-1]
    assert [line.partition(" ")[0] for line in lines] == [f"{64 * n:,}/1,280" for n in range(1, 21)]


def test_terminal_shows_a_bar(ppo2: Callable[..., PPO2]) -> None:
    reading, writing = pty.openpty()
    with open(writing, "w") as terminal:
        ppo2().learn(640, ProgressBarCallback(seconds=0, stream=terminal))
        terminal.flush()
        shown = ""
        while "640/640" not in shown:  # a pseudo-terminal gives what is there, not all
            assert select.select([reading], [], [], 10)[0], shown
            shown += os.read(reading, 1_000_000).decode(errors="replace")
    os.close(reading)
    assert "640/640" in shown
    assert "ppo2" in shown
    assert "steps/s" in shown


@pytest.fixture
def slow_to_compile(ppo2: Callable[..., PPO2], monkeypatch: pytest.MonkeyPatch) -> Callable[..., PPO2]:
    """Make PPO2 that says it compiles and takes two weeks for it, by the clock."""
    two_weeks, now = 1_209_600.0, time.perf_counter
    past = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now() + past[0])

    def compile_step(runner: UpdateRunner, step: Any, *example: Any) -> Any:
        past[0] += two_weeks
        return partial(runner._take_one, step)

    def make() -> PPO2:
        algorithm = ppo2()
        algorithm.runtime.compile = True
        monkeypatch.setattr(UpdateRunner, "_compile_step", compile_step)
        return algorithm

    return make
