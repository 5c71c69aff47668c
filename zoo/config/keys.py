"""Every key of a command by its whole path, such as ``callbacks.eval.every``, and completion at a TAB."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, get_args, get_type_hints

from zoo.config import schema
from zoo.config.aliases import NAMES
from zoo.config.fields import variant_of
from zoo.errors import ZooError

_TRAINING_SECTIONS = ("algo", *schema.SECTIONS, "experiment")
SECTIONS = {
    "train": _TRAINING_SECTIONS,
    "tune": (*_TRAINING_SECTIONS, "sampler", "pruner", "space"),
    "check": ("env",),
}
"""Sections, and groups, by command."""

SHELLS = ("bash", "zsh", "fish")


def all_keys(command: str, algorithms: Iterable[str]) -> list[str]:
    """Return the paths of a command's keys, sections among them; ``algo`` has those of these algorithms."""
    sections = SECTIONS.get(command, ())
    classes = {path: schema.section_class(path) for path in (*schema.SECTIONS, *schema.PARTS)}
    keys = hyperparameters(algorithms) if "algo" in sections else []
    keys += _paths(schema.SETTINGS[command], "") if command in schema.SETTINGS else []
    for path, config_class in classes.items():
        if path.partition(".")[0] in sections:
            keys += [path, *_paths(config_class, f"{path}.")]
    return list(dict.fromkeys([*keys, *sections]))


def hyperparameters(algorithms: Iterable[str]) -> list[str]:
    """Return the paths of these algorithms' hyperparameters."""
    classes = (variant_of(schema.algorithm_config_class(name), {}, "algo") for name in algorithms)
    return list(dict.fromkeys(path for each in classes for path in _paths(each, "algo.")))


def _paths(config_class: type[Any], prefix: str) -> Iterator[str]:
    """Yield the paths of a dataclass' fields, and of those of the dataclasses that they may hold."""
    hints = get_type_hints(config_class)
    for field in dataclasses.fields(config_class):
        yield f"{prefix}{field.name}"
        for inner in filter(dataclasses.is_dataclass, get_args(hints[field.name])):
            yield from _paths(inner, f"{prefix}{field.name}.")  # type: ignore[arg-type]


def other_algorithms_hint(key: str, algorithms: Sequence[str]) -> str:
    """Return a hint at the other algorithms that have a hyperparameter, "" where there is none."""
    foreign = [name for name in schema.ALGORITHMS if name not in algorithms]
    others = [name for name in foreign if f"algo.{key}" in hyperparameters([name])]
    if not others:
        return ""
    instead = "".join(NAMES.get(f"{name}.{key}", "") for name in algorithms[:1])
    if instead and " " not in instead:
        instead = f"which has {instead}"
    whose = f", not of {', '.join(algorithms)}{f', {instead}' if instead else ''}" if algorithms else ""
    return f": `algo.{key}` is a hyperparameter of {', '.join(others)}{whose}"


def script(shells: Sequence[str]) -> str:
    """Return what a shell has to run. Raises `ZooError` for one that there is no script for."""
    if len(shells) != 1 or shells[0] not in SHELLS:
        raise ZooError(f"zoo --completion takes one of {', '.join(SHELLS)}")
    return Path(__file__).with_name(f"completion.{shells[0]}").read_text(encoding="utf-8")


def candidates(words: Sequence[str], verbs: Iterable[str]) -> list[str]:
    """Return the words that begin like the last of ``words``: verbs, keys, and the options of groups."""
    from zoo.config.compose import ConfigLoader

    *before, word = words or [""]
    if not before:
        return [verb for verb in verbs if verb.startswith(word)]
    loader = ConfigLoader(before[0])
    key, equals, _ = word.partition("=")
    if not equals:
        chosen = [each.partition("=")[2] for each in before if each.startswith("algo=")]
        bases = [base for base in map(loader.source.base_of, chosen) if base in schema.ALGORITHMS]
        found = [f"{each}=" for each in all_keys(before[0], bases)]
    else:
        options = loader.hydra.get_group_options(key) if "." not in key else []
        if key == "env":
            import gymnasium

            options = [*options, *gymnasium.registry]
        found = [f"{key}={option}" for option in options]
    return sorted(each for each in found if each.startswith(word))
