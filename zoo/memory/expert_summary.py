"""What expert data hold, for people: a table, and a histogram of the returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from zoo.envs.spaces import describe
from zoo.files.printing import decimal, one_line
from zoo.memory.expert_data import ExpertData

N_BINS = 10
BAR_WIDTH = 40
BLOCKS = " ▏▎▍▌▋▊▉█"
"""Eighths of a character's width."""


def summary(data: ExpertData) -> str:
    """Return a table about the data, and under it the histogram of its returns."""
    rows = [
        ("environment", one_line(data.card.get("env") or "?")),
        ("source", _origin(data.card.get("source"))),
        ("observations", describe(data.observation_space)),
        ("actions", describe(data.action_space) + ("" if data.action_masks is None else ", with masks")),
        ("episodes", f"{data.n_episodes:,}, {data.n_steps:,} steps"),
        ("length", f"{data.lengths.min():,} to {data.lengths.max():,}, mean {data.lengths.mean():,.1f}"),
        ("return", f"{decimal(float(data.returns.mean()))} ± {decimal(float(data.returns.std()))}"),
    ]
    if data.successes is not None:
        rows.append(("successes", f"{data.successes.mean():.0%}"))
    if data.terminated is not None:
        rows.append(("cut short", f"{1 - data.terminated.mean():.0%}"))
    width = max(len(name) for name, _ in rows)
    table = [f"{name:<{width}}  {value}" for name, value in rows]
    return "\n".join([*table, "", "returns", *histogram(data.returns)])


def _origin(source: Any) -> str:
    if not isinstance(source, Mapping):
        return one_line(source or "?")
    return one_line(", ".join(f"{key} {one_line(value, 80)}" for key, value in source.items()), 1000) or "?"


def histogram(values: np.ndarray, n_bins: int = N_BINS) -> list[str]:
    """Return a line a bin: its bounds, a bar, and how many of the values are in it.

    Values that are all the same have one bin.
    """
    low, high = float(values.min()), float(values.max())
    if low == high:
        return [f"  {decimal(low)}  {_bar(1.0)}  {len(values):,}"]
    counts, edges = np.histogram(values, n_bins, (low, high))
    bounds = [decimal(float(edge)) for edge in edges]
    width = max(map(len, bounds))
    return [
        f"  {bounds[i]:>{width}} … {bounds[i + 1]:>{width}}  {_bar(count / counts.max())}  {count:,}".rstrip()
        for i, count in enumerate(counts.tolist())
    ]


def _bar(share: float) -> str:
    whole, eighths = divmod(round(8 * BAR_WIDTH * share), 8)
    return ("█" * whole + (BLOCKS[eighths] if eighths else "")).ljust(BAR_WIDTH)
