"""Declaring a value once: type, default, range, unit and one line of meaning, all in a dataclass field.

From it come constructor, check, YAML defaults, documentation and the bounds of a search space.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import numbers
import operator
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from zoo.config.aliases import UnknownKeyError
from zoo.config.schedules import Schedule, parse
from zoo.core.printing import one_line
from zoo.errors import ZooError, nearest

Config = TypeVar("Config")

ScheduleValue = float | str | dict[str, Any]
"""A number, ``"lin_3e-4"``, or ``{type: linear, start: 3e-4, end: 0}``: see `zoo.config.schedules`."""


def hyperparameter(
    default: Any = dataclasses.MISSING,
    help: str = "",
    *,
    unit: str | None = None,
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    lt: float | None = None,
    choices: Sequence[Any] | None = None,
    default_factory: Callable[[], Any] | None = None,
    is_finite: bool = False,
) -> Any:
    """Declare one value of a config dataclass; ``ge``, ``gt``, ``le`` and ``lt`` bound every number in it.

    ``is_finite`` refuses infinity, which for a bound means none.
    """
    bounds = {"ge": ge, "gt": gt, "le": le, "lt": lt}
    bounds = {name: bound for name, bound in bounds.items() if bound is not None}
    choices = tuple(choices) if choices is not None else None
    metadata = {"help": help, "unit": unit, "bounds": bounds, "choices": choices, "is_finite": is_finite}
    if default_factory is not None:
        return dataclasses.field(default_factory=default_factory, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


setting = functools.partial(hyperparameter, dataclasses.MISSING)
"""Declares a value without a default here: one of a command, whose default stands in ``conf/``."""


def with_defaults(**values: Any) -> Callable[[type[Config]], type[Config]]:
    """Give inherited values of a config other defaults; stands below ``@dataclass``."""

    def decorate(config_class: type[Config]) -> type[Config]:
        bases = [base for base in config_class.__mro__[1:] if dataclasses.is_dataclass(base)]
        inherited = {field.name: field for base in reversed(bases) for field in dataclasses.fields(base)}
        hints = get_type_hints(config_class)
        for name, value in values.items():
            default: Any = {"default_factory": value.copy} if hasattr(value, "copy") else {"default": value}
            setattr(config_class, name, dataclasses.field(**default, metadata=inherited[name].metadata))
        annotations = inspect.get_annotations(config_class)
        config_class.__annotations__ = annotations | {name: hints[name] for name in values}
        return config_class

    return decorate


_hints: Callable[[Any], dict[str, Any]] = functools.lru_cache(maxsize=256)(get_type_hints)


def schedules_of(config: Any) -> dict[str, Schedule]:
    """Return the schedules of a config (also constant ones) by name. Raises `ZooError` for what is none."""
    values = {name: (getattr(config, name), hint) for name, hint in _hints(type(config)).items()}
    return {name: _parsed(value, name) for name, (value, hint) in values.items() if _is_schedule(value, hint)}


def _takes_schedule(hint: Any) -> bool:
    return set(get_args(ScheduleValue)) <= set(get_args(hint))


def _is_schedule(value: Any, hint: Any) -> bool:
    words = [None, *(word for option in get_args(hint) for word in get_args(option))]
    return _takes_schedule(hint) and value not in words


def defaults(config_class: type[Any]) -> dict[str, Any]:
    """Return the declared defaults as plain data, ready for YAML; fields without a default are left out."""
    fields = dataclasses.fields(config_class)
    made = {f.name: f.default_factory() for f in fields if f.default_factory is not dataclasses.MISSING}
    values = {f.name: made.get(f.name, f.default) for f in fields}
    return {name: value for name, value in values.items() if value is not dataclasses.MISSING}


def variant_of(config_class: type[Any], values: Mapping[str, Any], where: str = "") -> type[Any]:
    """Return the class of a config with these values, by its class method ``variant`` if it has one."""
    return config_class.variant(values, where) if hasattr(config_class, "variant") else config_class


def common_class(config_class: type[Any]) -> type[Any]:
    """Return the class that declares what all variants of a config have."""
    return next((base for base in config_class.__mro__ if "variant" in vars(base)), config_class)


# -- checking what a user wrote ---------------------------------------------------------------------------


def build(config_class: type[Config], values: Mapping[str, Any], where: str) -> Config:
    """Make a config from a user's values; ``where`` is its path, such as ``"algo"``, or "" at the top.

    Raises `ZooError` for an unknown key, a wrong type, a value out of its range or a missing value.
    """
    config_class = variant_of(config_class, values, where)
    fields = {field.name: field for field in dataclasses.fields(config_class)}
    hints = _hints(config_class)
    prefix = f"{where}." if where else ""
    arguments = {}
    for key in values:
        if key not in fields:
            raise UnknownKeyError(str(key), list(fields), where)
    for key, value in values.items():
        arguments[key] = _converted(value, hints[key], f"{prefix}{key}")
        check_bounds(arguments[key], fields[key].metadata, f"{prefix}{key}")
        if _is_schedule(arguments[key], hints[key]):
            _check_schedule(arguments[key], fields[key].metadata, f"{prefix}{key}")
    for name, field in fields.items():
        if name not in arguments.keys() | defaults(config_class).keys():
            raise ZooError(f"`{prefix}{name}` is missing: {field.metadata.get('help', '')}")
    return config_class(**arguments)


_NO_MATCH = object()


def _converted(value: Any, hint: Any, path: str) -> Any:
    """Return ``value`` as the hinted type, taking an int for a float and ``1e5`` for an int."""
    options = get_args(hint) if get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    for option in options:
        converted = _try_convert(value, option, path)
        if converted is not _NO_MATCH:
            return converted
    if callable(value) and _takes_schedule(hint):
        raise ZooError(
            f"`{path}` can't be a function, which an agent's files couldn't hold; a schedule is written as"
            " text, `lin_3e-4` (from that value to 0), or as {type: linear, start: 3e-4, end: 1e-5}"
        )
    expected = " or ".join(dict.fromkeys(map(_spelled, options)))
    if value is True and any(map(dataclasses.is_dataclass, options)):
        expected += "; {} switches it on with its defaults"
    raise ZooError(f"`{path}={one_line(repr(value))}` has the wrong type; expected {expected}")


def _try_convert(value: Any, hint: Any, path: str) -> Any:
    origin = get_origin(hint) or hint
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if hint is Any:
        return value
    if origin is typing.Literal:
        choices = [(type(choice), choice) for choice in get_args(hint)]
        return value if (type(value), value) in choices else _NO_MATCH
    if origin is int:
        return int(value) if is_number and value == value // 1 else _NO_MATCH
    if origin is float:
        return float(value) if is_number else _NO_MATCH
    if origin in (list, tuple):
        if not isinstance(value, Sequence) or isinstance(value, str):
            return _NO_MATCH
        (item_hint, *_) = get_args(hint) or (Any,)
        return [_converted(item, item_hint, f"{path}[{i}]") for i, item in enumerate(value)]
    if origin is dict:
        return dict(value) if isinstance(value, Mapping) else _NO_MATCH
    if isinstance(value, origin):
        return value
    if isinstance(value, Mapping) and dataclasses.is_dataclass(origin) and isinstance(origin, type):
        return build(origin, value, path)
    return _NO_MATCH


def _spelled(hint: Any) -> str:
    if get_origin(hint) is typing.Literal:
        return " or ".join(map(repr, get_args(hint)))
    if dataclasses.is_dataclass(hint):
        return f"{{{', '.join(field.name for field in dataclasses.fields(hint))}}}"
    return "null" if hint is type(None) else getattr(hint, "__name__", str(hint))


_BOUNDS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}


def check_bounds(value: Any, metadata: Mapping[str, Any], path: str) -> None:
    """Raise `ZooError` if a number is out of the range, or a value none of the choices, of its field."""
    choices = metadata.get("choices")
    if choices is not None and value is not None and not isinstance(value, Mapping) and value not in choices:
        names = [str(choice).lower() if isinstance(choice, bool) else str(choice) for choice in choices]
        raise ZooError(f"`{path}={value}` is not one of {', '.join(names)}{nearest(str(value), names)}")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    if math.isnan(value) or (metadata.get("is_finite") and math.isinf(value)):
        raise ZooError(f"`{path}={value}` is not a finite number")
    bounds = metadata.get("bounds", {})
    if not all(getattr(operator, name)(value, bound) for name, bound in bounds.items()):
        expected = " and ".join(f"{_BOUNDS[name]} {bound:g}" for name, bound in bounds.items())
        raise ZooError(f"`{path}={value:g}` is out of range; expected {expected}")


def _parsed(value: ScheduleValue, path: str) -> Schedule:
    try:
        return parse(value)
    except ZooError as error:
        raise ZooError(f"`{path}`: {error}") from error


def _check_schedule(value: ScheduleValue, metadata: Mapping[str, Any], path: str) -> None:
    schedule = _parsed(value, path)
    if isinstance(value, str | Mapping):
        check_bounds(schedule.start, metadata, path)
        bounds = metadata["bounds"].items()
        reached_at_last = {{"gt": "ge", "lt": "le"}.get(name, name): bound for name, bound in bounds}
        check_bounds(schedule.end, {"bounds": reached_at_last}, path)


def whole_steps(value: Any, where: str = "total_timesteps") -> int:
    """Return a number of environment steps, which may be written ``1e6``. Raises `ZooError` for all else."""
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not is_number or value % 1:  # NaN of infinity
        raise ZooError(f"`{where}={value!r}` is not a whole number of environment steps")
    if value < 0:
        raise ZooError(f"`{where}={value}` is out of range; expected at least 0")
    return int(value)
