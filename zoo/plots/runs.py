"""Runs as data: finding their folders, and reading monitors, progress, evaluations and records."""

from __future__ import annotations

import csv
import glob
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from zoo.config.user_files import shown
from zoo.core.plain_data import parse_json, parse_yaml, value_at
from zoo.core.printing import one_line
from zoo.core.zips import UNREADABLE, parse_arrays
from zoo.errors import ZooError, nearest

Array = NDArray[np.float64]
Score = Literal["final", "best", "train"]
Read = TypeVar("Read")

RECORD, EVALUATIONS, MONITOR = "run.json", "evaluations.npz", "monitor.csv"

LAST_EPISODES = 100
"""Episodes at the end of a training of which ``score=train`` is the mean."""

ELAPSED = "time/time_elapsed"
STEPS = "time/total_timesteps"

_IS_ENV = re.compile(r"-v\d+$")
_SEED_AT_END = re.compile(r"(?:^|[-_.])(?:seed|run|s)?[-_=]?(\d+)$", re.IGNORECASE)


# -- finding ----------------------------------------------------------------------------------------------


def find_runs(given: Sequence[str]) -> list[Path]:
    """Return the folders of all runs at or below these paths, each once; a path may hold ``*``.

    The trials of `zoo tune` are found only by a path in their folder: the best of many were lucky. Raises
    `ZooError` for a path that leads nowhere, and for no run.
    """
    found: dict[str, Path] = {}
    for text in given:
        for path in _paths(text):
            for run in _runs_below(path):
                found.setdefault(os.path.realpath(run), run)
    if not found:
        where = ", ".join(one_line(text, 80) for text in given[:5])
        raise ZooError(
            f"there is no run in {where or 'what was given'}: no {RECORD}, {MONITOR} or {EVALUATIONS} there"
            " or below; zoo train algo=ppo2 env=CartPole-v1 makes one"
        )
    return list(found.values())


def _paths(text: str) -> list[Path]:
    path = Path(text).expanduser()
    if path.exists():
        return [path]
    if glob.has_magic(text):
        matches = sorted(map(Path, glob.glob(str(path), recursive=True)))
        if matches:
            return matches
        raise ZooError(f"no path is like {one_line(text)}")
    siblings = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    raise ZooError(f"there is nothing at {one_line(text)}{nearest(path.name, siblings)}")


