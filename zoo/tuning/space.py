"""The space that is searched: one dimension for each hyperparameter, checked against the algorithm.

A sampler draws something else than the value where that is easier to model: the exponent of a power, or the
difference to 1. Its parameter is named so: ``log2 algo.n_steps``, ``1 - algo.gamma``.
"""

from __future__ import annotations

import copy
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from graphlib import CycleError, TopologicalSorter
from itertools import product
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import Trial

from zoo.config.compose import SEARCHABLE
from zoo.config.fields import build, hyperparameter
from zoo.config.validate import checked
from zoo.core.plain_data import value_at
from zoo.errors import ZooError, nearest
from zoo.optim import schedules

Config = dict[str, Any]
"""A config of `zoo train`."""

Values = dict[str, Any]
"""Hyperparameters of a trial by their path in the config: ``{"algo.gamma": 0.99}``."""

Lookup = Callable[[str], Any]
"""Returns the value of another setting of the trial by its path."""

Parameters = dict[str, Any]
"""What a sampler draws, by Optuna's names for it."""

SCHEDULES = ("constant", "linear")
SIGNIFICANT_DIGITS = 4


class Dimension(ABC):
    """How the value of one hyperparameter is drawn; ``path`` is the hyperparameter's path in the config."""

    @abstractmethod
    def distributions(self, path: str) -> dict[str, BaseDistribution]:
        """Return Optuna's distributions by name. Raises `ValueError` for bounds that don't go together."""

    @abstractmethod
    def value(self, path: str, drawn: Mapping[str, Any], lookup: Lookup) -> Any:
        """Return the hyperparameter's value for drawn parameters."""

    @abstractmethod
    def parameters(self, path: str, value: Any) -> Parameters | None:
        """Return the parameters that give ``value``, the inverse of `value`; None if none do."""

    def extremes(self, path: str) -> list[Parameters]:
        """Return the parameters at the edge of the dimension: all choices, or both bounds."""
        distributions = self.distributions(path)
        return [
            dict(zip(distributions, ends, strict=True))
            for ends in product(*map(_ends, distributions.values()))
        ]

    def needed(self) -> list[str]:
        """Return the paths that `value` looks up."""
        return []

    def described(self) -> str:
        """Return the dimension as a config spells it, without defaults."""
        kind = next(name for name, each in KINDS.items() if isinstance(self, each))
        texts = [f"type: {kind}"]
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if value != field.default:
                texts.append(f"{field.name}: {value if isinstance(value, str) else json.dumps(value)}")
        return f"{{{', '.join(texts)}}}"

    def suggest(self, path: str, trial: Trial, lookup: Lookup) -> Any:
        """Let a trial's sampler draw, and return the value."""
        drawn = {name: _suggest(trial, name, each) for name, each in self.distributions(path).items()}
        return self.value(path, drawn, lookup)


def _ends(distribution: Any) -> Sequence[Any]:
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices
    return distribution.low, distribution.high


def _contains(distribution: Any, value: Any) -> bool:
    if isinstance(distribution, CategoricalDistribution):
        return value in distribution.choices
    return isinstance(value, int | float) and bool(distribution.low <= value <= distribution.high)


def _suggest(trial: Trial, name: str, distribution: Any) -> Any:
    if isinstance(distribution, CategoricalDistribution):
        return trial.suggest_categorical(name, distribution.choices)
    suggest = trial.suggest_int if isinstance(distribution, IntDistribution) else trial.suggest_float
    return suggest(name, distribution.low, distribution.high, step=distribution.step, log=distribution.log)


