"""One run as data: who trained what, how it ended, and its episodes, evaluations and logged scalars."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from zoo.config.paths import shown
from zoo.envs.registry import folder_name
from zoo.errors import ZooError
from zoo.files.damaged import UNREADABLE
from zoo.files.plain_data import parse_json, parse_yaml
from zoo.files.printing import one_line
from zoo.plots.finding import EVALUATIONS, RECORD, is_monitor
from zoo.plots.run_files import (
    RETURN_LIMIT,
    Evaluations,
    Monitor,
    parse_evaluations,
    parse_monitor,
    parse_progress,
)

Array = NDArray[np.float64]
Score = Literal["final", "best", "train"]
Read = TypeVar("Read")

LAST_EPISODES = 100
"""Episodes at the end of a training of which ``score=train`` is the mean."""

ELAPSED = "time/time_elapsed"
STEPS = "time/total_timesteps"

_IS_ENV = re.compile(r"-v\d+$")
_SEED_AT_END = re.compile(r"(?:^|[-_.])(?:seed|run|s)?[-_=]?\d+$", re.IGNORECASE)


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
    """A run's folder. Files are read when they are asked for; what is wrong with them is in ``problems``."""

    path: Path
    algo: str
    """Name or preset; of a peer's run, a name made from its folder."""
    env: str
    seed: int | None = None
    status: str | None = None
    """``running``, ``finished``, ``failed`` or ``preempted``; None for a peer's run."""
    config: dict[str, Any] | None = None
    record: dict[str, Any] = field(default_factory=dict)
    is_peer: bool = False
    problems: dict[str, str] = field(default_factory=dict)
    """By file, what is wrong with it, in one line."""
    _contents: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        """The path as it is shown to people."""
        return one_line(shown(self.path.absolute()), 200)

    @property
    def is_whole(self) -> bool:
        """Whether the run has come to its end; a trial of a study that was pruned has not."""
        return self.is_peer or (self.status == "finished" and not self._is_pruned)

    @property
    def _is_pruned(self) -> bool:
        return str(self.record.get("stop_reason") or "").startswith("pruned ")

    @property
    def ending(self) -> str:
        """How the run ended, for one that is not whole."""
        if self.status == "failed":
            return f"failed: {one_line(self.record.get('error') or 'no reason recorded', 120)}"
        if self._is_pruned:
            return "was pruned"
        if self.status == "running":
            return "has not ended, or was killed"
        return self.status or "has no status"

    def episodes(self) -> Episodes | None:
        """Return the training episodes, or None if none has ended."""
        folder = self.path if self.is_peer else self.path / "monitor"
        names = sorted(name for name in _names_in(folder) if is_monitor(name))
        prefix = "" if self.is_peer else "monitor/"
        monitors = []
        for name in names:
            monitor = self._read(f"{prefix}{name}", parse_monitor)
            if monitor is not None and monitor.n_damaged:
                self.problems[f"{prefix}{name}"] = f"{monitor.n_damaged:,} damaged rows are left out"
            if monitor is not None and len(monitor.returns):
                monitors.append(monitor)
        return _merged(monitors, self._n_envs(len(names))) if monitors else None

    def progress(self) -> dict[str, Array]:
        """Return the logged scalars by name; nothing for a run without ``progress.csv``."""
        read = self._read("progress.csv", parse_progress)
        if read is None:
            return {}
        columns, n_damaged = read
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
        if evaluations is not None:
            return float(evaluations.means.max() if kind == "best" else evaluations.means[-1])
        recorded = self.record.get("evaluation")
        score = number(recorded.get("mean_return")) if isinstance(recorded, Mapping) else None
        return score if score is not None and abs(score) < RETURN_LIMIT else None

    def scored_returns(self, kind: Score) -> Array | None:
        """Return the episodes whose mean `score` is."""
        if kind == "train":
            episodes = self.episodes()
            return None if episodes is None else episodes.returns[-LAST_EPISODES:]
        evaluations = self.evaluations()
        if evaluations is None:
            return None
        row = int(evaluations.means.argmax()) if kind == "best" else -1
        return evaluations.returns[row]

    def timesteps(self) -> float | None:
        """Return how many environment steps the run took."""
        recorded = number(self.record.get("timesteps"))
        if recorded is not None:
            return recorded
        episodes, evaluations = self.episodes(), self.evaluations()
        ends = [] if episodes is None else [episodes.ends[-1]]
        ends += [] if evaluations is None else [evaluations.timesteps[-1]]
        return float(max(ends)) if ends else None

    def seconds(self) -> float | None:
        """Return how long the run took, as far as it was logged."""
        elapsed = self.progress().get(ELAPSED)
        if elapsed is not None and np.isfinite(elapsed).any():
            return float(np.nanmax(elapsed))
        episodes = self.episodes()
        return None if episodes is None else float(episodes.seconds.max())

    def _read(self, name: str, parse: Callable[[bytes], Read]) -> Read | None:
        """Return what a file holds; None if there is none, or, with the reason noted, if it is damaged."""
        if name not in self._contents:
            self._contents[name] = None
            try:
                self._contents[name] = parse((self.path / name).read_bytes())
            except FileNotFoundError:
                pass
            except (ZooError, *UNREADABLE) as error:
                self.problems[name] = _reason(error, name)
        found: Read | None = self._contents[name]
        return found

    def forget(self) -> None:
        """Let go of what the files hold; it is read again when it is asked for."""
        self._contents.clear()

    def _n_envs(self, n_files: int) -> int:
        """Return how many environments took steps side by side, in all workers."""
        config = self.config or {}
        configured, workers = number(config.get("n_envs")), number(config.get("workers", 1))
        if configured is None or workers is None or not 1 <= configured * workers < 1e6:
            return n_files
        return int(configured * workers)


