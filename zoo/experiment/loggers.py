"""Loggers: the console, progress.csv, and the callback that calls all of them."""

from __future__ import annotations

import csv
import os
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TextIO

import numpy as np

from zoo.algorithms.callback import Callback, Training, named
from zoo.config.aliases import RefusesUnknownArguments
from zoo.core import atomic
from zoo.core.notebook import CellOutput, is_notebook
from zoo.core.printing import csv_lines, log, one_line, print_message, show
from zoo.envs.transition import EpisodeRecord
from zoo.errors import ZooError

STEPS = "time/total_timesteps"  # the scalar that is the x-axis everywhere

LONG_EPISODE = 1_000  # environment steps without an episode end after which a note says so


@dataclass
class LogEntry:
    """One row of a log."""

    timesteps: int
    scalars: dict[str, float]
    seconds: dict[str, float] = field(default_factory=dict)  # since the last entry, by what took them
    note: str | None = None


@dataclass(frozen=True)
class RunSummary:
    """How a run ended."""

    status: str  # finished, preempted (it may be resumed) or failed
    timesteps: int
    evaluation: Mapping[str, Any] = field(default_factory=dict)
    """The last evaluation, as ``run.json`` gives it: ``mean_return``, ``n_episodes``, …; or nothing."""
    best_mean: float | None = None  # of the best agent, if any was evaluated
    agent: Path | None = None  # the folder of the best agent, else of the last one, if one was saved


class Logger(RefusesUnknownArguments):
    """Base class of loggers; override the methods that you need.

    An exception costs one message and never ends a training: the logger is then switched off, unless it
    ``keeps_trying``. What needs a slow import does it at the first entry.
    """

    keeps_trying: ClassVar[bool] = False  # whether it is asked again after an `OSError` or `ZooError`

    def start(self, folder: Path, config: Mapping[str, Any]) -> None:
        """Receive a run's folder and its config; called first, in every process of the run."""

    def write(self, entry: LogEntry) -> None:
        """Write one entry."""

    def video(self, name: str, path: Path, timesteps: int) -> None:
        """Log a video that was filmed after so many environment steps."""

    def flush(self) -> None:
        """Print or send pending entries; called at the end of the training."""

    def conclude(self, summary: RunSummary) -> None:
        """Receive how the run ended, once its agent is saved."""

    def close(self) -> None:
        """Close files and connections; a later entry opens them again."""

    def state(self) -> dict[str, Any]:
        """Return plain values for a checkpoint; forces the files that they refer to to the disk first."""
        return {}

    def load_state(self, values: dict[str, Any]) -> None:
        """Go back to where `state` returned these."""


class ConsoleLogger(Logger):
    """Prints a table, at most every ``seconds``; entries that come faster are merged.

    In a notebook one table shows the latest entry.
    """

    keeps_trying = True

    def __init__(self, *, seconds: float = 2.0, stream: TextIO | None = None) -> None:
        self.seconds, self.stream = seconds, stream
        self._unprinted: LogEntry | None = None
        self._printed: float | None = None
        self._cell = CellOutput() if stream is None and is_notebook() else None

    def write(self, entry: LogEntry) -> None:
        if self._unprinted is not None:  # scalars that only the earlier entry has stay, and times add up
            scalars, before = {**self._unprinted.scalars, **entry.scalars}, self._unprinted.seconds
            seconds = {name: value + before.get(name, 0.0) for name, value in entry.seconds.items()}
            entry = LogEntry(entry.timesteps, scalars, seconds, entry.note)
        self._unprinted = entry
        if self._printed is None or time.perf_counter() - self._printed >= self.seconds:
            self._printed = time.perf_counter()
            self.flush()

    def flush(self) -> None:
        """Print the pending entry, if there is one."""
        if self._unprinted is not None:
            text, self._unprinted = table(self._unprinted), None
            if self.stream is None and log(text):
                return
            if self._cell is not None:
                self._cell.show(text)
            else:
                show(text, file=self.stream or sys.stdout, flush=True)

    close = flush


def table(entry: LogEntry) -> str:
    """Return an entry as text: scalars by group, how the time divides, and the note."""
    rows: list[tuple[str, str]] = []
    scalars = ((*name.rpartition("/")[::2], value) for name, value in entry.scalars.items())
    for group, key, value in sorted(scalars):
        if (f"{group}/", "") not in rows:
            rows.append((f"{group}/", ""))
        is_whole = isinstance(value, int) or 1e4 <= abs(value) < 1e15
        rows.append((f"   {key}", f"{value:.0f}" if is_whole else f"{value:.4g}"))
    total = sum(entry.seconds.values())
    if total > 0:
        rows.append(("share of time/", ""))
        rows += [(f"   {name}", f"{seconds / total:.0%}") for name, seconds in entry.seconds.items()]
    width, value_width = (max(map(len, column)) for column in zip(*rows, strict=True))
    line = "-" * (width + value_width + 7)
    body = [f"| {key:<{width}} | {value:<{value_width}} |" for key, value in rows]
    return "\n".join([line, *body, line, *([entry.note] if entry.note else [])])


