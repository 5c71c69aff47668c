"""What a run's files hold, as arrays: monitors, ``progress.csv`` and ``evaluations.npz``, whoever wrote them.

No pickle is read, and a row that is none is left out. Each
function raises `ValueError` in one line for a file that can't be read at all.
"""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zoo.files.plain_data import parse_json
from zoo.files.printing import one_line
from zoo.files.zips import parse_arrays

Array = NDArray[np.float64]

COLUMNS_LIMIT = 5_000
RETURN_LIMIT = 1e100
"""Returns beyond this are no measurement, and their squares and sums would be infinite."""

_HEADER_LIMIT = 10_000


@dataclass(frozen=True)
class Monitor:
    """The episodes of one environment, in the order in which they ended."""

    returns: Array
    lengths: Array
    seconds: Array
    """Since the monitor's start, at which ``t_start`` is the time."""
    t_start: float
    env_id: str
    n_damaged: int


@dataclass(frozen=True)
class Evaluations:
    """Evaluations in the order of their steps; a row of returns (n_evaluations, n_episodes) is one."""

    timesteps: Array
    returns: Array
    lengths: Array | None
    successes: Array | None

    @property
    def means(self) -> Array:
        """The mean return of each evaluation."""
        means: Array = self.returns.mean(axis=1)
        return means


def parse_monitor(content: bytes) -> Monitor:
    """Return the episodes of a ``monitor.csv``; a row that is still being written is left out."""
    head, _, rest = content.partition(b"\n")
    start: dict[str, Any] = {}
    if head.startswith(b"#"):
        start = parse_json(head[1:].decode(errors="replace"))
        head, _, rest = rest.partition(b"\n")
    if len(head) > _HEADER_LIMIT:
        raise ValueError("its first line is too long for names of columns")
    names = [name.strip() for name in next(csv.reader([head.decode(errors="replace")]), [])]
    missing = [name for name in ("r", "l", "t") if name not in names]
    if missing:
        raise ValueError(f"it has no column {', '.join(missing)}")
    whole_rows = rest[: rest.rfind(b"\n") + 1]
    rows, n_damaged = _numbers(whole_rows, len(names), [names.index(name) for name in ("r", "l", "t")])
    is_episode = (np.abs(rows) < RETURN_LIMIT).all(axis=1) & (rows[:, 1] > 0)
    n_damaged += int((~is_episode).sum())
    returns, lengths, seconds = rows[is_episode].T
    t_start = start.get("t_start")
    is_time = isinstance(t_start, int | float) and abs(t_start) < 1e12
    return Monitor(
        returns,
        lengths,
        seconds,
        float(t_start or 0) if is_time else 0.0,
        one_line(start.get("env_id") or "", 80),
        n_damaged,
    )


def _numbers(content: bytes, n_columns: int, columns: list[int]) -> tuple[Array, int]:
    """Return these columns of a CSV text as numbers (n_rows, …), and how many rows are none."""
    if not content.strip():
        return np.empty((0, len(columns))), 0
    try:
        table = np.loadtxt(
            io.BytesIO(content), delimiter=",", usecols=columns, ndmin=2, comments=None, quotechar='"'
        )
        return table, 0
    except (ValueError, IndexError):
        return _numbers_row_by_row(content, n_columns, columns)


def _numbers_row_by_row(content: bytes, n_columns: int, columns: list[int]) -> tuple[Array, int]:
    rows, n_damaged = [], 0
    for line in content.split(b"\n"):
        if not line.strip():
            continue
        try:
            (cells,) = csv.reader([line.decode()])
            if len(cells) != n_columns:
                raise ValueError("other columns")
            rows.append([float(cells[column]) for column in columns])
        except (ValueError, csv.Error):
            n_damaged += 1
    return np.array(rows, np.float64).reshape(-1, len(columns)), n_damaged


def parse_progress(content: bytes) -> tuple[dict[str, Array], int]:
    """Return the columns of a ``progress.csv``, NaN for no value, and how many rows are damaged."""
    whole_rows = content[: content.rfind(b"\n") + 1].decode(errors="replace")
    reader = csv.reader(whole_rows.splitlines())
    rows, n_damaged = [], 0
    try:
        names = [one_line(name, 100) for name in next(reader, [])]
        if len(names) > COLUMNS_LIMIT:
            raise ValueError(f"it has {len(names):,} columns")
        for cells in reader:
            if len(cells) == len(names):
                rows.append([_number(cell) for cell in cells])
            else:
                n_damaged += 1
    except csv.Error as error:
        raise ValueError(one_line(error)) from error
    if not names:
        return {}, 0
    table = np.array(rows, np.float64).reshape(-1, len(names))
    return dict(zip(names, table.T, strict=True)), n_damaged


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return math.nan


def parse_evaluations(content: bytes) -> Evaluations:
    """Return what an ``evaluations.npz`` holds; evaluations with a return that is none are left out."""
    arrays = parse_arrays(content, ("timesteps", "results", "ep_lengths", "successes"))
    missing = [name for name in ("timesteps", "results") if name not in arrays]
    if missing:
        raise ValueError(f"it has no {' and no '.join(missing)}")
    timesteps, returns = arrays["timesteps"], arrays["results"]
    if returns.ndim == 1:
        returns = returns[:, None]
    if timesteps.ndim != 1 or returns.ndim != 2 or len(returns) != len(timesteps) or not returns.size:
        raise ValueError(
            f"timesteps {list(timesteps.shape)} and results {list(returns.shape)} don't fit together"
        )
    others = [arrays.get(name) for name in ("ep_lengths", "successes")]
    lengths, successes = (
        array if array is not None and array.shape == returns.shape else None for array in others
    )
    rows = np.flatnonzero(np.isfinite(timesteps) & (np.abs(returns) < RETURN_LIMIT).all(axis=1))
    rows = rows[np.argsort(timesteps[rows], kind="stable")]
    return Evaluations(
        timesteps[rows],
        returns[rows],
        None if lengths is None else lengths[rows],
        None if successes is None else successes[rows],
    )
