"""Values that change as training goes on: learning rates, clip ranges, exploration rates."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from zoo.errors import ZooError, nearest


@dataclass(frozen=True)
class Schedule:
    """A value as a function of the fraction of training that is done, from 0 at the start to 1 at the end."""

    type: str
    start: float
    end: float
    fraction: float = 1.0

    def __call__(self, done: float) -> float:
        """Return the value when the fraction ``done`` of all environment steps has been taken."""
        position = min(1.0, max(0.0, done / self.fraction))
        return self.start + (self.end - self.start) * (1.0 - _REMAINING[self.type](1.0 - position))


def _middle_drop(remaining: float) -> float:
    return remaining if remaining >= 0.75 else 0.075


_REMAINING: dict[str, Callable[[float], float]] = {
    "constant": lambda remaining: 1.0,
    "linear": lambda remaining: remaining,
    "cosine": lambda remaining: 0.5 * (1.0 - math.cos(math.pi * remaining)),
    "double_linear_con": lambda remaining: max(0.125, 1.0 - 2.0 * (1.0 - remaining)),
    "middle_drop": _middle_drop,
    # These are Stable-Baselines' own numbers, of which the last is higher than the one before.
    "double_middle_drop": lambda remaining: 0.125 if remaining < 0.25 else _middle_drop(remaining),
}

_SHORT = {"lin": "linear", "cos": "cosine", **{name: name for name in _REMAINING}}


def parse(value: float | str | Mapping[str, Any]) -> Schedule:
    """Make a schedule of a number, of ``"lin_3e-4"`` (from that value to 0), or of ``{type, start, end}``.

    Types: constant, linear, cosine, and Stable-Baselines' double_linear_con, middle_drop and
    double_middle_drop. ``fraction`` ends the change after that part of training. Raises `ZooError`.
    """
    text, fields = str(value), value
    if isinstance(value, str):
        kind, separator, number = value.rpartition("_")
        try:
            start = float(number)
        except ValueError:
            raise ZooError(f"'{text}' is not a schedule; expected a number or, say, `lin_3e-4`") from None
        fields = {"type": kind, "start": start} if separator else start
    if _is_number(fields):
        fields = {"type": "constant", "start": fields, "end": fields}
    if not isinstance(fields, Mapping):
        raise ZooError(f"{value!r} is not a schedule; expected a number, `lin_3e-4` or {{type, start, end}}")
    values = {"type": "linear", "end": 0.0, "fraction": 1.0, **fields}
    unknown = values.keys() - {"type", "start", "end", "fraction"}
    if unknown or "start" not in values:
        problem = f"unknown key `{sorted(unknown)[0]}`" if unknown else "`start` is missing"
        raise ZooError(f"{problem} in the schedule {text}; expected {{type, start, end}}")
    kind = str(values["type"])
    if kind not in _SHORT:
        raise ZooError(f"unknown schedule '{kind}' in '{text}'{nearest(kind, _SHORT)}")
    numbers = {name: values[name] for name in ("start", "end", "fraction")}
    for name, number in numbers.items():
        if not _is_number(number) or not math.isfinite(number):
            raise ZooError(f"`{name}` of the schedule '{text}' is not a finite number")
    if not 0 < values["fraction"] <= 1:
        raise ZooError(f"`fraction` of the schedule '{text}' must be more than 0 and at most 1")
    return Schedule(_SHORT[kind], **{name: float(number) for name, number in numbers.items()})


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
