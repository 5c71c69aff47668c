"""How far a run is, on a terminal and elsewhere."""

from __future__ import annotations

import io
import os
import pty
from collections.abc import Callable
from typing import Any

import pytest

from zoo.algorithms.base import Algorithm
from zoo.algorithms.callback import Callback
from zoo.algorithms.ppo2 import PPO2
from zoo.training.progress import ProgressBarCallback, duration


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


def test_without_a_terminal_a_short_run_prints_its_end_only(ppo2: Callable[..., PPO2]) -> None:
    stream = io.StringIO()
    ppo2().learn(640, ProgressBarCallback(stream=stream))
    assert len(stream.getvalue().splitlines()) == 1


def test_lines_that_cannot_be_written_end_no_run(ppo2: Callable[..., PPO2]) -> None:
    """They often go to a file on the disk that the run fills."""
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")
    full = open("/dev/full", "w")  # noqa: SIM115
    model = ppo2().learn(256, ProgressBarCallback(line_seconds=0, stream=full))
    assert model.num_timesteps == 256
    with pytest.raises(OSError, match="No space left"):
        full.close()  # what could not be written is still there


def test_terminal_shows_a_bar(ppo2: Callable[..., PPO2]) -> None:
    reading, writing = pty.openpty()
    with open(writing, "w") as terminal:
        ppo2().learn(640, ProgressBarCallback(seconds=0, stream=terminal))
        terminal.flush()
        shown = os.read(reading, 1_000_000).decode()
    os.close(reading)
    assert "640/640" in shown
    assert "ppo2" in shown
    assert "steps/s" in shown


def test_what_goes_to_a_file_meanwhile_stays_off_the_terminal(
    ppo2: Callable[..., PPO2], capsys: pytest.CaptureFixture[str]
) -> None:
    class Print(Callback):
        every = 64

        def on_steps(self, algorithm: Algorithm[Any]) -> None:
            print("a table")

    reading, writing = pty.openpty()
    with open(writing, "w") as terminal:
        ppo2().learn(64, [ProgressBarCallback(stream=terminal), Print()])
        terminal.flush()
        shown = os.read(reading, 1_000_000).decode()
    os.close(reading)
    assert "a table" not in shown
    assert capsys.readouterr().out == "a table\n"


def test_durations_read_like_a_clock() -> None:
    assert [duration(seconds) for seconds in (5, 125, 5025)] == ["0:05", "2:05", "1:23:45"]
