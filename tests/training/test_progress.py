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
from zoo.optim.update_runner import Program
from zoo.training.loggers import Logger, LoggingCallback, ProgressBarCallback, Report
from zoo.training.run_folder import RunFolder


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


def test_time_of_compiling_is_no_part_of_speed_and_time_left(
    slow_to_compile: Callable[..., PPO2], run: RunFolder
) -> None:
    algorithm, stream, reports = slow_to_compile(), io.StringIO(), Reports()
    run.write_config({})
    with run.tracked(algorithm):
        algorithm.learn(
            640, [ProgressBarCallback(line_seconds=0, stream=stream), LoggingCallback(64, [reports])]
        )
    assert reports.written[-1].scalars["time/time_elapsed"] > 1e6
    assert all(report.scalars["time/fps"] > 1 for report in reports.written)
    assert run.read_record()["steps_per_second"] > 1
    lines = stream.getvalue().splitlines()
    assert len(lines) > 5
    for line in lines:
        assert float(line.split(", ")[1].removesuffix(" steps/s").replace(",", "")) > 1
        assert line.count(":") <= 1  # no hours left


class Reports(Logger):
    """Keeps what is logged."""

    def __init__(self) -> None:
        self.written: list[Report] = []

    def write(self, report: Report) -> None:
        self.written.append(report)


@pytest.fixture
def slow_to_compile(ppo2: Callable[..., PPO2], monkeypatch: pytest.MonkeyPatch) -> Callable[..., PPO2]:
    """Make PPO2 that says it compiles and takes two weeks for it, by the clock."""
    two_weeks, now = 1_209_600.0, time.perf_counter
    past = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now() + past[0])

    def compile_step(program: Program, step: Any, *example: Any) -> Any:
        past[0] += two_weeks
        return partial(program._take_one, step)

    def make() -> PPO2:
        algorithm = ppo2()
        algorithm.runtime.compile = True
        monkeypatch.setattr(Program, "_compile_step", compile_step)
        return algorithm

    return make
