"""Numbers of environment steps, and intervals that are given in these or as a time."""

from __future__ import annotations

import math
import numbers
import re
from typing import Any

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


def whole_steps(value: Any, where: str = "total_timesteps") -> int:
    """Return a number of environment steps, which may be written ``1e6``. Raises `ZooError` for all else."""
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value):
        raise ZooError(f"`{where}={value!r}` is not a number of environment steps")
    if value < 0:
        raise ZooError(f"`{where}={value}` is out of range; expected at least 0")
    return int(value)
