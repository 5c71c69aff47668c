"""One hyperparameter of a search space: what a sampler is asked for, and the value that this stands for.

A sampler may be asked for something else than the value where that is easier to model: for the exponent of
a power, or for what is missing to 1. Its parameter is called so: ``log2 algo.n_steps``, ``1 - algo.gamma``.
"""

from __future__ import annotations

import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Any

from zoo.config.fields import build, hyperparameter
from zoo.errors import ZooError, nearest
from zoo.files.printing import one_line

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import Trial

Lookup = Callable[[str], Any]
"""Returns the value of a setting of the trial by its path."""

Parameters = dict[str, Any]
"""What a sampler draws, by the names that it knows them by."""

SCHEDULES = ("constant", "linear")
SIGNIFICANT_DIGITS = 4


class Dimension(ABC):
    """How the value at one place of the config is found."""

    @abstractmethod
    def distributions(self, path: str) -> dict[str, BaseDistribution]:
        """Return what a sampler draws, by name. Raises `ValueError` for bounds that don't go together."""

    @abstractmethod
    def value(self, path: str, drawn: Mapping[str, Any], lookup: Lookup) -> Any:
        """Return the value that was drawn."""

    @abstractmethod
    def parameters(self, path: str, value: Any) -> Parameters | None:
        """Return what would have to be drawn to get ``value``; None if it can't be."""

    @abstractmethod
    def extremes(self, path: str) -> list[Parameters]:
        """Return draws whose values, if they are allowed, all are."""

    def needed(self) -> list[str]:
        """Return the settings that `value` looks up, which have to be known before."""
        return []

    def described(self) -> str:
        """Return what stands in a space for it, without what is usual."""
        kind = next(name for name, each in KINDS.items() if isinstance(self, each))
        usual = {each.name: each.default for each in fields(self)}  # type: ignore[arg-type]
        own = {
            key: value for key, value in vars(self).items() if usual[key] is MISSING or value != usual[key]
        }
        return (
            "{" + ", ".join(f"{key}: {_written(each)}" for key, each in {"type": kind, **own}.items()) + "}"
        )

    def suggest(self, path: str, trial: Trial, lookup: Lookup) -> Any:
        """Let the sampler of a trial draw, and return the value."""
        drawn = {name: _drawn(trial, name, each) for name, each in self.distributions(path).items()}
        return self.value(path, self.checked(path, drawn), lookup)

    def checked(self, path: str, parameters: Mapping[str, Any]) -> Parameters:
        """Return what of these parameters is drawn here, as this dimension draws it.

        Raises `ZooError` for what is missing, and for what no sampler can have drawn: a study holds whatever
        those have written who can write into its storage.
        """
        found: Parameters = {}
        for name, distribution in self.distributions(path).items():
            if name not in parameters:
                raise ZooError(f"it has no `{name}`")
            found[name] = _as_drawn(distribution, parameters[name])
            if found[name] is _OUTSIDE:
                shown = one_line(repr(parameters[name]), 60)
                raise ZooError(f"its `{name}` is {shown}, which this space can't draw")
        return found

    def can_draw(self, path: str, parameters: Mapping[str, Any]) -> bool:
        """Tell whether all of these parameters that are drawn here can be."""
        return not any(
            name in parameters and _as_drawn(distribution, parameters[name]) is _OUTSIDE
            for name, distribution in self.distributions(path).items()
        )


_OUTSIDE: Any = object()


def _as_drawn(distribution: Any, value: Any) -> Any:
    """Return the value as the distribution has it, `_OUTSIDE` if it can't be drawn."""
    try:
        inner = distribution.to_internal_repr(value)
        if not hasattr(distribution, "choices"):  # a logarithm and back may be a hair beyond the bounds
            low, high = distribution.low, distribution.high
            hair = 1e-9 * max(abs(low), abs(high))
            inner = min(max(inner, low), high) if low - hair <= inner <= high + hair else math.nan
        return distribution.to_external_repr(inner) if distribution._contains(inner) else _OUTSIDE
    except (ArithmeticError, ValueError, TypeError):
        return _OUTSIDE


def _drawn(trial: Trial, name: str, distribution: Any) -> Any:
    if hasattr(distribution, "choices"):
        return trial.suggest_categorical(name, distribution.choices)
    bounds = {"low": distribution.low, "high": distribution.high, "step": distribution.step}
    suggest = trial.suggest_int if isinstance(distribution.low, int) else trial.suggest_float
    return suggest(name, log=distribution.log, **bounds)


