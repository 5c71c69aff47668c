"""Showing how far a run is."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import Any, TextIO

import numpy as np

from zoo.algorithms.callback import Callback, Training
from zoo.files.printing import decimal, duration, show


class ProgressBarCallback(Callback):
    """A bar with steps per second, time left and mean return; without a terminal, a line now and then.

    ``seconds`` is the time between two refreshes of the bar, ``line_seconds`` that between two lines.
    """

    every = 50
    looks_often = True

    def __init__(
        self, *, seconds: float = 0.2, line_seconds: float = 30.0, stream: TextIO | None = None
    ) -> None:
        self.stream = stream or sys.stderr
        self.is_terminal = self.stream.isatty()
        self.seconds = seconds if self.is_terminal else line_seconds
        self._bar: Any = None
        self._shown_step: int | None = None

    def on_training_start(self, algorithm: Training) -> None:
        """Show an empty bar."""
        self._shown = time.perf_counter()
        self._started = self._clock(algorithm)
        self._shown_step = None
        self._first_step = algorithm.num_timesteps
        if self.is_terminal:
            self._bar = _bar(self.stream)
            self._task = self._bar.add_task(
                algorithm.name, total=algorithm.total_timesteps, completed=algorithm.num_timesteps, facts=""
            )
            self._bar.start()

    def on_steps(self, algorithm: Training) -> None:
        """Refresh, if it is time."""
        now = time.perf_counter()
        if now - self._shown >= self.seconds:
            self._shown = now
            self._show(algorithm)

    def on_training_end(self, algorithm: Training) -> None:
        """Show where the run ended, unless the last line has said it."""
        if self._bar is not None or self._shown_step != algorithm.num_timesteps:
            self._show(algorithm)
        self.close()

    def close(self) -> None:
        """Take down the bar."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _show(self, algorithm: Training) -> None:
        if self._bar is not None:
            self._bar.update(
                self._task, completed=algorithm.num_timesteps, facts=", ".join(self._facts(algorithm))
            )
            self._bar.refresh()
            return
        self._shown_step = algorithm.num_timesteps
        done, total = algorithm.num_timesteps, algorithm.total_timesteps
        share = f" ({min(1.0, done / total):.0%})" if total else ""
        line = ", ".join([f"{done:,}/{total:,} steps{share}", *self._facts(algorithm)])
        with contextlib.suppress(OSError):  # it may go to a disk that is full
            show(line, file=self.stream, flush=True)

    def _facts(self, algorithm: Training) -> list[str]:
        steps = algorithm.num_timesteps - self._first_step
        speed = steps / max(self._clock(algorithm) - self._started, 1e-9)
        facts = [f"{speed:,.0f} steps/s" if speed >= 10 else f"{speed:.2g} steps/s"]
        left = algorithm.total_timesteps - algorithm.num_timesteps
        if steps and left > 0:
            facts.append(f"{duration(left / speed)} left")
        if algorithm.recent_episodes:
            mean = np.mean([episode.episode_return for episode in algorithm.recent_episodes])
            facts.append(f"mean return {decimal(float(mean))}")
        return facts

    def _clock(self, algorithm: Training) -> float:
        """Return the time, which stands still while something is compiled: that is done once."""
        return time.perf_counter() - algorithm.runtime.compile_clock.seconds


def _bar(stream: TextIO) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[facts]}"),
        console=Console(file=stream),
        auto_refresh=False,
        # What is printed meanwhile appears above the bar, unless it goes elsewhere.
        redirect_stdout=sys.stdout.isatty(),
    )
