"""The space that is searched: one dimension for each hyperparameter, checked against the algorithm.

A sampler draws something else than the value where that is easier to model: the exponent of a power, or the
difference to 1. Its parameter is named so: ``log2 algo.n_steps``, ``1 - algo.gamma``.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import product
from typing import Any, Literal

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import Trial

from zoo.config import schedules
from zoo.config.compose import SEARCHABLE
from zoo.config.fields import build, hyperparameter
from zoo.config.validate import checked
from zoo.core.plain_data import value_at
from zoo.errors import ZooError, nearest

Config = dict[str, Any]
"""A config of `zoo train`."""

Values = dict[str, Any]
"""Hyperparameters of a trial by their path in the config: ``{"algo.gamma": 0.99}``."""

Parameters = Mapping[str, Any]
"""Values drawn by a sampler, by their Optuna parameter names."""

Lookup = Callable[[str], Any]
"""Returns the value of another setting of the trial by its path."""


# Each kind of dimension has three methods. `distributions` returns Optuna's distributions by name, and raises
# `ValueError` for bounds that don't go together; `value` returns the hyperparameter's value for what was
# drawn from them; `parameters` is the inverse of `value`, None for a value that can't be drawn.


@dataclass
class FloatDimension:
    """A number of four significant digits."""

    low: float = hyperparameter(help="smallest value")
    high: float = hyperparameter(help="largest value")
    log: bool = hyperparameter(False, "evenly in its logarithm")
    complement: bool = hyperparameter(False, "draw the difference to 1")
    schedules: list[Literal["constant", "linear"]] | None = hyperparameter(
        None, "as a constant, or linear: falling from the value to 0", choices=None
    )

    def distributions(self, path: str) -> dict[str, BaseDistribution]:
        if self.complement and self.high >= 1 and self.log:
            raise ValueError(f"high={self.high:g}, expected less than 1 with log and complement")
        low, high = (1 - self.high, 1 - self.low) if self.complement else (self.low, self.high)
        dists: dict[str, BaseDistribution] = {self._name(path): FloatDistribution(low, high, log=self.log)}
        if self.schedules is not None:
            dists[f"{path} schedule"] = CategoricalDistribution(self.schedules)
        return dists

    def value(self, path: str, drawn: Parameters, lookup: Lookup) -> Any:
        number = float(f"{drawn[self._name(path)]:.4g}")
        number = round(1 - number, 12) if self.complement else number
        number = min(max(number, self.low), self.high)
        return f"lin_{number:g}" if drawn.get(f"{path} schedule") == "linear" else number

    def parameters(self, path: str, value: Any) -> Parameters | None:
        try:
            schedule = schedules.parse(value)
        except ZooError:
            return None
        number, kind = schedule.start, schedule.type
        falls_to_zero = kind == "linear" and schedule.end == 0 and schedule.fraction == 1
        is_known = kind in (self.schedules or ["constant"]) and (kind == "constant" or falls_to_zero)
        if not is_known or not self.low <= number <= self.high:
            return None
        parameters: dict[str, Any] = {self._name(path): 1 - number if self.complement else number}
        return parameters if self.schedules is None else {**parameters, f"{path} schedule": kind}

    def _name(self, path: str) -> str:
        return f"1 - {path}" if self.complement else path


@dataclass
class IntDimension:
    """A whole number; with ``powers_of`` a power of that base."""

    low: int = hyperparameter(help="smallest value")
    high: int = hyperparameter(help="largest value")
    log: bool = hyperparameter(False, "evenly in its logarithm")
    powers_of: int | None = hyperparameter(None, "only powers of this number", ge=2)
    at_most: list[Any] | None = hyperparameter(
        None, "settings and numbers whose product the value never exceeds: [algo.n_steps, n_envs]"
    )

    def distributions(self, path: str) -> dict[str, BaseDistribution]:
        if self.powers_of is None:
            return {path: IntDistribution(self.low, self.high, log=self.log)}
        low, high = (_exponent(bound, self.powers_of) for bound in (self.low, self.high))
        if low is None or high is None:
            raise ValueError(f"low={self.low} and high={self.high} are not both powers of {self.powers_of}")
        return {self._name(path): IntDistribution(low, high)}

    def value(self, path: str, drawn: Parameters, lookup: Lookup) -> int:
        number, bound = int(drawn[self._name(path)]), math.inf
        if self.at_most is not None:
            bound = math.prod(lookup(f) if isinstance(f, str) else f for f in self.at_most)
        if self.powers_of is None:
            return number if number <= bound else max(1, int(bound))
        while number > 0 and self.powers_of**number > bound:
            number -= 1
        return int(self.powers_of**number)

    def parameters(self, path: str, value: Any) -> Parameters | None:
        if isinstance(value, bool) or not isinstance(value, int) or not self.low <= value <= self.high:
            return None
        drawn = value if self.powers_of is None else _exponent(value, self.powers_of)
        return None if drawn is None else {self._name(path): drawn}

    def _name(self, path: str) -> str:
        return path if self.powers_of is None else f"log{self.powers_of} {path}"


def _exponent(value: int, base: int) -> int | None:
    """Return the logarithm of a power of ``base``, None for any other number."""
    exponent = round(math.log(value, base)) if value > 0 else 0
    return exponent if base**exponent == value else None


@dataclass
class CategoricalDimension:
    """One of several values; lists and mappings among them have names."""

    choices: list[Any] | dict[str, Any] = hyperparameter(help="values, or names of values")

    def distributions(self, path: str) -> dict[str, BaseDistribution]:
        compound = [choice for choice in self.choices if isinstance(choice, list | dict)]
        if compound:
            raise ValueError(f"its choice {compound[0]} needs a name: choices: {{small: {compound[0]}}}")
        return {path: CategoricalDistribution(list(self.choices))}

    def value(self, path: str, drawn: Parameters, lookup: Lookup) -> Any:
        return self.choices[drawn[path]] if isinstance(self.choices, dict) else drawn[path]

    def parameters(self, path: str, value: Any) -> Parameters | None:
        for name in self.choices:
            choice = self.choices[name] if isinstance(self.choices, dict) else name
            if choice == value and isinstance(choice, bool) == isinstance(value, bool):
                return {path: name}
        return None


Dimension = FloatDimension | IntDimension | CategoricalDimension

KINDS: dict[str, type[Any]] = {
    "float": FloatDimension,
    "int": IntDimension,
    "categorical": CategoricalDimension,
}
"""The kinds of dimension by their ``type``."""


def _dimension_of(path: str, values: Any, others: Iterable[str]) -> Dimension:
    """Make a dimension from its part of a config. Raises `ZooError`; ``others`` are paths for its hint."""
    where = f"space.{path}"
    if not isinstance(values, Mapping):
        return CategoricalDimension({"fixed": values})  # the same in every trial
    if "type" not in values:
        raise ZooError(f"`{where}` has no type{nearest(path, others)} (types: {', '.join(KINDS)})")
    kind = values["type"]
    if kind not in KINDS:
        raise ZooError(f"`{where}.type={kind}` is not one of {', '.join(KINDS)}{nearest(kind, KINDS)}")
    # The command line is merged over the file, whose dimension may be of another type: its keys don't count.
    names = {field.name for field in fields(KINDS[kind])}
    foreign = {field.name for other in KINDS.values() for field in fields(other)} - names | {"type"}
    settings = {key: value for key, value in values.items() if key not in foreign}
    dimension: Dimension = build(KINDS[kind], settings, where)
    try:
        dimension.distributions(path)
    except ValueError as error:
        raise ZooError(f"`{where}`: {' '.join(str(error).split())}") from error
    return dimension


class Space:
    """The dimensions by path, without those that overlap with ``fixed``: these are in ``left_out``."""

    def __init__(self, values: Mapping[str, Any], fixed: Iterable[str] = ()) -> None:
        entries = dict(_flat(values))
        self.removed = [path for path, entry in entries.items() if entry is None]
        typed = [path for path, entry in entries.items() if isinstance(entry, Mapping) and "type" in entry]
        dimensions = {path: _dimension_of(path, v, typed) for path, v in entries.items() if v is not None}
        fixed = [f"{path}." for path in fixed]
        self.left_out = [
            path
            for path in dimensions
            if any(prefix.startswith(f"{path}.") or f"{path}.".startswith(prefix) for prefix in fixed)
        ]
        self.dimensions = {path: dim for path, dim in dimensions.items() if path not in self.left_out}

    def check(self, base: Config) -> None:
        """Raise `ZooError` unless the algorithm of ``base`` takes every value at the edge of the space."""
        edges = {path: _edge(dimension.distributions(path)) for path, dimension in self.dimensions.items()}
        if all(len(edge) == 1 for edge in edges.values()):
            raise ZooError("the space is empty: there is nothing to search for")
        for path in self.dimensions:
            if not path.startswith(SEARCHABLE):
                prefixes = ", ".join(f"{prefix}…" for prefix in SEARCHABLE)
                raise ZooError(f"`space.{path}` can't be searched; expected one of {prefixes}")
        for path in self.removed:
            section, _, key = path.rpartition(".")
            siblings = value_at(base, section) if section else base
            if isinstance(siblings, Mapping) and key not in siblings:
                raise ZooError(f"unknown key `space.{path}`{nearest(key, map(str, siblings))}")
        first = {name: value for edge in edges.values() for name, value in edge[0].items()}
        for edge in edges.values():
            for parameters in edge:
                values = self._values(lambda _, drawn=first | parameters: drawn, base)  # type: ignore[misc]
                try:
                    self.config_with(base, values)
                except ZooError as error:
                    raise ZooError(f"the space does not fit: {error}") from error

    def suggest(self, trial: Trial, base: Config) -> Values:
        """Let a trial's sampler draw all hyperparameters, and return them."""

        def draw(path: str) -> Parameters:
            distributions = self.dimensions[path].distributions(path)
            return {name: _suggest(trial, name, distribution) for name, distribution in distributions.items()}

        return self._values(draw, base)

    def _values(self, draw: Callable[[str], Parameters], base: Config) -> Values:
        """Return the values of drawn parameters; those with `at_most` come last, as they look others up."""
        values: Values = {}

        def lookup(path: str) -> Any:
            value = values[path] if path in values else value_at(base, path)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ZooError(f"`at_most` names {path}, which is {value!r}, not a number")
            return value

        bounded = [path for path, dimension in self.dimensions.items() if getattr(dimension, "at_most", None)]
        for path in [*(path for path in self.dimensions if path not in bounded), *bounded]:
            values[path] = self.dimensions[path].value(path, draw(path), lookup)
        return values

    def parameters_of(self, config: Config) -> tuple[dict[str, Any], list[str]]:
        """Return the parameters that give a config's values, and the paths for which none do."""
        by_path = {
            path: dim.parameters(path, value_at(config, path)) for path, dim in self.dimensions.items()
        }
        drawn = {name: value for p in by_path.values() if p is not None for name, value in p.items()}
        return drawn, [path for path, parameters in by_path.items() if parameters is None]

    def config_with(self, base: Config, values: Values) -> Config:
        """Return the config with these values. Raises `ZooError` for values that it does not take."""
        config = copy.deepcopy(base)
        for path, value in values.items():
            put_at(config, path, copy.deepcopy(value))
        return checked("train", config)


def _edge(distributions: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the parameters at the edge of a dimension: all choices, or both bounds."""
    ends = [
        d.choices if isinstance(d, CategoricalDistribution) else (d.low, d.high)
        for d in distributions.values()
    ]
    return [dict(zip(distributions, values, strict=True)) for values in product(*ends)]


def _suggest(trial: Trial, name: str, distribution: Any) -> Any:
    if isinstance(distribution, CategoricalDistribution):
        return trial.suggest_categorical(name, distribution.choices)
    suggest = trial.suggest_int if isinstance(distribution, IntDistribution) else trial.suggest_float
    return suggest(name, distribution.low, distribution.high, log=distribution.log)


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield path and definition of every hyperparameter of a space."""
    for key, value in values.items():
        is_section = isinstance(value, Mapping) and not {"type", "choices", "low", "high"} & value.keys()
        if is_section or (isinstance(value, Mapping) and isinstance(value.get("type"), Mapping)):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def put_at(config: Config, path: str, value: Any) -> None:
    """Set the value at a path of a config; sections that are missing are made."""
    *sections, last = path.split(".")
    for section in sections:
        if not isinstance(config.get(section), dict):
            config[section] = {}
        config = config[section]
    config[last] = value
