"""Every key of a command's config by its whole path, such as ``callbacks.eval.every``."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, get_args, get_origin, get_type_hints

from zoo.config import sections
from zoo.config.names_elsewhere import INSTEAD
from zoo.config.settings import CALLBACKS, SETTINGS, LoggerSettings
from zoo.config.tracking import TensorBoardSettings, WandbSettings
from zoo.config.variants import variant_of

TRAINING = ("train", "tune")
"""Commands whose config has the sections of a training."""

_OF_TRAINING = ("algo", "env", "policy", "memory", "pretrain", "callbacks", "logger", "experiment")
SECTIONS = {"train": _OF_TRAINING, "tune": (*_OF_TRAINING, "sampler", "pruner", "space"), "check": ("env",)}
"""Sections, and groups, by command."""


def all_keys(command: str, algorithms: Iterable[str], chosen: Mapping[str, Any] | None = None) -> list[str]:
    """Return the paths of a command's keys, sections among them; ``algo`` has those of these algorithms.

    Some have others beside, depending on what is ``chosen`` of them.
    """
    keys = hyperparameters(algorithms, chosen) if command in TRAINING else []
    keys += _paths(SETTINGS.get(command), "")
    if command in TRAINING or command == "check":
        keys += _section("env")
    if command in TRAINING:
        keys += [*_section("policy"), *_section("memory"), *_section("pretrain"), *_callbacks(), *_logger()]
    return list(dict.fromkeys([*keys, *SECTIONS.get(command, ())]))


def hyperparameters(algorithms: Iterable[str], chosen: Mapping[str, Any] | None = None) -> list[str]:
    """Return the paths of these algorithms' hyperparameters; some depend on what is ``chosen`` of them."""
    classes = (variant_of(sections.algorithm_config_class(name), chosen or {}, "algo") for name in algorithms)
    return list(dict.fromkeys(path for each in classes for path in _paths(each, "algo.")))


def choices(command: str, key: str, algorithms: Iterable[str]) -> list[str]:
    """Return the values that a key takes, if these are a few; of a section's key by its whole path."""
    section, _, name = key.rpartition(".")
    classes: list[Any] = [SETTINGS.get(command)] if not section else []
    if section == "algo":
        classes = [sections.algorithm_config_class(each) for each in algorithms]
    elif section in sections.SECTIONS:
        classes = [sections.section_class(section)]
    elif section.startswith("callbacks."):
        classes = [CALLBACKS.get(section.partition(".")[2])]
    elif section == "logger":
        classes = [LoggerSettings]
    found = [_choices(each, name) for each in classes if each is not None]
    return list(dict.fromkeys(value for values in found for value in values))


def _choices(config_class: type[Any], name: str) -> Iterator[str]:
    for field in dataclasses.fields(config_class):
        if field.name != name:
            continue
        hint = get_type_hints(config_class)[name]
        values = list(field.metadata.get("choices") or ())
        for each in () if values else (hint, *get_args(hint)):
            values += get_args(each) if get_origin(each) is Literal else [True, False] if each is bool else []
        for value in values:
            yield str(value).lower() if isinstance(value, bool) else str(value)


def having(key: str) -> list[str]:
    """Return the names of the algorithms with a hyperparameter of this name."""
    return [name for name in sections.algorithm_names() if f"algo.{key}" in hyperparameters([name])]


def not_of(key: str, algorithms: Sequence[str], prefix: str = "algo.") -> str:
    """Return, for the end of a message, which other algorithms have a hyperparameter, and what these have.

    It is "" where no other has it.
    """
    others = [name for name in having(key) if name not in algorithms]
    if not others:
        return ""
    instead = [INSTEAD[name, key].format(prefix) for name in algorithms if (name, key) in INSTEAD]
    has = f", which has {instead[0]}" if len(algorithms) == len(instead) == 1 else ""
    whose = f", not of {', '.join(algorithms)}{has}" if algorithms else ""
    return f": `{prefix}{key}` is a hyperparameter of {', '.join(others)}{whose}"


def _section(name: str) -> Iterator[str]:
    yield from _paths(sections.section_class(name), f"{name}.")
    for part in sections.PARTS.get(name, ()):
        yield from _paths(sections.part_class(name, part), f"{name}.{part}.")


def _callbacks() -> Iterator[str]:
    for name, settings in CALLBACKS.items():
        yield f"callbacks.{name}"
        yield from _paths(settings, f"callbacks.{name}.")


def _logger() -> Iterator[str]:
    yield from _paths(LoggerSettings, "logger.")
    yield from _paths(WandbSettings, "logger.wandb.")
    yield from _paths(TensorBoardSettings, "logger.tensorboard.")


def _paths(config_class: type[Any] | None, prefix: str) -> Iterator[str]:
    """Return the paths of a dataclass' fields, and of those of the dataclasses that they may hold."""
    if config_class is None:
        return
    hints = get_type_hints(config_class)
    for field in dataclasses.fields(config_class):
        yield f"{prefix}{field.name}"
        inner_classes: list[Any] = list(filter(dataclasses.is_dataclass, get_args(hints[field.name])))
        for inner in inner_classes:
            yield from _paths(inner, f"{prefix}{field.name}.")
