"""What the run folders of a sweep's jobs say: how far each is, how fast, and how good."""

from __future__ import annotations

import contextlib
import csv
import io
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoo.core.plain_data import parse_json, parse_yaml
from zoo.errors import ZooError

TAIL = 2**16
"""Bytes at the end of a log that are read for its last row."""


@dataclass(frozen=True)
class RunFacts:
    """What is known of a run; None where nothing is."""

    path: Path
    status: str | None
    error: str
    seed: int | None
    steps: int | None
    budget: int | None
    speed: float | None
    """Environment steps per second."""
    score: float | None
    """Mean return of the last evaluation, or, before the first, of the latest episodes."""
    best: float | None

    @property
    def seconds_left(self) -> float | None:
        """The time until the budget is used up, at the speed so far."""
        if not self.speed or self.steps is None or self.budget is None:
            return None
        return max(0.0, (self.budget - self.steps) / self.speed)


class RunsOfJobs:
    """The run folders below a sweep's, by the job that each says it belongs to."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._jobs: dict[Path, str] = {}
        self._budgets: dict[Path, int | None] = {}

    def by_job(self) -> dict[str, Path]:
        """Return the newest run of each job."""
        runs: dict[str, Path] = {}
        for folder in sorted(self._folders(), key=lambda folder: folder.name):
            if folder not in self._jobs:
                self._jobs[folder] = str(_json(folder, "run.json").get("job"))
            runs[self._jobs[folder]] = folder
        return runs

    def facts(self, folder: Path) -> RunFacts:
        """Return what a run says of itself."""
        if folder not in self._budgets:
            self._budgets[folder] = _whole(_yaml(folder, "config.yaml").get("n_timesteps"))
        record, progress = _json(folder, "run.json"), _last_row(folder)
        is_over = record.get("status") in ("finished", "failed", "preempted")
        evaluation = record.get("evaluation")
        final = _number(evaluation.get("mean_return")) if isinstance(evaluation, dict) else None
        if not is_over or final is None:
            shown = (progress.get(name) for name in ("eval/mean_reward", "rollout/ep_rew_mean"))
            so_far = next((each for each in map(_number, shown) if each is not None), None)
            final = so_far if so_far is not None else final
        logged, recorded = _whole(progress.get("time/total_timesteps")), _whole(record.get("timesteps"))
        return RunFacts(
            path=folder,
            status=record.get("status"),
            error=str(record.get("error") or ""),
            seed=_whole(record.get("seed")),
            steps=recorded if is_over and recorded is not None else logged,
            budget=self._budgets[folder],
            speed=_number(record.get("steps_per_second") if is_over else progress.get("time/fps")),
            score=final,
            best=_number(_json(folder, "best_agent/card.json").get("mean_return")),
        )

    def _folders(self) -> Iterator[Path]:
        for record in self.root.glob("*/*/*/run.json"):
            yield record.parent


def _json(folder: Path, name: str) -> dict[str, Any]:
    """Return what a file holds; nothing if there is none, or if it is damaged."""
    with contextlib.suppress(OSError, ValueError, ZooError):
        return parse_json((folder / name).read_bytes())
    return {}


def _yaml(folder: Path, name: str) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError, ZooError):
        return parse_yaml((folder / name).read_bytes())
    return {}


def _last_row(folder: Path) -> dict[str, str]:
    """Return the last value of each scalar in the last rows of a run's ``progress.csv``."""
    try:
        with open(folder / "progress.csv", "rb") as file:
            header = file.readline(TAIL).decode()
            file.seek(max(file.tell(), os.fstat(file.fileno()).st_size - TAIL))
            lines = file.read(TAIL).decode(errors="replace").split("\n")[:-1]
        columns, *rows = csv.reader(io.StringIO("\n".join([header.strip(), *lines])))
    except (OSError, ValueError, csv.Error, ZooError):
        return {}
    latest: dict[str, str] = {}
    for row in rows:
        if len(row) == len(columns):
            latest |= {name: value for name, value in zip(columns, row, strict=True) if value}
    return latest


def _number(value: Any) -> float | None:
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        number = float(value)
        return number if math.isfinite(number) else None
    return None


def _whole(value: Any) -> int | None:
    number = _number(value)
    return None if number is None or not abs(number) < 2**63 else int(number)