def _runs_below(top: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(top):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if "trials.csv" in files and "trials" in folders:
            folders.remove("trials")
        if RECORD in files:
            folders.clear()
            yield Path(folder)
        elif any(name == EVALUATIONS or _is_monitor(name) for name in files):
            yield Path(folder)


def _is_monitor(name: str) -> bool:
    return name == MONITOR or name.endswith(f".{MONITOR}")


# -- files ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Episodes:
    """Training episodes in the order in which they ended."""

    ends: Array
    """Environment steps until each ended: of its environment, or of the whole run."""
    returns: Array
    lengths: Array
    seconds: Array
    """Since the training began."""


@dataclass(frozen=True)
class Monitor:
    """The episodes of one environment, when its monitor began, and how many rows are damaged."""

    episodes: Episodes
    t_start: float
    env_id: str
    n_damaged: int


@dataclass(frozen=True)
class Evaluations:
    """Evaluations in the order of their steps; returns have shape (n_evaluations, n_episodes)."""

    timesteps: Array
    returns: Array

    @property
    def means(self) -> Array:
        """The mean return of each evaluation."""
        means: Array = self.returns.mean(axis=1)
        return means


def parse_monitor(content: bytes) -> Monitor:
    """Return the episodes of a ``monitor.csv``. Raises `ValueError` for another file."""
    start: dict[str, Any] = {}
    if content.startswith(b"#"):
        head, _, content = content.partition(b"\n")
        start = parse_json(head[1:].decode(errors="replace"))
    columns, n_damaged = parse_progress(content)
    if not {"r", "l", "t"} <= columns.keys():
        raise ValueError("it has no columns r, l, t")
    rows = np.stack([columns[name] for name in ("r", "l", "t")])
    is_episode = np.isfinite(rows).all(axis=0) & (rows[1] > 0)
    returns, lengths, seconds = rows[:, is_episode]
    episodes = Episodes(np.cumsum(lengths), returns, lengths, seconds)
    t_start, env_id = finite_number(start.get("t_start")) or 0.0, one_line(start.get("env_id") or "", 80)
    return Monitor(episodes, t_start, env_id, n_damaged + int((~is_episode).sum()))


def parse_progress(content: bytes) -> tuple[dict[str, Array], int]:
    """Return the columns of a ``progress.csv``, NaN for no number, and how many rows are damaged.

    A row that is still being written is left out.
    """
    lines = content[: content.rfind(b"\n") + 1].decode(errors="replace").split("\n")[:-1]
    try:
        names, *rows = [*csv.reader(lines)] or [[]]
    except csv.Error as error:
        raise ValueError(one_line(error)) from error
    whole = [[_number(cell) for cell in row] for row in rows if len(row) == len(names)]
    table = np.array(whole, np.float64).reshape(-1, max(1, len(names)))
    columns = {one_line(name, 100): column for name, column in zip(names, table.T, strict=False)}
    return columns, len(rows) - len(whole)


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return math.nan


def parse_evaluations(content: bytes) -> Evaluations:
    """Return the evaluations of an ``evaluations.npz`` without those with NaN.

    Raises `ValueError` for another file.
    """
    arrays = parse_arrays(content, ("timesteps", "results"))
    if len(arrays) < 2:
        raise ValueError("it has no timesteps and results")
    timesteps, returns = arrays["timesteps"], arrays["results"]
    returns = returns.reshape(len(timesteps), -1)
    rows = np.flatnonzero(np.isfinite(returns).all(axis=1))
    rows = rows[np.argsort(timesteps[rows], kind="stable")]
    return Evaluations(timesteps[rows], returns[rows])


# -- runs -------------------------------------------------------------------------------------------------


@dataclass
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
    _contents: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        """The path as messages show it."""
        return one_line(shown(self.path.absolute()))

    @property
    def is_complete(self) -> bool:
        """Whether the run has come to its end and was not pruned as a trial of a study."""
        return self.is_sb3 or (self.status == "finished" and not self._is_pruned)

    @property
    def _is_pruned(self) -> bool:
        return str(self.record.get("stop_reason") or "").startswith("pruned ")

    @property
    def ending(self) -> str:
        """How the run ended, for one that is not complete."""
        if self.status == "failed":
            return f"failed: {one_line(self.record.get('error') or 'no reason recorded', 120)}"
        if self._is_pruned:
            return "was pruned"
        return "has not ended, or was killed" if self.status == "running" else self.status or "has no status"

    def episodes(self) -> Episodes | None:
        """Return the training episodes, or None if none has ended."""
        prefix = "" if self.is_sb3 else "monitor/"
        names = [f"{prefix}{name}" for name in _names_in(self.path / prefix) if _is_monitor(name)]
        monitors = [each for name in names if (each := self._read(name, parse_monitor)) is not None]
        if not any(len(each.episodes.ends) for each in monitors):
            return None
        config = self.config or {}
        n_envs = int(finite_number(config.get("n_envs")) or len(names))
        return _merge_monitors(monitors, n_envs * int(finite_number(config.get("workers")) or 1))

    def progress(self) -> dict[str, Array]:
        """Return the logged scalars by name; nothing for a run without ``progress.csv``."""
        columns, n_damaged = self._read("progress.csv", parse_progress) or ({}, 0)
        if n_damaged:
            self.problems["progress.csv"] = f"{n_damaged:,} damaged rows are left out"
        return columns

    def evaluations(self) -> Evaluations | None:
        """Return the evaluations, or None if there is none."""
        evaluations = self._read(EVALUATIONS, parse_evaluations)
        return evaluations if evaluations is not None and len(evaluations.timesteps) else None

    def score(self, kind: Score) -> float | None:
        """Return the mean return of the last or the best evaluation, or of the last training episodes."""
        if kind == "train":
            episodes = self.episodes()
            return None if episodes is None else float(episodes.returns[-LAST_EPISODES:].mean())
        evaluations = self.evaluations()
        if evaluations is None:
            return finite_number(value_at(self.record, "evaluation.mean_return"))
        return float(evaluations.means.max() if kind == "best" else evaluations.means[-1])

    def timesteps(self) -> float | None:
        """Return how many environment steps the run took, as far as it recorded that."""
        recorded, episodes = finite_number(self.record.get("timesteps")), self.episodes()
        return float(episodes.ends[-1]) if recorded is None and episodes is not None else recorded

    def seconds(self) -> float | None:
        """Return the seconds that the run took, as far as they were logged."""
        elapsed, episodes = self.progress().get(ELAPSED), self.episodes()
        if elapsed is not None and np.isfinite(elapsed).any():
            return float(np.nanmax(elapsed))
        return None if episodes is None else float(episodes.seconds.max())

    def _read(self, name: str, parse: Callable[[bytes], Read]) -> Read | None:
        """Return a file's parsed content; None if it is missing, or damaged (noted in ``problems``)."""
        if name not in self._contents:
            exists = (self.path / name).exists()
            self._contents[name] = _read_file(self.path, name, parse, self.problems) if exists else None
        found: Read | None = self._contents[name]
        if isinstance(found, Monitor) and found.n_damaged:
            self.problems[name] = f"{found.n_damaged:,} damaged rows are left out"
        return found

    def clear_cache(self) -> None:
        """Free the files' content; it is read again on demand."""
        self._contents.clear()


def read_run(path: Path) -> Run:
    """Return the run in a folder; a damaged record or config is among its problems."""
    if not (path / RECORD).is_file():
        return _sb3_run(path)
    problems: dict[str, str] = {}
    record = _read_file(path, RECORD, parse_json, problems) or {}
    config = _read_file(path, "config.yaml", parse_yaml, problems)
    algo = value_at(config, "algo.preset") or value_at(config, "algo.name")
    env_folder, seed = path.absolute().parent, record.get("seed")
    return Run(
        path,
        algo=one_line(algo or env_folder.parent.name or "?", 60),
        env=one_line(value_at(config, "env.id") or env_folder.name or "?", 60),
        seed=seed if isinstance(seed, int) else None,
        status=one_line(record["status"], 20) if "status" in record else None,
        config=config,
        record=record,
        problems=problems,
    )


def finite_number(value: Any) -> float | None:
    """Return a finite number as a float, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _sb3_run(path: Path) -> Run:
    """Return a run of Stable-Baselines3: its monitor names the environment, its folder the algorithm."""
    run = Run(path, algo="", env="", is_sb3=True)
    monitors = [run._read(file, parse_monitor) for file in _names_in(path) if _is_monitor(file)]
    name, parent = path.absolute().name, path.absolute().parent.name
    seed, without_seed = _SEED_AT_END.search(name), _SEED_AT_END.sub("", name)
    # In folders such as ppo/CartPole-v1_1 the environment's name says nothing about who trained there.
    is_env = bool(_IS_ENV.search(without_seed))
    run.seed = int(seed[1]) if seed else None
    run.env = next((each.env_id for each in monitors if each is not None and each.env_id), "")
    run.env = run.env or next((one_line(each) for each in (without_seed, parent) if _IS_ENV.search(each)), "")
    run.algo = one_line(parent if is_env or not without_seed else without_seed, 60) or "?"
    return run


def _read_file(
    path: Path, name: str, parse: Callable[[bytes], Read], problems: dict[str, str]
) -> Read | None:
    try:
        return parse((path / name).read_bytes())
    except FileNotFoundError:
        problems[name] = "is missing"
    except (ZooError, *UNREADABLE) as error:
        problems[name] = one_line(error) or type(error).__name__
    return None


def _names_in(folder: Path) -> list[str]:
    return sorted(os.listdir(folder)) if folder.is_dir() else []


def _merge_monitors(monitors: Sequence[Monitor], n_envs: int) -> Episodes:
    """Merge the episodes of parallel environments: k steps of each are n_envs·k of the run."""
    first = min(monitor.t_start for monitor in monitors)
    each = [(m.episodes.ends * n_envs, m.episodes, m.episodes.seconds + m.t_start - first) for m in monitors]
    ends = np.concatenate([ends for ends, _, _ in each])
    returns = np.concatenate([episodes.returns for _, episodes, _ in each])
    lengths = np.concatenate([episodes.lengths for _, episodes, _ in each])
    seconds = np.concatenate([seconds for _, _, seconds in each])
    order = np.argsort(ends, kind="stable")
    return Episodes(ends[order], returns[order], lengths[order], seconds[order])


def problems_of(runs: Iterable[Run]) -> list[str]:
    """Return the problems of these runs, one line a file."""
    return [f"{run.name}/{name}: {problem}" for run in runs for name, problem in run.problems.items()]
