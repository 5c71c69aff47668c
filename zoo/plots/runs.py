"""Runs as data: finding their folders, and reading monitors, progress, evaluations and records."""

from __future__ import annotations

import csv
import functools
import glob
import io
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from zoo.config.user_files import shown
from zoo.core.plain_data import flat, parse_json, parse_own_yaml, value_at
from zoo.core.printing import one_line
from zoo.core.zips import UNREADABLE
from zoo.errors import ZooError, nearest

Array = NDArray[np.float64]
Read = TypeVar("Read")

RECORD, EVALUATIONS, MONITOR = "run.json", "evaluations.npz", "monitor.csv"
TABLE_HEAD = b"seed,timesteps,mean_return"
"""How a table of evaluations begins, ALGO/ENV.csv, as the collection has them."""

LAST_EPISODES = 100
"""Episodes at the end of a training of which ``score=train`` is the mean."""

ELAPSED = "time/time_elapsed"
STEPS = "time/total_timesteps"

_IS_ENV = re.compile(r"-v\d+$")
_SEED_AT_END = re.compile(r"(?:^|[-_.])(?:seed|run|s)?[-_=]?(\d+)$", re.IGNORECASE)


def read_runs(texts: Sequence[str]) -> list[Run]:
    """Return all runs at or below these paths, also those in tables of evaluations. Raises `ZooError`."""
    paths = find_runs(texts)
    return [run for path in paths for run in (_tabled_runs(path) if path.is_file() else [read_run(path)])]


def find_runs(texts: Sequence[str]) -> list[Path]:
    """Return folders and tables of all runs at or below these paths, each once; a path may hold ``*``.

    The trials of `zoo tune` are found only by a path in their folder: the best of many were lucky. Raises
    `ZooError` for a path that leads nowhere, and for no run.
    """
    runs = (run for text in texts for path in _paths(text) for run in _runs_below(path))
    folders = {os.path.realpath(run): run for run in runs}
    if not folders:
        where = ", ".join(one_line(text, 80) for text in texts[:5])
        raise ZooError(
            f"there is no run in {where or 'an empty list'}: no {RECORD}, {MONITOR}, {EVALUATIONS} or table"
            " (seed,timesteps,mean_return) there or below; zoo train algo=ppo2 env=CartPole-v1 makes one"
        )
    return list(folders.values())


def _paths(text: str) -> list[Path]:
    path = Path(text).expanduser()
    matches = [path] if path.exists() else sorted(map(Path, glob.glob(str(path), recursive=True)))
    if not matches:
        siblings = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        raise ZooError(f"there is nothing at {one_line(text)}{nearest(path.name, siblings)}")
    return matches


def _runs_below(top: Path) -> Iterator[Path]:
    if _is_table(top):
        yield top
    for folder, folders, files in os.walk(top):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if "trials.csv" in files and "trials" in folders:
            folders.remove("trials")
        if RECORD in files:
            folders.clear()
            yield Path(folder)
        elif any(name.endswith((EVALUATIONS, MONITOR)) for name in files):
            yield Path(folder)
        else:
            yield from filter(_is_table, (Path(folder, name) for name in sorted(files)))


def _is_table(path: Path) -> bool:
    return path.suffix == ".csv" and path.is_file() and path.read_bytes().startswith(TABLE_HEAD)


@dataclass(frozen=True)
class Episodes:
    """Training episodes in the order in which they ended."""

    ends: Array
    """Environment steps until each ended: of its environment, or of the whole run."""
    returns: Array
    lengths: Array
    seconds: Array
    """Since the training began."""

    def places(self, x: str) -> Array:
        """Return where on an axis each ended: in ``steps``, ``hours`` or ``episodes``."""
        numbers = np.arange(1.0, len(self.ends) + 1)
        return {"steps": self.ends, "hours": self.seconds / 3600}.get(x, numbers)


@dataclass(frozen=True)
class Monitor:
    """The episodes of one environment, when its monitor began, and how many rows are no episodes."""

    episodes: Episodes
    t_start: float
    env_id: str
    n_damaged: int


@dataclass(frozen=True)
class Series:
    """Points in the order of x."""

    x: Array
    y: Array


def sorted_series(x: Array, y: Array) -> Series | None:
    """Return the finite points in the order of x; None if there are none."""
    rows = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
    rows = rows[np.argsort(x[rows], kind="stable")]
    return Series(x[rows], y[rows]) if len(rows) else None


