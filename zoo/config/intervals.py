"""Intervals that are given in environment steps or as a time."""

from __future__ import annotations

import re

from zoo.errors import ZooError

_MINUTES = {"s": 1 / 60, "sec": 1 / 60, "min": 1.0, "m": 1.0, "h": 60.0}


def minutes_of(interval: int | str | None, where: str = "callbacks.checkpoint.every") -> float | None:
    """Return the minutes in ``"10min"``, ``"90s"`` or ``"2h"``; None for steps, or no interval at all.

    Raises `ZooError` for any other text.
    """
    if not isinstance(interval, str):
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([a-z]+)", interval.strip())
    if match is None or match[2] not in _MINUTES or float(match[1]) == 0:
        raise ZooError(f"`{where}={interval}` is neither a number of steps nor a time: 10min, 90s, 2h")
    return float(match[1]) * _MINUTES[match[2]]
