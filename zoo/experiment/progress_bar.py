"""The progress bar of a training: in a terminal or a notebook; elsewhere lines of the logger ``zoo``."""

from __future__ import annotations

import contextlib
import html
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TextIO

import numpy as np

from zoo.algorithms.callback import Callback, Training
from zoo.core.notebook import CellOutput, is_notebook
from zoo.core.printing import decimal, duration, log

SECONDS_BETWEEN_LINES = 10.0

Draw = Callable[[Training, str], None]  # draws a bar with the facts beside it


class ProgressBarCallback(Callback):
    """A bar with speed, time left and mean return, while ``stream`` is a terminal or a notebook's."""

    every = 50
    looks_often = True

    def __init__(self, *, seconds: float = 0.2, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr
        self.seconds = seconds
        self._draw: Draw | None = None
        self._closing = contextlib.ExitStack()
        self._compile_clock: Any = None
        self._shown = 0.0

    def on_training_start(self, algorithm: Training) -> None:
        clock = algorithm.runtime.compile_clock
        if clock.on_change is not None:
            return  # another bar shows this training
        self._compile_clock, clock.on_change = clock, partial(self._show, algorithm)
        self._has_settled, self._shown = False, time.perf_counter()
        self._first_step, self._started = algorithm.num_timesteps, self._clock()
        if is_notebook() and self.stream is sys.stderr:
            self._draw = _notebook_bar()
            self._draw(algorithm, "")
        elif self.stream is not None and self.stream.isatty():
            self._draw = _terminal_bar(algorithm, self.stream, self._closing)

    def on_steps(self, algorithm: Training) -> None:
        seconds = SECONDS_BETWEEN_LINES if self._draw is None else self.seconds
        if time.perf_counter() - self._shown >= seconds:
            self._shown = time.perf_counter()
            self._show(algorithm)

    def on_training_end(self, algorithm: Training) -> None:
        self._show(algorithm)
        self.close()

    def close(self) -> None:
        clock, self._compile_clock, self._draw = self._compile_clock, None, None
        if clock is not None:
            clock.on_change = None
        with contextlib.suppress(OSError, ValueError):
            self._closing.close()

    def _show(self, algorithm: Training) -> None:
        """Draw the bar; one whose terminal was closed is dropped: no training ends by that."""
        if self._compile_clock is None:
            return
        facts = self._facts(algorithm)
        if self._draw is None:
            steps = f"{algorithm.num_timesteps:,}/{algorithm.total_timesteps:,}"
            log(", ".join([f"{algorithm.label} {steps}", *facts]))
            return
        try:
            self._draw(algorithm, ", ".join(facts))
        except (OSError, ValueError):
            self.close()

    def _facts(self, algorithm: Training) -> list[str]:
        steps, clock = algorithm.num_timesteps - self._first_step, self._compile_clock
        speed = steps / max(self._clock() - self._started, 1e-9)
        facts = [f"{speed:,.0f} steps/s" if speed >= 10 else f"{speed:.2g} steps/s"] if steps else []
        left = algorithm.total_timesteps - algorithm.num_timesteps
        if clock.is_running:
            facts.append("compiling")
        elif left > 0 and steps and self._has_settled:
            facts.append(f"{duration(left / speed)} left")
        elif left > 0 and algorithm.n_updates and (algorithm.runtime.compile is not True or clock.seconds):
            # Measure speed from here: random steps and eager updates are over.
            self._has_settled = True
            self._first_step, self._started = algorithm.num_timesteps, self._clock()
        if algorithm.recent_episodes:
            mean = np.mean([episode.episode_return for episode in algorithm.recent_episodes])
            facts.append(f"mean return {decimal(float(mean))}")
        return facts

    def _clock(self) -> float:
        """Return the time, which stands still while something is compiled: that is done once."""
        return time.perf_counter() - float(self._compile_clock.seconds)


def _terminal_bar(algorithm: Training, stream: TextIO, closing: contextlib.ExitStack) -> Draw:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress

    progress = Progress(
        *("{task.description}", BarColumn(), MofNCompleteColumn(), "{task.fields[facts]}"),
        console=Console(file=stream),
        auto_refresh=False,
        # What is printed meanwhile appears above the bar, unless it goes elsewhere.
        redirect_stdout=sys.stdout.isatty(),
    )
    total, completed = algorithm.total_timesteps, algorithm.num_timesteps
    task = progress.add_task(algorithm.label, total=total, completed=completed, facts="")
    with contextlib.suppress(OSError, ValueError):
        closing.enter_context(progress)
    return lambda algorithm, facts: progress.update(
        task, completed=algorithm.num_timesteps, facts=facts, refresh=True
    )


def _notebook_bar() -> Draw:
    cell = CellOutput()

    def draw(algorithm: Training, facts: str) -> None:
        steps, total = algorithm.num_timesteps, algorithm.total_timesteps
        text = f"{steps:,}/{total:,} {facts}"
        bar = f'<progress value="{steps}" max="{total}"></progress>'
        cell.show(f"{algorithm.label} {text}", f"{html.escape(algorithm.label)} {bar} {text}")

    return draw