class CsvLogger(Logger):
    """Appends one row an entry to a CSV file, with a column for every scalar so far."""

    keeps_trying = True

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._columns: list[str] | None = None
        self._n_rows = 0

    def write(self, entry: LogEntry) -> None:
        columns = self._known_columns()
        if new := entry.scalars.keys() - columns:
            columns = [STEPS, *sorted({*columns, *new} - {STEPS})]
            self._rewrite(columns, [*self._rows(), entry.scalars])
        else:
            with open(self.path, "ab", buffering=0) as file:
                atomic.append(file, csv_lines([map(entry.scalars.get, columns)]).encode())
            self._n_rows += 1

    def state(self) -> dict[str, Any]:
        columns = self._known_columns()
        if self.path.exists():
            atomic.sync(self.path)
        return {"columns": columns, "rows": self._n_rows}

    def load_state(self, values: dict[str, Any]) -> None:
        rows = self._rows()[: values["rows"]]
        if len(rows) < values["rows"]:
            left = f"has {len(rows)} of the {values['rows']} rows written before the checkpoint"
            print_message(f"{self.path} {left}: the others are lost")
        self._rewrite(values["columns"], rows)

    def _known_columns(self) -> list[str]:
        """Return the columns of the file, which may be there from an earlier call of `learn`."""
        if self._columns is None or not self.path.exists():
            rows = self._rows()
            self._columns, self._n_rows = list(rows[0]) if rows else [], len(rows)
        return self._columns

    def _rows(self) -> list[dict[str, str]]:
        if not self.path.exists():
            return []
        try:
            return list(csv.DictReader(self.path.read_text(encoding="utf-8").splitlines()))
        except (ValueError, csv.Error) as error:
            raise ZooError(f"can't read {self.path}: {one_line(error)}") from error

    def _rewrite(self, columns: list[str], rows: Sequence[Mapping[str, Any]]) -> None:
        cells = ([row.get(column) for column in columns] for row in rows)
        atomic.write_text(self.path, csv_lines([columns, *cells]) if columns else "")
        self._columns, self._n_rows = columns, len(rows)


class LoggerGroup:
    """Calls all loggers of a run; one that raises is named in one message and switched off.

    One that ``keeps_trying`` is asked again, after `OSError` and `ZooError`. Each starts with its first call,
    in the ``folder`` of the run, if there is one, and with its ``config``.
    """

    def __init__(
        self, outputs: Sequence[Logger], folder: Path | None = None, config: Mapping[str, Any] | None = None
    ) -> None:
        self.outputs: dict[str, Logger] = dict(named(outputs))  # type: ignore[arg-type]
        self._folder, self._config = folder, config or {}
        self._started, self._failing, self._off = set[str](), set[str](), set[str]()

    def call(self, method: str, *arguments: Any) -> dict[str, Any]:
        """Call a method of `Logger` on each, on one that was switched off only `close`; return the results.

        Re-raises errors of loggers with ``keeps_trying`` in `state` and `load_state`.
        """
        results = {name: self._call(name, method, *arguments) for name in self.outputs}
        return {name: result for name, result in results.items() if result is not None}

    def load_state(self, states: Mapping[str, Any]) -> None:
        """Restore the loggers' states and files."""
        for name in filter(states.__contains__, self.outputs):
            self._call(name, "load_state", states[name])

    def _call(self, name: str, method: str, *arguments: Any) -> Any:
        output = self.outputs[name]
        if name in self._off and method != "close":
            return None
        try:
            if self._folder is not None and name not in self._started and method != "close":
                self._started.add(name)
                output.start(self._folder, self._config)
            returned = getattr(output, method)(*arguments)
        except Exception as error:
            if output.keeps_trying and method in ("state", "load_state"):
                raise
            is_expected = isinstance(error, OSError | ZooError)
            tries_again = output.keeps_trying and is_expected
            if name not in self._failing:
                kind = "" if is_expected else f"{type(error).__name__}: "
                reason = one_line(f"{type(output).__name__}: {kind}{error}", 500)
                then = "the run goes on, and logs again when it can"
                then = then if tries_again else "it is switched off, and the run goes on"
                print_message(f"{reason}; {then}")
                if os.environ.get("ZOO_DEBUG") == "1":
                    traceback.print_exception(error)
            (self._failing if tries_again else self._off).add(name)
            return None
        if method == "write":
            self._failing.discard(name)
        return returned


