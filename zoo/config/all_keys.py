"""Every key of a command's config by its whole path, such as ``callbacks.eval.every``."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any, get_args, get_type_hints

from zoo.config import sections
from zoo.config.settings import CALLBACKS, SETTINGS, LoggerSettings
from zoo.config.tracking import TensorBoardSettings, WandbSettings

TRAINING = ("train", "tune")
"""Commands whose config has the sections of a training."""

_OF_TRAINING = ("algo", "env", "policy", "memory", "pretrain", "callbacks", "logger", "experiment")
SECTIONS = {"train": _OF_TRAINING, "tune": (*_OF_TRAINING, "sampler", "pruner", "space"), "check": ("env",)}
"""Sections, and groups, by command."""


def all_keys(command: str, algorithms: Iterable[str]) -> list[str]:
    """Return the paths of a command's keys, sections among them; ``algo`` has those of these algorithms."""
    keys = hyperparameters(algorithms) if command in TRAINING else []
    keys += _paths(SETTINGS.get(command), "")
    if command in TRAINING or command == "check":
        keys += _section("env")
    if command in TRAINING:
        keys += [*_section("policy"), *_section("memory"), *_section("pretrain"), *_callbacks(), *_logger()]
    return list(dict.fromkeys([*keys, *SECTIONS.get(command, ())]))


def hyperparameters(algorithms: Iterable[str]) -> list[str]:
    """Return the paths of these algorithms' hyperparameters."""
    classes = map(sections.algorithm_config_class, algorithms)
    return list(dict.fromkeys(path for each in classes for path in _paths(each, "algo.")))


def having(key: str) -> list[str]:
    """Return the names of the algorithms with a hyperparameter of this name."""
    return [name for name in sections.algorithm_names() if f"algo.{key}" in hyperparameters([name])]


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