@dataclass
class FloatDimension(Dimension):
    """A number of four significant digits."""

    low: float = hyperparameter(help="smallest value")
    high: float = hyperparameter(help="largest value")
    log: bool = hyperparameter(False, "evenly in its logarithm")
    step: float | None = hyperparameter(None, "distance of neighbouring values", gt=0)
    complement: bool = hyperparameter(False, "draw the difference to 1")
    schedules: list[str] | None = hyperparameter(
        None, "as a constant, or linear: falling from the value to 0", choices=None
    )

    def distributions(self, path: str) -> dict[str, BaseDistribution]:
        if self.complement and self.high >= 1 and self.log:
            raise ValueError(f"high={self.high:g}, expected less than 1 with log and complement")
        low, high = (1 - self.high, 1 - self.low) if self.complement else (self.low, self.high)
        found: dict[str, BaseDistribution] = {
            self._name(path): FloatDistribution(low, high, log=self.log, step=self.step)
        }
        if self.schedules is not None:
            if not self.schedules or not set(self.schedules) <= set(SCHEDULES):
                raise ValueError(f"schedules={self.schedules}, expected some of {', '.join(SCHEDULES)}")
            found[f"{path} schedule"] = CategoricalDistribution(self.schedules)
        return found

    def value(self, path: str, drawn: Mapping[str, Any], lookup: Lookup) -> Any:
        number = float(f"{drawn[self._name(path)]:.{SIGNIFICANT_DIGITS}g}")
        if self.complement:
            number = round(1 - number, 12)
        number = min(max(number, self.low), self.high)
        return f"lin_{number:g}" if drawn.get(f"{path} schedule") == "linear" else number

    def parameters(self, path: str, value: Any) -> Parameters | None:
        try:
            schedule = schedules.parse(value)
        except ZooError:
            return None
        number, kind = schedule.start, schedule.type
        falls_to_zero = kind == "linear" and schedule.end == 0 and schedule.fraction == 1
        allowed = ("constant",) if self.schedules is None else self.schedules
        if kind not in allowed or not (kind == "constant" or falls_to_zero):
            return None
        if not self.low <= number <= self.high:
            return None
        found: Parameters = {self._name(path): 1 - number if self.complement else number}
        return found if self.schedules is None else {**found, f"{path} schedule": kind}

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


def _exponent(value: int, base: int) -> int | None:
    """Return the logarithm of a power of ``base``, None for any other number."""
    exponent = round(math.log(value, base)) if value > 0 else 0
    return exponent if base**exponent == value else None


@dataclass
class CategoricalDimension(Dimension):
    """One of several values; lists and mappings among them have names."""

    choices: list[Any] | dict[str, Any] = hyperparameter(help="values, or names of values")

    def distributions(self, path: str) -> dict[str, BaseDistribution]:
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
        for name in self.choices:
            choice = self.choices[name] if isinstance(self.choices, dict) else name
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


def _lacks_type(values: Mapping[str, Any]) -> bool:
    return "type" not in values and bool({"choices", "low", "high"} & values.keys())


def dimension_of(path: str, values: Any, others: Iterable[str] = ()) -> Dimension:
    """Make a dimension from its part of a config. Raises `ZooError`.

    ``others`` are the paths of dimensions with a type, for a hint where the type is missing.
    """
    where = f"space.{path}"
    if not isinstance(values, Mapping):
        return FixedDimension(values)
    if _lacks_type(values):
        raise ZooError(f"`{where}` has no type{nearest(path, others)} (types: {', '.join(KINDS)})")
    kind = values["type"]
    if kind not in KINDS:
        raise ZooError(f"`{where}.type={kind}` is not one of {', '.join(KINDS)}{nearest(kind, KINDS)}")
    # The command line is merged over the file, whose dimension may be of another type: its keys don't count.
    own = {field.name for field in fields(KINDS[kind])}
    foreign = {field.name for each in KINDS.values() for field in fields(each)} - own | {"type"}
    dimension: Dimension = build(
        KINDS[kind], {key: value for key, value in values.items() if key not in foreign}, where
    )
    try:
        dimension.distributions(path)
    except ValueError as error:
        raise ZooError(f"`{where}`: {' '.join(str(error).split())}") from error
    return dimension


