"""What is searched: how each hyperparameter's value is found, held against what the algorithm allows.

A sampler may be asked for something else than the value where that is easier to model: for the exponent of
a power, or for what is missing to 1. Its parameter is called so: ``log2 algo.n_steps``, ``1 - algo.gamma``.
"""

from __future__ import annotations

import copy
import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from itertools import product
from typing import TYPE_CHECKING, Any

from zoo.config.compose import SEARCHABLE
from zoo.config.fields import build, hyperparameter
from zoo.config.validate import checked
from zoo.core.plain_data import value_at
from zoo.errors import ZooError, nearest

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import Trial

Config = dict[str, Any]
"""A config of `zoo train`."""

Values = dict[str, Any]
"""Values of a trial by their place in the config: ``{"algo.gamma": 0.99}``."""

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

    def extremes(self, path: str) -> list[Parameters]:
        """Return draws whose values, if they are allowed, all are."""
        names = self.distributions(path)
        return [dict(zip(names, ends, strict=True)) for ends in product(*map(_ends, names.values()))]

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
        return self.value(path, drawn, lookup)


def _ends(distribution: Any) -> Sequence[Any]:
    is_choice = hasattr(distribution, "choices")
    return distribution.choices if is_choice else (distribution.low, distribution.high)


def _can_draw(distribution: Any, value: Any) -> bool:
    if hasattr(distribution, "choices"):
        return value in distribution.choices
    return isinstance(value, int | float) and bool(distribution.low <= value <= distribution.high)


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


class Space:
    """The dimensions by their place in the config; ``left_out`` are places that the user has set instead."""

    def __init__(self, values: Mapping[str, Any], fixed: Iterable[str] = ()) -> None:
        flat = dict(_flat(values, ""))
        self.taken_away = [path for path, each in flat.items() if each is None]
        given = {path: each for path, each in flat.items() if each is not None}
        typed = [path for path, each in given.items() if isinstance(each, Mapping) and "type" in each]
        found = {path: dimension_of(path, each, typed) for path, each in given.items()}
        fixed = list(fixed)
        self.left_out = [path for path in found if any(_overlap(path, each) for each in fixed)]
        kept = {path: each for path, each in found.items() if path not in self.left_out}
        self.dimensions = {path: kept[path] for path in _in_order(kept)}

    def check(self, base: Config) -> None:
        """Raise `ZooError` unless the algorithm of ``base`` takes every value at the edge of the space."""
        if not any(each.distributions(path) for path, each in self.dimensions.items()):
            raise ZooError("the space is empty: there is nothing to search for")
        for path in self.dimensions:
            if not path.startswith(SEARCHABLE):
                known = ", ".join(f"{each}…" for each in SEARCHABLE)
                raise ZooError(f"`space.{path}` can't be searched; expected one of {known}")
        for path in self.taken_away:
            section, _, key = path.rpartition(".")
            siblings = value_at(base, section) if section else base
            if isinstance(siblings, Mapping) and key not in siblings:
                raise ZooError(f"unknown key `space.{path}`{nearest(key, map(str, siblings))}")
        first = {path: each.extremes(path)[0] for path, each in self.dimensions.items()}
        for path, dimension in self.dimensions.items():
            for extreme in dimension.extremes(path):
                drawn = {**first, path: extreme}
                try:
                    self.config_with(base, self._values(base, drawn))
                except ZooError as error:
                    raise ZooError(f"the space does not fit: {error}") from error

    def suggest(self, trial: Trial, base: Config) -> Values:
        """Let a trial's sampler draw; return the values."""
        values: Values = {}
        for path, dimension in self.dimensions.items():
            values[path] = dimension.suggest(path, trial, lambda key: _looked_up(key, values, base))
        return values

    def of_this_space(self, parameters: Parameters) -> Parameters:
        """Return what of another study's parameters is drawn here too; nothing if one lies outside."""
        known = {
            name: distribution
            for path, each in self.dimensions.items()
            for name, distribution in each.distributions(path).items()
            if name in parameters
        }
        fits = all(_can_draw(distribution, parameters[name]) for name, distribution in known.items())
        return {name: parameters[name] for name in known} if fits else {}

    def parameters_of(self, config: Config) -> tuple[Parameters, list[str]]:
        """Return what would have to be drawn to get a config's values, and which of these can't be drawn."""
        found: Parameters = {}
        outside = []
        for path, dimension in self.dimensions.items():
            parameters = dimension.parameters(path, value_at(config, path))
            if parameters is None:
                outside.append(path)
            else:
                found |= parameters
        return found, outside

    def describe(self) -> dict[str, str]:
        """Return each dimension as text, in which two that differ are different."""
        return {path: each.described() for path, each in self.dimensions.items()}

    def config_with(self, base: Config, values: Values) -> Config:
        """Return the config with these values in it. Raises `ZooError` for those that it does not take."""
        config = copy.deepcopy(base)
        for path, value in values.items():
            put_at(config, path, copy.deepcopy(value))
        return checked("train", config)

    def _values(self, base: Config, drawn: Mapping[str, Parameters]) -> Values:
        values: Values = {}
        for path, each in self.dimensions.items():
            values[path] = each.value(path, drawn[path], lambda key: _looked_up(key, values, base))
        return values


def _flat(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """Give every hyperparameter of a space and its place, also of what is null."""
    for key, value in values.items():
        path = f"{prefix}{key}"
        if value is None or is_dimension(value):
            yield path, value
        else:
            yield from _flat(value, f"{path}.")


def _overlap(path: str, other: str) -> bool:
    """Tell whether one of the places is the other, or within it."""
    return path == other or path.startswith(f"{other}.") or other.startswith(f"{path}.")


def _in_order(dimensions: Mapping[str, Dimension]) -> list[str]:
    """Return the places so that each comes after those that it looks up."""
    ordered: list[str] = []
    waiting = dict(dimensions)
    while waiting:
        ready = [path for path, each in waiting.items() if not waiting.keys() & set(each.needed()) - {path}]
        if not ready:
            raise ZooError(f"`at_most` goes round in a circle: {', '.join(waiting)}")
        ordered += ready
        waiting = {path: each for path, each in waiting.items() if path not in ready}
    return ordered


def _looked_up(path: str, values: Values, base: Config) -> Any:
    value = values[path] if path in values else value_at(base, path)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ZooError(f"`at_most` names {path}, which is {value!r}, not a number")
    return value


def put_at(config: Config, path: str, value: Any) -> None:
    """Set the value at a place of a config; sections that are missing are made."""
    *sections, last = path.split(".")
    for section in sections:
        if not isinstance(config.get(section), dict):
            config[section] = {}
        config = config[section]
    config[last] = value
