"""Runs as data: finding their folders, and reading monitors, progress, evaluations and records."""

from __future__ import annotations

import csv
import glob
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from zoo.config.paths import shown
from zoo.core.plain_data import parse_json, parse_yaml
from zoo.core.printing import one_line
from zoo.core.zips import UNREADABLE, parse_arrays
from zoo.envs.registry import folder_name
from zoo.errors import ZooError, nearest

Array = NDArray[np.float64]
Score = Literal["final", "best", "train"]
Read = TypeVar("Read")

RECORD, EVALUATIONS, MONITOR = "run.json", "evaluations.npz", "monitor.csv"

TRIALS, TRIALS_TABLE = "trials", "trials.csv"
"""The folder with the trials of a study of `zoo tune`, and the table beside it.

The best of many trials were lucky too: only those that were trained again are found as runs, unless the path
is that of the trials.
"""

LAST_EPISODES = 100
"""Episodes at the end of a training of which ``score=train`` is the mean."""

ELAPSED = "time/time_elapsed"
STEPS = "time/total_timesteps"

_IS_ENV = re.compile(r"-v\d+$")
_SEED_AT_END = re.compile(r"(?:^|[-_.])(?:seed|run|s)?[-_=]?\d+$", re.IGNORECASE)


# -- finding ----------------------------------------------------------------------------------------------


def find_runs(given: Sequence[str]) -> list[Path]:
    """Return the folders of all runs at or below these paths, each once; a path may hold ``*``.

    A file of a run stands for the run, and so does an agent in it. Raises `ZooError` if a path leads nowhere,
    or if there is no run at all.
    """
    found: dict[str, Path] = {}
    for text in given:
        for path in _paths(text):
            for run in _runs_below(_run_of(path)):
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
    if os.path.lexists(path):
        return [path]
    if glob.has_magic(text):
        matches = sorted(map(Path, glob.glob(str(path), recursive=True)))
        if matches:
            return matches
        raise ZooError(f"no path is like {one_line(text)}")
    siblings = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    raise ZooError(f"there is nothing at {one_line(text)}{nearest(path.name, siblings)}")


def _run_of(path: Path) -> Path:
    """Return the run to which a file or an agent's folder belongs, or the path itself."""
    folder = path if path.is_dir() else path.parent
    for candidate in (folder, folder.parent):
        if (candidate / RECORD).is_file():
            return candidate
    if path.is_file() and not _has_sb3_files([path.name]):
        raise ZooError(
            f"{one_line(path)} is no run: expected a folder with {RECORD}, {MONITOR} or {EVALUATIONS}"
        )
    return folder