def parse_monitor(content: bytes) -> Monitor:
    """Return the episodes of a ``monitor.csv``. Raises `ValueError` for another file."""
    is_headed = content.startswith(b"#")
    head, _, content = content.partition(b"\n") if is_headed else (b"#{}", b"", content)
    start = parse_json(head[1:].decode(errors="replace"))
    columns = parse_progress(content)
    if not {"r", "l", "t"} <= columns.keys():
        raise ValueError("it has no columns r, l, t")
    rows = np.stack([columns[name] for name in ("r", "l", "t")])
    rows = rows[:, np.isfinite(rows[1]) & (rows[1] > 0)]
    ends, is_whole = np.cumsum(rows[1]), np.isfinite(rows).all(axis=0)  # steps of the others count
    returns, lengths, seconds = rows[:, is_whole]
    episodes = Episodes(ends[is_whole], returns, lengths, seconds)
    n_damaged = content.count(b"\n") - 1 - len(returns)
    return Monitor(episodes, float(start.get("t_start", 0.0)), start.get("env_id") or "", n_damaged)


def parse_progress(content: bytes) -> dict[str, Array]:
    """Return the columns of a ``progress.csv``, NaN for no number, without rows that are damaged."""
    lines = io.BytesIO(content[: content.rfind(b"\n") + 1])
    reader = csv.reader(io.TextIOWrapper(lines, "utf-8", "replace", newline="\n"))
    names = next(reader, [])
    rows = (list(map(_number, row)) for row in reader if len(row) == len(names))
    table = np.fromiter(rows, np.dtype((np.float64, max(1, len(names)))))
    return dict(zip(names, table.T, strict=False))


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return math.nan


def parse_evaluations(content: bytes) -> Series | None:
    """Return the mean return by environment steps. Raises one of `UNREADABLE` for another file."""
    with np.load(io.BytesIO(content), allow_pickle=False) as npz:
        if not {"timesteps", "results"} <= {*npz.files}:
            raise ValueError("it has no timesteps and results")
        timesteps, results = (npz[name].astype(np.float64) for name in ("timesteps", "results"))
    return sorted_series(timesteps, results.reshape(len(timesteps), -1).mean(axis=1))


@dataclass(eq=False)
class Run:
    """A run's folder. Its files are read on demand; damaged ones are noted in ``problems``."""

    path: Path
    algo: str
    """Name or preset; of SB3's run, a name made from its folder."""
    env: str
    seed: int | None = None
    status: str | None = None
    """``running``, ``finished``, ``failed`` or ``preempted``; None for SB3's run."""
    config: dict[str, Any] | None = None
    record: dict[str, Any] = field(default_factory=dict)
    is_sb3: bool = False
    problems: dict[str, str] = field(default_factory=dict)
    """What is wrong with a file, in one line, by its name."""

    @property
    def name(self) -> str:
        """The path as messages show it."""
        return one_line(shown(self.path.absolute()))

    @property
    def is_complete(self) -> bool:
        return not self.ending

    @property
    def ending(self) -> str:
        """How the run ended, if neither by itself nor as Stable-Baselines3's."""
        if self.status == "failed":
            return f"failed: {one_line(self.record.get('error') or 'no reason recorded', 120)}"
        if str(self.record.get("stop_reason")).startswith("pruned "):  # a trial of a study
            return "was pruned"
        endings = {"finished": "", "running": "has not ended, or was killed", None: "has no status"}
        return "" if self.is_sb3 else endings.get(self.status, str(self.status))

    @functools.cached_property
    def settings(self) -> dict[str, Any]:
        """The values of the config by dotted key."""
        return dict(flat(self.config or {}))

    @functools.cached_property
    def monitors(self) -> list[Monitor]:
        """What can be read of the monitors of all environments."""
        monitors, prefix = [], "" if self.is_sb3 else "monitor/"
        for path in sorted((self.path / prefix).glob(f"*{MONITOR}")):
            if monitor := self._read(f"{prefix}{path.name}", parse_monitor):
                monitors.append(monitor)
                if monitor.n_damaged:
                    self.problems[f"{prefix}{path.name}"] = f"{monitor.n_damaged:,} damaged rows are left out"
        return monitors

    @functools.cached_property
    def episodes(self) -> Episodes | None:
        """The training episodes of all environments; None if none has ended."""
        if not any(len(monitor.episodes.ends) for monitor in self.monitors):
            return None
        config = self.config or {}
        # k steps of one of n environments are n·k of the run.
        n_envs = (config.get("n_envs") or len(self.monitors)) * (config.get("workers") or 1)
        first = min(monitor.t_start for monitor in self.monitors)
        parts = [
            (part.ends * n_envs, part.returns, part.lengths, part.seconds + start)
            for part, start in ((monitor.episodes, monitor.t_start - first) for monitor in self.monitors)
        ]
        columns = np.concatenate(parts, axis=1)
        return Episodes(*columns[:, np.argsort(columns[0], kind="stable")])

    @functools.cached_property
    def progress(self) -> dict[str, Array]:
        """The logged scalars by name; nothing for a run without ``progress.csv``."""
        return self._read("progress.csv", parse_progress) or {}

    @functools.cached_property
    def evaluations(self) -> Series | None:
        """The mean return of each evaluation by environment steps; None if there is none."""
        return self._read(EVALUATIONS, parse_evaluations)

    def score(self, kind: str) -> float | None:
        """Return the mean of the ``final`` or ``best`` evaluation, or of the last episodes (``train``)."""
        if kind == "train":
            return None if self.episodes is None else float(self.episodes.returns[-LAST_EPISODES:].mean())
        if self.evaluations is None:
            recorded: float | None = value_at(self.record, "evaluation.mean_return")
            return recorded
        return float(self.evaluations.y.max() if kind == "best" else self.evaluations.y[-1])

    @property
    def timesteps(self) -> float | None:
        """How many environment steps the run took, as far as it recorded that."""
        recorded: float | None = self.record.get("timesteps")
        return float(self.episodes.ends[-1]) if recorded is None and self.episodes is not None else recorded

    @property
    def seconds(self) -> float | None:
        """The seconds that the run took, as far as they were logged."""
        elapsed = self.progress.get(ELAPSED)
        if elapsed is not None and np.isfinite(elapsed).any():
            return float(np.nanmax(elapsed))
        return None if self.episodes is None else float(self.episodes.seconds.max())

    def _read(self, name: str, parse: Callable[[bytes], Read]) -> Read | None:
        """Return a file's parsed content; None if it is missing, or damaged (noted in ``problems``)."""
        try:
            return parse((self.path / name).read_bytes())
        except FileNotFoundError:
            return None
        except (ZooError, *UNREADABLE) as error:
            self.problems[name] = one_line(error) or type(error).__name__
            return None