class LoggingCallback(Callback):
    """Makes a log entry every ``every`` environment steps and hands it to each of ``outputs``.

    A `LoggerGroup` is not closed with the training: its run calls `conclude` after it, and closes it.
    """

    def __init__(self, every: int, outputs: Sequence[Logger] | LoggerGroup) -> None:
        self.every = every
        self._is_own_group = not isinstance(outputs, LoggerGroup)
        self.loggers = outputs if isinstance(outputs, LoggerGroup) else LoggerGroup(outputs)
        self._elapsed_before = 0.0
        self._restored_step: int | None = None
        self._longest = 0

    def on_training_start(self, algorithm: Training) -> None:
        self._started = self._logged = time.perf_counter()
        self._compiled_before = algorithm.runtime.compile_clock.seconds
        self._first_step = algorithm.num_timesteps
        reported, self._restored_step = self._restored_step, None
        self._logged_step = algorithm.num_timesteps if reported is None else reported
        self._timings = dict(algorithm.timings)

    def on_steps(self, algorithm: Training) -> None:
        """Report; evaluations at steps before come first, each as a row of its own."""
        self._write_rows(algorithm, before=algorithm.num_timesteps)
        self.loggers.call("write", self._entry(algorithm))

    def on_training_end(self, algorithm: Training) -> None:
        """Log what came since the last entry, an evaluation after the training too; close the outputs."""
        if algorithm.num_timesteps > self._logged_step:
            self.on_steps(algorithm)
        self._write_rows(algorithm, before=algorithm.num_timesteps + 1)
        self._elapsed_before += time.perf_counter() - self._started
        self._started = time.perf_counter()
        self.loggers.call("flush")
        if self._is_own_group:
            self.close()

    def close(self) -> None:
        self.loggers.call("close")

    def state(self) -> dict[str, Any]:
        elapsed = self._elapsed_before + time.perf_counter() - self._started
        return {"elapsed": elapsed, "reported": self._logged_step, "outputs": self.loggers.call("state")}

    def load_state(self, values: dict[str, Any]) -> None:
        self._elapsed_before, self._restored_step = values["elapsed"], values["reported"]
        self.loggers.load_state(values["outputs"])

    def _write_rows(self, algorithm: Training, *, before: int) -> None:
        for timesteps, scalars in algorithm.scalars.read_rows(before).items():
            self.loggers.call("write", LogEntry(timesteps, {STEPS: timesteps, **scalars}))

    def _entry(self, algorithm: Training) -> LogEntry:
        now = time.perf_counter()
        seconds = now - self._started
        assert algorithm.envs is not None
        self._longest = max(self._longest, algorithm.envs.longest_unfinished_episode())
        scalars = rollout_scalars(algorithm.recent_episodes)
        scalars["time/episodes"] = algorithm.n_episodes
        compiling = algorithm.runtime.compile_clock.seconds - self._compiled_before
        n_steps = algorithm.num_timesteps - self._first_step
        scalars["time/fps"] = round(n_steps / max(seconds - compiling, 1e-9), 1)
        scalars["time/time_elapsed"] = round(self._elapsed_before + seconds, 3)
        scalars[STEPS] = algorithm.num_timesteps
        scalars["train/n_updates"] = algorithm.n_updates
        scalars.update(algorithm.read_metrics())
        spent = {name: total - self._timings.get(name, 0.0) for name, total in algorithm.timings.items()}
        spent["other"] = max(0.0, now - self._logged - sum(spent.values()))
        note = None
        if not algorithm.n_episodes and self._longest >= LONG_EPISODE:
            longest = f"longest: {self._longest:,} steps"
            note = f"no episode has finished yet ({longest}); set a time limit? (env.max_episode_steps)"
        self._logged, self._logged_step = now, algorithm.num_timesteps
        self._timings = dict(algorithm.timings)
        return LogEntry(algorithm.num_timesteps, scalars, spent, note)


class LogInterval(Callback):
    """Lets ``logging`` log every ``interval`` updates; of off-policy algorithms every so many episodes."""

    every, looks_often = 1, True

    def __init__(self, interval: int, logging: LoggingCallback) -> None:
        self.interval, self.logging = interval, logging
        self._n_updates, self._due = 0, interval

    def on_steps(self, algorithm: Training) -> None:
        self._n_updates += 1
        count = algorithm.n_episodes if algorithm.has_replay else self._n_updates
        if count >= self._due:
            self._due = count + self.interval
            algorithm.check_finite()
            self.logging.on_steps(algorithm)


def rollout_scalars(episodes: Iterable[EpisodeRecord]) -> dict[str, float]:
    """Return the means over finished episodes: return, length, success, and numeric values of their infos."""
    values = defaultdict[str, list[float]](list)
    for record in episodes:
        shared = {"ep_rew": float(record.episode_return), "ep_len": int(record.length)}
        for key, value in {**shared, **record.info}.items():
            if isinstance(value, bool | int | float):
                values["success_rate" if key == "is_success" else f"{key}_mean"].append(value)
    return {f"rollout/{name}": float(np.mean(numbers)) for name, numbers in values.items()}