def _runs_below(top: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(top):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if TRIALS_TABLE in files and TRIALS in folders:
            folders.remove(TRIALS)
        if RECORD in files:
            folders.clear()
            yield Path(folder)
        elif _has_sb3_files(files):
            yield Path(folder)


def _has_sb3_files(names: Sequence[str]) -> bool:
    return any(name == EVALUATIONS or _is_monitor(name) for name in names)


def _is_monitor(name: str) -> bool:
    return name == MONITOR or name.endswith(f".{MONITOR}")


# -- files ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Monitor:
    """The episodes of one environment, in the order in which they ended."""

    returns: Array
    lengths: Array
    seconds: Array
    """Since ``t_start``, the time at which the monitor began."""
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
    """Return the episodes of a ``monitor.csv``; a row that is still being written is left out.

    Raises `ValueError` in one line for another file.
    """
    head, _, rest = content.partition(b"\n")
    start: dict[str, Any] = {}
    if head.startswith(b"#"):
        start, content = parse_json(head[1:].decode(errors="replace")), rest
    columns, n_damaged = parse_progress(content)
    missing = [name for name in ("r", "l", "t") if name not in columns]
    if missing:
        raise ValueError(f"it has no column {', '.join(missing)}")
    rows = np.stack([columns[name] for name in ("r", "l", "t")], axis=1)
    is_episode = np.isfinite(rows).all(axis=1) & (rows[:, 1] > 0)
    returns, lengths, seconds = rows[is_episode].T
    env_id = one_line(start.get("env_id") or "", 80)
    n_damaged += int((~is_episode).sum())
    return Monitor(returns, lengths, seconds, finite_number(start.get("t_start")) or 0.0, env_id, n_damaged)


def parse_progress(content: bytes) -> tuple[dict[str, Array], int]:
    """Return the columns of a ``progress.csv``, NaN for no number, and how many rows are damaged.

    Raises `ValueError` in one line for another file.
    """
    whole_rows = content[: content.rfind(b"\n") + 1].decode(errors="replace")
    reader = csv.reader(whole_rows.split("\n")[:-1])
    rows, n_damaged = [], 0
    try:
        names = [one_line(name, 100).strip() for name in next(reader, [])]
        for cells in reader:
            if len(cells) == len(names):
                rows.append([_number(cell) for cell in cells])
            else:
                n_damaged += 1
    except csv.Error as error:
        raise ValueError(one_line(error)) from error
    table = np.array(rows, np.float64).reshape(-1, max(1, len(names)))
    return dict(zip(names, table.T, strict=False)), n_damaged


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return math.nan


def parse_evaluations(content: bytes) -> Evaluations:
    """Return the evaluations of an ``evaluations.npz`` without those with NaN.

    Raises `ValueError` in one line for another file.
    """
    arrays = parse_arrays(content, ("timesteps", "results"))
    missing = [name for name in ("timesteps", "results") if name not in arrays]
    if missing:
        raise ValueError(f"it has no {' and no '.join(missing)}")
    timesteps, returns = arrays["timesteps"], arrays["results"]
    if returns.ndim == 1:
        returns = returns[:, None]
    rows = np.flatnonzero(np.isfinite(returns).all(axis=1))
    rows = rows[np.argsort(timesteps[rows], kind="stable")]
    return Evaluations(timesteps[rows], returns[rows])


# -- runs -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Episodes:
    """All training episodes of a run, in the order in which they ended."""

    ends: Array
    """Environment steps of the whole run until each ended."""
    returns: Array
    lengths: Array
    seconds: Array


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
        return one_line(shown(self.path.absolute()), 200)

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
        if self.status == "running":
            return "has not ended, or was killed"
        return self.status or "has no status"

    def episodes(self) -> Episodes | None:
        """Return the training episodes, or None if none has ended."""
        folder = self.path if self.is_sb3 else self.path / "monitor"
        names = sorted(name for name in _names_in(folder) if _is_monitor(name))
        prefix = "" if self.is_sb3 else "monitor/"
        monitors = []
        for name in names:
            monitor = self._read(f"{prefix}{name}", parse_monitor)
            if monitor is not None and monitor.n_damaged:
                self.problems[f"{prefix}{name}"] = f"{monitor.n_damaged:,} damaged rows are left out"
            if monitor is not None and len(monitor.returns):
                monitors.append(monitor)
        if not monitors:
            return None
        config = self.config or {}
        n_envs = int(
            (finite_number(config.get("n_envs")) or len(names)) * (finite_number(config.get("workers")) or 1)
        )
        return _merge_monitors(monitors, n_envs)

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
        returns = self.scored_returns(kind)
        if returns is not None:
            return float(returns.mean())
        recorded = self.record.get("evaluation") if kind != "train" else None
        return finite_number(recorded.get("mean_return")) if isinstance(recorded, Mapping) else None

    def scored_returns(self, kind: Score) -> Array | None:
        """Return the returns of the episodes whose mean `score` is."""
        if kind == "train":
            episodes = self.episodes()
            return None if episodes is None else episodes.returns[-LAST_EPISODES:]
        evaluations = self.evaluations()
        if evaluations is None:
            return None
        return evaluations.returns[int(evaluations.means.argmax()) if kind == "best" else -1]

    def timesteps(self) -> float | None:
        """Return how many environment steps the run took."""
        recorded = finite_number(self.record.get("timesteps"))
        if recorded is not None:
            return recorded
        episodes, evaluations = self.episodes(), self.evaluations()
        ends = [] if episodes is None else [episodes.ends[-1]]
        ends += [] if evaluations is None else [evaluations.timesteps[-1]]
        return float(max(ends)) if ends else None

    def seconds(self) -> float | None:
        """Return the seconds that the run took, as far as they were logged."""
        elapsed = self.progress().get(ELAPSED)
        if elapsed is not None and np.isfinite(elapsed).any():
            return float(np.nanmax(elapsed))
        episodes = self.episodes()
        return None if episodes is None else float(episodes.seconds.max())

    def _read(self, name: str, parse: Callable[[bytes], Read]) -> Read | None:
        """Return a file's parsed content; None if it is missing, or damaged (noted in ``problems``)."""
        if name not in self._contents:
            exists = (self.path / name).exists()
            self._contents[name] = _read_file(self.path, name, parse, self.problems) if exists else None
        found: Read | None = self._contents[name]
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
    algo, env = ((config or {}).get(section) for section in ("algo", "env"))
    algo_name = (algo.get("preset") or algo.get("name")) if isinstance(algo, Mapping) else None
    env_id = env.get("id") if isinstance(env, Mapping) else None
    parent, seed, status = path.absolute().parent, record.get("seed"), record.get("status")
    return Run(
        path,
        algo=one_line(algo_name or parent.parent.name or "?", 60),
        env=one_line(env_id or parent.name or "?", 60),
        seed=seed if isinstance(seed, int) else None,
        status=None if status is None else one_line(status, 20),
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
    name, parent = path.absolute().name, path.absolute().parent.name
    monitors = [run._read(file, parse_monitor) for file in sorted(filter(_is_monitor, _names_in(path)))]
    run.env = next((each.env_id for each in monitors if each is not None and each.env_id), "")
    has_seed = _SEED_AT_END.search(name)
    run.seed = int(name[re.search(r"\d+$", name).start() :]) if has_seed else None  # type: ignore[union-attr]
    without_seed = _SEED_AT_END.sub("", name)
    run.env = run.env or next((one_line(each) for each in (without_seed, parent) if _IS_ENV.search(each)), "")
    # In folders such as ppo/CartPole-v1_1 the environment's name says nothing about who trained there.
    is_env = bool(_IS_ENV.search(without_seed)) or without_seed == folder_name(run.env)
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
        text = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        problems[name] = one_line(text or type(error).__name__)
    return None


def _names_in(folder: Path) -> list[str]:
    return os.listdir(folder) if folder.is_dir() else []


def _merge_monitors(monitors: list[Monitor], n_envs: int) -> Episodes:
    """Merge the episodes of parallel environments: k steps of each are n_envs·k of the run."""
    first_start = min(monitor.t_start for monitor in monitors)
    ends = np.concatenate([np.cumsum(monitor.lengths) * n_envs for monitor in monitors])
    order = np.argsort(ends, kind="stable")
    seconds = np.concatenate([monitor.seconds + (monitor.t_start - first_start) for monitor in monitors])
    return Episodes(
        ends[order],
        np.concatenate([monitor.returns for monitor in monitors])[order],
        np.concatenate([monitor.lengths for monitor in monitors])[order],
        seconds[order],
    )


def problems_of(runs: Iterable[Run]) -> list[str]:
    """Return the problems of these runs, one line a file."""
    return [f"{run.name}/{name}: {problem}" for run in runs for name, problem in run.problems.items()]