@dataclass
class FloatDimension(Dimension):
    """A number; four digits of it are kept."""

    low: float = hyperparameter(help="smallest value")
    high: float = hyperparameter(help="largest value")
    log: bool = hyperparameter(False, "evenly in its logarithm")
    step: float | None = hyperparameter(None, "distance of neighbouring values", gt=0)
    complement: bool = hyperparameter(False, "draw what is missing to 1")
    schedules: list[str] | None = hyperparameter(
        None, "as a constant, or linear: falling from the value to 0", choices=None
    )

    def distributions(self, path: str) -> dict[str, BaseDistribution]:
        from optuna.distributions import CategoricalDistribution, FloatDistribution

        if self.complement and self.high >= 1 and self.log:
            raise ValueError(f"high={self.high:g}, expected less than 1 with log and complement")
        low, high = (1 - self.high, 1 - self.low) if self.complement else (self.low, self.high)
        found: dict[str, BaseDistribution] = {
            self._name(path): FloatDistribution(low, high, log=self.log, step=self.step)
        }
        if self.schedules is not None:
            unknown = [each for each in self.schedules if each not in SCHEDULES]
            if unknown or not self.schedules:
                raise ValueError(f"schedules={self.schedules}, expected some of {', '.join(SCHEDULES)}")
            found[f"{path} schedule"] = CategoricalDistribution(self.schedules)
        return found

    def value(self, path: str, drawn: Mapping[str, Any], lookup: Lookup) -> Any:
        number = float(f"{drawn[self._name(path)]:.{SIGNIFICANT_DIGITS}g}")
        if self.complement:
            number = round(1 - number, 12)
        number = min(max(number, self.low), self.high)
        is_linear = drawn.get(f"{path} schedule") == "linear"
        return f"lin_{number:g}" if is_linear else number

    def parameters(self, path: str, value: Any) -> Parameters | None:
        number, schedule = _as_scheduled(value)
        if number is None or not self.low <= number <= self.high:
            return None
        found: Parameters = {self._name(path): 1 - number if self.complement else number}
        if self.schedules is None:
            return found if schedule == "constant" else None
        return found | {f"{path} schedule": schedule} if schedule in self.schedules else None

    def extremes(self, path: str) -> list[Parameters]:
        ends = [1 - each if self.complement else each for each in (self.low, self.high)]
        if self.schedules is None:
            return [{self._name(path): end} for end in ends]
        return [
            {self._name(path): end, f"{path} schedule": schedule}
            for end in ends
            for schedule in self.schedules
        ]

    def _name(self, path: str) -> str:
        return f"1 - {path}" if self.complement else path


@dataclass
class IntDimension(Dimension):
    """A whole number; with ``powers_of`` a power of that base."""

    low: int = hyperparameter(help="smallest value")
    high: int = hyperparameter(help="largest value")
    log: bool = hyperparameter(False, "evenly in its logarithm")
    step: int = hyperparameter(1, "distance of neighbouring values", ge=1)
    powers_of: int | None = hyperparameter(None, "only powers of this number", ge=2)
    at_most: list[Any] | None = hyperparameter(
        None, "settings and numbers whose product the value never exceeds: [algo.n_steps, n_envs]"
    )

    def distributions(self, path: str) -> dict[str, BaseDistribution]:
        from optuna.distributions import IntDistribution

        if self.powers_of is None:
            return {path: IntDistribution(self.low, self.high, log=self.log, step=self.step)}
        low, high = (_exponent(each, self.powers_of) for each in (self.low, self.high))
        if low is None or high is None:
            raise ValueError(f"low={self.low} and high={self.high} are not both powers of {self.powers_of}")
        return {self._name(path): IntDistribution(low, high)}

    def value(self, path: str, drawn: Mapping[str, Any], lookup: Lookup) -> int:
        number = int(drawn[self._name(path)])
        bound = math.inf
        if self.at_most is not None:
            bound = math.prod(lookup(each) if isinstance(each, str) else each for each in self.at_most)
        if self.powers_of is None:
            return number if number <= bound else max(1, int(bound))
        while number > 0 and self.powers_of**number > bound:
            number -= 1
        return int(self.powers_of**number)

    def parameters(self, path: str, value: Any) -> Parameters | None:
        if isinstance(value, bool) or not isinstance(value, int) or not self.low <= value <= self.high:
            return None
        if self.powers_of is None:
            return {path: value} if (value - self.low) % self.step == 0 else None
        exponent = _exponent(value, self.powers_of)
        return None if exponent is None else {self._name(path): exponent}

    def extremes(self, path: str) -> list[Parameters]:
        if self.powers_of is None:
            return [{path: self.low}, {path: self.high}]
        return [{self._name(path): _exponent(each, self.powers_of)} for each in (self.low, self.high)]

    def needed(self) -> list[str]:
        return [each for each in self.at_most or () if isinstance(each, str)]

    def _name(self, path: str) -> str:
        return path if self.powers_of is None else f"log{self.powers_of} {path}"


