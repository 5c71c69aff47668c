"""What is searched: how each hyperparameter's value is found, held against what the algorithm allows."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from zoo.config.loading import SEARCHABLE
from zoo.config.validation import checked
from zoo.errors import ZooError, nearest
from zoo.tuning.dimensions import Dimension, Parameters, dimension_of, is_dimension

if TYPE_CHECKING:
    from optuna.trial import Trial

Config = dict[str, Any]
"""A config of `zoo train`."""

Values = dict[str, Any]
"""Values of a trial by their place in the config: ``{"algo.gamma": 0.99}``."""


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

    def values_of(self, parameters: Parameters, base: Config) -> Values:
        """Return the values of a trial by what was drawn for it.

        Raises `ZooError` for parameters that can't have been drawn from this space.
        """
        values: Values = {}
        for path, dimension in self.dimensions.items():
            drawn = dimension.checked(path, parameters)
            values[path] = dimension.value(path, drawn, lambda key: _looked_up(key, values, base))
        return values

    def can_draw(self, parameters: Parameters) -> bool:
        """Tell whether these parameters, some or all, can be drawn from this space."""
        return all(each.can_draw(path, parameters) for path, each in self.dimensions.items())

    def parameters_of(self, config: Config) -> tuple[Parameters, list[str]]:
        """Return what would have to be drawn to get a config's values, and which of these can't be drawn."""
        found: Parameters = {}
        outside = []
        for path, dimension in self.dimensions.items():
            parameters = dimension.parameters(path, value_at(config, path))
            if parameters is None or not self.can_draw(parameters):
                outside.append(path)
            else:
                found |= parameters
        return found, outside

    def parameter_names(self) -> list[str]:
        """Return the names of all that is drawn."""
        return [name for path, each in self.dimensions.items() for name in each.distributions(path)]

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


def value_at(config: Mapping[str, Any], path: str) -> Any:
    """Return the value at a place of a config; None if there is none."""
    value: Any = config
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def put_at(config: Config, path: str, value: Any) -> None:
    """Set the value at a place of a config; sections that are missing are made."""
    *sections, last = path.split(".")
    for section in sections:
        if not isinstance(config.get(section), dict):
            config[section] = {}
        config = config[section]
    config[last] = value