def read_run(path: Path) -> Run:
    """Return the run in a folder; a damaged record or config is among its problems."""
    if not (path / RECORD).is_file():
        return _peer(path)
    problems: dict[str, str] = {}
    record = _values(path, RECORD, parse_json, problems) or {}
    config = _values(path, "config.yaml", parse_yaml, problems)
    algo, env = (config or {}).get("algo"), (config or {}).get("env")
    preset_or_name = (algo.get("preset") or algo.get("name")) if isinstance(algo, Mapping) else None
    env_id = env.get("id") if isinstance(env, Mapping) else None
    absolute = path.absolute()
    seed, status = record.get("seed"), record.get("status")
    return Run(
        path,
        algo=one_line(preset_or_name or absolute.parent.parent.name or "?", 60),
        env=one_line(env_id or absolute.parent.name or "?", 60),
        seed=seed if isinstance(seed, int) and not isinstance(seed, bool) and abs(seed) < 2**64 else None,
        status=one_line(status, 20) if isinstance(status, str) else None,
        config=config,
        record=record,
        problems=problems,
    )


def number(value: Any) -> float | None:
    """Return a value as a number if it is a finite one."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e300:
        return None
    return float(value)


def _peer(path: Path) -> Run:
    """Return a run of Stable-Baselines3's files; its monitor names the environment, its folder the rest."""
    run = Run(path, algo="", env="", is_peer=True)
    name, parent = path.absolute().name, path.absolute().parent.name
    for file in sorted(filter(is_monitor, _names_in(path))):
        monitor = run._read(file, parse_monitor)
        if monitor is not None and monitor.env_id:
            run.env = monitor.env_id
            break
    run.seed = _seed_in(name)
    without_seed = _SEED_AT_END.sub("", name)
    run.env = run.env or next((one_line(each) for each in (without_seed, parent) if _IS_ENV.search(each)), "")
    # In folders such as ppo/CartPole-v1_1 the environment's name says nothing about who trained there.
    is_env = bool(_IS_ENV.search(without_seed)) or without_seed == folder_name(run.env)
    run.algo = one_line(parent if is_env or not without_seed else without_seed, 60) or "?"
    return run


def _seed_in(name: str) -> int | None:
    match = _SEED_AT_END.search(name)
    digits = re.search(r"\d{1,9}$", name) if match else None
    return int(digits.group()) if digits else None


def _values(
    path: Path, name: str, parse: Callable[[bytes], dict[str, Any]], problems: dict[str, str]
) -> dict[str, Any] | None:
    try:
        return parse((path / name).read_bytes())
    except FileNotFoundError:
        problems[name] = "is missing"
        return None
    except (ZooError, *UNREADABLE) as error:
        problems[name] = _reason(error, name)
        return None


def _reason(error: Exception, name: str) -> str:
    text = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
    return one_line(text.removeprefix(f"{name}: ").removeprefix(f"{name} ") or type(error).__name__)


def _names_in(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _merged(monitors: list[Monitor], n_envs: int) -> Episodes:
    """Return the episodes of environments side by side: k steps of each are n_envs·k of the run."""
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
    """Return what is wrong with the files of these runs, one line a file."""
    return [f"{run.name}/{name}: {problem}" for run in runs for name, problem in run.problems.items()]
