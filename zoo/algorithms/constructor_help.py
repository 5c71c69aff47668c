"""What `help` shows of an algorithm's constructor: its hyperparameters, from their declaration."""

from __future__ import annotations

import dataclasses
import inspect
import textwrap
from typing import Any

WIDTH = 100
BOUNDS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


def signature_of(algorithm: type[Any], config_class: type[Any]) -> inspect.Signature:
    """Return the constructor's arguments, and each hyperparameter by name with its type and default."""
    own: dict[str, inspect.Parameter] = {}
    for each in algorithm.__mro__:
        if "__init__" not in vars(each):
            continue
        *named, last = list(inspect.signature(vars(each)["__init__"]).parameters.values())[1:]
        hands_on = last.kind is last.VAR_KEYWORD
        for one in named if hands_on else [*named, last]:
            own.setdefault(one.name, one)
        if not hands_on:
            return inspect.Signature(list(own.values()))
        if last.name == "hyperparameters":
            break
    hyperparameters = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=_default(field),
            annotation=spelled_type(config_class, field.name),
        )
        for field in dataclasses.fields(config_class)
        if field.name not in own
    ]
    return inspect.Signature([*own.values(), *hyperparameters])


def described(config_class: type[Any]) -> str:
    """Return a paragraph of lines, one a hyperparameter: type, default, range and meaning."""
    lines = ["Hyperparameters:"]
    for field in dataclasses.fields(config_class):
        kind = spelled_type(config_class, field.name)
        text = f"{field.name} ({kind}, default {_default(field)!r}{_range(field)}): {_meaning(field)}"
        lines += textwrap.wrap(text, WIDTH, initial_indent="    ", subsequent_indent="        ")
    return "\n".join(lines)


def spelled_type(config_class: type[Any], name: str) -> str:
    """Return a field's type as the class that declares it spells it."""
    declared = (inspect.get_annotations(each).get(name) for each in config_class.__mro__)
    return next(kind for kind in declared if isinstance(kind, str))


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default


def _range(field: dataclasses.Field[Any]) -> str:
    if field.metadata.get("choices"):
        return f", one of {', '.join(map(repr, field.metadata['choices']))}"
    bounds = field.metadata.get("bounds", {})
    return "".join(f", {BOUNDS[name]} {bound:g}" for name, bound in bounds.items())


def _meaning(field: dataclasses.Field[Any]) -> str:
    unit = field.metadata.get("unit")
    return f"{field.metadata.get('help', '')}{f' [{unit}]' if unit else ''}"