@dataclass
class CategoricalDimension(Dimension):
    """One of several values; those that are no plain ones have names."""

    choices: list[Any] | dict[str, Any] = hyperparameter(help="values, or names of values")

    def distributions(self, path: str) -> dict[str, BaseDistribution]:
        from optuna.distributions import CategoricalDistribution

        if not self.choices:
            raise ValueError("it has no choices")
        compound = [each for each in self.choices if isinstance(each, list | dict)]
        if compound:
            raise ValueError(f"its choice {compound[0]} needs a name: choices: {{small: {compound[0]}}}")
        return {path: CategoricalDistribution(list(self.choices))}

    def value(self, path: str, drawn: Mapping[str, Any], lookup: Lookup) -> Any:
        chosen = drawn[path]
        return self.choices[chosen] if isinstance(self.choices, dict) else chosen

    def parameters(self, path: str, value: Any) -> Parameters | None:
        named = (
            self.choices.items() if isinstance(self.choices, dict) else zip(*[self.choices] * 2, strict=True)
        )
        for name, choice in named:
            if choice == value and isinstance(choice, bool) == isinstance(value, bool):
                return {path: name}
        return None

    def extremes(self, path: str) -> list[Parameters]:
        return [{path: each} for each in self.choices]


@dataclass
class FixedDimension(Dimension):
    """The same value in every trial."""

    only: Any

    def described(self) -> str:
        return json.dumps(self.only)

    def distributions(self, path: str) -> dict[str, BaseDistribution]:
        return {}

    def value(self, path: str, drawn: Mapping[str, Any], lookup: Lookup) -> Any:
        return self.only

    def parameters(self, path: str, value: Any) -> Parameters | None:
        return {} if value == self.only else None

    def extremes(self, path: str) -> list[Parameters]:
        return [{}]


KINDS: dict[str, type[Any]] = {
    "float": FloatDimension,
    "int": IntDimension,
    "categorical": CategoricalDimension,
}
"""The kinds of dimension by their ``type``."""


def is_dimension(values: Any) -> bool:
    """Tell whether this part of a space is one hyperparameter, not a section of several."""
    return not isinstance(values, Mapping) or isinstance(values.get("type"), str) or _lacks_type(values)


def dimension_of(path: str, values: Any, others: Iterable[str] = ()) -> Dimension:
    """Make a dimension from what stands in a space; ``others`` are what one without a type may be meant for.

    Raises `ZooError` for what it does not take.
    """
    where = f"space.{path}"
    if not isinstance(values, Mapping):
        return FixedDimension(values)
    if _lacks_type(values):
        raise ZooError(f"`{where}` has no type{nearest(path, others)} (types: {', '.join(KINDS)})")
    kind = values["type"]
    if kind not in KINDS:
        raise ZooError(f"`{where}.type={kind}` is not one of {', '.join(KINDS)}{nearest(kind, KINDS)}")
    dimension = build(KINDS[kind], _of_its_kind(values), where)
    try:
        dimension.distributions(path)
    except ValueError as error:
        raise ZooError(f"`{where}`: {' '.join(str(error).split())}") from error
    return dimension


def _of_its_kind(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values without what only other kinds have.

    A dimension that the command line writes anew is laid over that of the file, which may be of another kind.
    """
    own = {field.name for field in fields(KINDS[values["type"]])}
    others = {field.name for kind in KINDS.values() for field in fields(kind)} - own
    return {key: value for key, value in values.items() if key != "type" and key not in others}


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _lacks_type(values: Mapping[str, Any]) -> bool:
    is_leaf = "choices" in values or "low" in values or "high" in values
    return is_leaf and "type" not in values


def _exponent(value: int, base: int) -> int | None:
    """Return the logarithm of a power of ``base``, None for any other number."""
    exponent = 0
    while value > 1 and value % base == 0:
        value //= base
        exponent += 1
    return exponent if value == 1 else None


def _as_scheduled(value: Any) -> tuple[float | None, str]:
    """Return a number and whether it is constant, or linear: falls to 0; no number for anything else."""
    if isinstance(value, bool):
        return None, "constant"
    if isinstance(value, int | float):
        return float(value), "constant"
    match = re.fullmatch(r"lin_([0-9.e+-]+)", value) if isinstance(value, str) else None
    try:
        return (float(match[1]), "linear") if match else (None, "constant")
    except ValueError:
        return None, "constant"