def read_run(path: Path) -> Run:
    """Return the run in a folder; a damaged record or config is among its problems."""
    if not (path / RECORD).is_file():
        return _sb3_run(path)
    folder = path.absolute().parent
    run = Run(path, folder.parent.name, folder.name)
    run.record, run.config = run._read(RECORD, parse_json) or {}, run._read("config.yaml", parse_own_yaml)
    run.seed, run.status = run.record.get("seed"), run.record.get("status")
    run.algo = value_at(run.config, "algo.preset") or value_at(run.config, "algo.name") or run.algo
    run.env = value_at(run.config, "env.id") or run.env
    if run.config is None:
        run.problems.setdefault("config.yaml", "is missing")
    return run


def _tabled_runs(path: Path) -> list[Run]:
    """Return a run for each seed of a table of evaluations. Raises `ZooError` for a damaged one."""
    lines, runs = path.read_text(errors="replace").splitlines()[1:], []
    try:
        table = np.loadtxt(lines or ["no rows"], delimiter=",", usecols=(0, 1, 2), ndmin=2)
    except ValueError as error:
        raise ZooError(f"{one_line(path)}: {one_line(error)}") from error
    for seed in np.unique(table[:, 0]):
        _, steps, returns = table[table[:, 0] == seed].T
        place, algo = path.with_suffix("") / f"s{seed:.0f}", path.absolute().parent.name
        run = Run(place, algo, path.stem, int(seed), "finished", record={"timesteps": float(steps[-1])})
        run.evaluations = sorted_series(steps, returns)
        runs.append(run)
    return runs


def _sb3_run(path: Path) -> Run:
    """Return a run of Stable-Baselines3: its monitor names the environment, its folder the algorithm."""
    name, parent = path.absolute().name, path.absolute().parent.name
    seed, stem = _SEED_AT_END.search(name), _SEED_AT_END.sub("", name)
    # In folders such as ppo/CartPole-v1_1 the environment's name says nothing about who trained there.
    algo = parent if _IS_ENV.search(stem) or not stem else stem
    run = Run(path, algo, "", int(seed[1]) if seed else None, is_sb3=True)
    names = [*(monitor.env_id for monitor in run.monitors), *filter(_IS_ENV.search, (stem, parent))]
    run.env = next(filter(None, names), "")
    return run


def problems_of(runs: Iterable[Run]) -> list[str]:
    """Return the problems of these runs, one line a file."""
    return [f"{run.name}/{name}: {problem}" for run in runs for name, problem in run.problems.items()]
