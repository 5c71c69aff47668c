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

    @property
    def is_constant(self) -> bool:
        """Whether it is the same all along."""
        return self.type == "constant" or self.start == self.end

    def __call__(self, done: float) -> float:
        """Return the value when the fraction ``done`` of all environment steps has been taken."""
        position = min(1.0, max(0.0, done / self.fraction))
        return self.start + (self.end - self.start) * (1.0 - _REMAINING[self.type](1.0 - position))


def _double_linear_constant(remaining: float) -> float:
    return max(0.125, 1.0 - 2.0 * (1.0 - remaining))


def _middle_drop(remaining: float) -> float:
    return remaining if remaining >= 0.75 else 0.075


def _double_middle_drop(remaining: float) -> float:
    """Return Stable-Baselines' own numbers, of which the last is higher than the one before."""
    if remaining >= 0.75:
        return remaining
    return 0.075 if remaining >= 0.25 else 0.125


_REMAINING: dict[str, Callable[[float], float]] = {
    "constant": lambda remaining: 1.0,
    "linear": lambda remaining: remaining,
    "cosine": lambda remaining: 0.5 * (1.0 - math.cos(math.pi * remaining)),
    "double_linear_con": _double_linear_constant,
    "middle_drop": _middle_drop,
    "double_middle_drop": _double_middle_drop,
}

_SHORT = {"lin": "linear", "cos": "cosine", **{name: name for name in _REMAINING}}


def parse(value: float | str | Mapping[str, Any] | Schedule) -> Schedule:
    """Make a schedule of a number, of ``"lin_3e-4"`` (from that value to 0), or of ``{type, start, end}``.

    Types: constant, linear, cosine, and Stable-Baselines' double_linear_con, middle_drop and
    double_middle_drop. ``fraction`` ends the change after that part of training. Raises `ZooError`.
    """
    if isinstance(value, Schedule):
        return value
    if isinstance(value, str):
        return _parse_text(value)
    if isinstance(value, bool) or not isinstance(value, int | float | Mapping):
        raise ZooError(f"{value!r} is not a schedule; expected a number, `lin_3e-4` or {{type, start, end}}")
    if not isinstance(value, Mapping):
        return Schedule("constant", _finite(value, str(value)), float(value))
    unknown = set(value) - {"type", "start", "end", "fraction"}
    if unknown or "start" not in value:
        what = f"unknown key `{sorted(unknown)[0]}`" if unknown else "`start` is missing"
        raise ZooError(f"{what} in the schedule {dict(value)}; expected {{type, start, end}}")
    kind = _schedule_type(str(value.get("type", "linear")), str(dict(value)))
    numbers: dict[str, Any] = {"end": 0, "fraction": 1, **{key: value[key] for key in value if key != "type"}}
    for key, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise ZooError(f"`{key}` of the schedule {dict(value)} is not a number")
        _finite(number, str(dict(value)))
    if not 0 < numbers["fraction"] <= 1:
        raise ZooError(f"`fraction` of the schedule {dict(value)} must be more than 0 and at most 1")
    return Schedule(kind, float(numbers["start"]), float(numbers["end"]), float(numbers["fraction"]))


def parse_all(values: Mapping[str, Any]) -> dict[str, Schedule]:
    """Make schedules of hyperparameters by name; see `parse`. Raises `ZooError` that names the wrong one."""
    parsed = {}
    for name, value in values.items():
        try:
            parsed[name] = parse(value)
        except ZooError as error:
            raise ZooError(f"`algo.{name}`: {error}") from None
    return parsed


def _parse_text(text: str) -> Schedule:
    kind, separator, number = text.rpartition("_")
    try:
        start = _finite(float(number), text)
    except ValueError:
        raise ZooError(f"'{text}' is not a schedule; expected a number or, say, `lin_3e-4`") from None
    if not separator:
        return Schedule("constant", start, start)
    return Schedule(_schedule_type(kind, text), start, 0.0)


def _finite(number: float, text: str) -> float:
    if not math.isfinite(number):
        raise ZooError(f"a value of the schedule '{text}' is not a finite number")
    return float(number)


def _schedule_type(name: str, text: str) -> str:
    if name not in _SHORT:
        raise ZooError(f"unknown schedule '{name}' in '{text}'{nearest(name, _SHORT)}")
    return _SHORT[name]