class Space:
    """The dimensions by path, without those that overlap with ``fixed``: these are in ``left_out``."""

    def __init__(self, values: Mapping[str, Any], fixed: Iterable[str] = ()) -> None:
        flat = dict(_flat(values, ""))
        self.removed = [path for path, each in flat.items() if each is None]
        given = {path: each for path, each in flat.items() if each is not None}
        typed = [path for path, each in given.items() if isinstance(each, Mapping) and "type" in each]
        found = {path: dimension_of(path, each, typed) for path, each in given.items()}
        fixed = list(fixed)
        self.left_out = [path for path in found if any(_overlap(path, each) for each in fixed)]
        kept = {path: each for path, each in found.items() if path not in self.left_out}
        # A dimension with `at_most` comes after those whose values it looks up.
        needed = {path: [name for name in each.needed() if name in kept] for path, each in kept.items()}
        try:
            self.dimensions = {path: kept[path] for path in TopologicalSorter(needed).static_order()}
        except CycleError as error:
            raise ZooError(f"`at_most` goes round in a circle: {', '.join(error.args[1])}") from None

    def check(self, base: Config) -> None:
        """Raise `ZooError` unless the algorithm of ``base`` takes every value at the edge of the space."""
        if not any(each.distributions(path) for path, each in self.dimensions.items()):
            raise ZooError("the space is empty: there is nothing to search for")
        for path in self.dimensions:
            if not path.startswith(SEARCHABLE):
                known = ", ".join(f"{each}…" for each in SEARCHABLE)
                raise ZooError(f"`space.{path}` can't be searched; expected one of {known}")
        for path in self.removed:
            section, _, key = path.rpartition(".")
            siblings = value_at(base, section) if section else base
            if isinstance(siblings, Mapping) and key not in siblings:
                raise ZooError(f"unknown key `space.{path}`{nearest(key, map(str, siblings))}")
        first = {path: each.extremes(path)[0] for path, each in self.dimensions.items()}
        for path, dimension in self.dimensions.items():
            for extreme in dimension.extremes(path):
                parameters = {**first, path: extreme}
                values: Values = {}
                for place, each in self.dimensions.items():
                    values[place] = each.value(place, parameters[place], _lookup(values, base))
                try:
                    self.config_with(base, values)
                except ZooError as error:
                    raise ZooError(f"the space does not fit: {error}") from error

    def suggest(self, trial: Trial, base: Config) -> Values:
        """Let a trial's sampler draw all hyperparameters, and return them."""
        values: Values = {}
        for path, dimension in self.dimensions.items():
            values[path] = dimension.suggest(path, trial, _lookup(values, base))
        return values

    def shared_parameters(self, parameters: Parameters) -> Parameters:
        """Return those parameters of another study that this space has; none if one is out of its bounds."""
        known = {
            name: distribution
            for path, each in self.dimensions.items()
            for name, distribution in each.distributions(path).items()
            if name in parameters
        }
        fits = all(_contains(distribution, parameters[name]) for name, distribution in known.items())
        return {name: parameters[name] for name in known} if fits else {}

    def parameters_of(self, config: Config) -> tuple[Parameters, list[str]]:
        """Return the parameters that give a config's values, and the paths for which none do."""
        found: Parameters = {}
        outside = []
        for path, dimension in self.dimensions.items():
            parameters = dimension.parameters(path, value_at(config, path))
            if parameters is None:
                outside.append(path)
            else:
                found |= parameters
        return found, outside

    def described(self) -> dict[str, str]:
        """Return each dimension as text; texts are equal where dimensions are."""
        return {path: each.described() for path, each in self.dimensions.items()}

    def config_with(self, base: Config, values: Values) -> Config:
        """Return the config with these values. Raises `ZooError` for values that it does not take."""
        config = copy.deepcopy(base)
        for path, value in values.items():
            put_at(config, path, copy.deepcopy(value))
        return checked("train", config)


def _flat(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """Yield the path of every hyperparameter of a space and what the space says of it."""
    for key, value in values.items():
        path = f"{prefix}{key}"
        if value is None or is_dimension(value):
            yield path, value
        else:
            yield from _flat(value, f"{path}.")


def _overlap(path: str, other: str) -> bool:
    """Tell whether one of the paths is the other, or within it."""
    return path == other or path.startswith(f"{other}.") or other.startswith(f"{path}.")


def _lookup(values: Values, base: Config) -> Lookup:
    def lookup(path: str) -> Any:
        value = values[path] if path in values else value_at(base, path)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ZooError(f"`at_most` names {path}, which is {value!r}, not a number")
        return value

    return lookup


def put_at(config: Config, path: str, value: Any) -> None:
    """Set the value at a path of a config; sections that are missing are made."""
    *sections, last = path.split(".")
    for section in sections:
        if not isinstance(config.get(section), dict):
            config[section] = {}
        config = config[section]
    config[last] = value
