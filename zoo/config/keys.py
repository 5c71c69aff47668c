"""Every key of a command by its whole path, such as ``callbacks.eval.every``, and completion at a TAB."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, get_args, get_type_hints

from zoo.config import schema
from zoo.config.aliases import NAMES
from zoo.config.sections import ALGORITHMS, SECTIONS, algorithm_class, is_algorithm
from zoo.errors import ZooError

_TRAINING_SECTIONS = ("algo", *SECTIONS, "tuned", "experiment")
COMMAND_SECTIONS = {
    "train": _TRAINING_SECTIONS,
    "tune": (*_TRAINING_SECTIONS, "sampler", "pruner", "space"),
    "check": ("env",),
    "import": ("env",),
}
"""Sections, and groups, by command."""

SHELLS = ("bash", "zsh", "fish")

_TABLE = Path(__file__).with_name("keys.json")
"""The keys of sections and of algorithms, each with its choices; by `make docs`, as declared beside the code.

With it nothing has to be imported, which takes long, to complete a key or to name one.
"""

RUN_KEYS = ("agent", "init_from", "resume", "runs", "folder")
"""Settings that name a run."""


def all_keys(command: str, algorithms: Iterable[str]) -> dict[str, list[str]]:
    """Return the paths of a command's keys, sections among them, each with the values that it is chosen from.

    ``algo`` has the keys of these algorithms.
    """
    sections = COMMAND_SECTIONS.get(command, ())
    keys = hyperparameters(algorithms) if "algo" in sections else {}
    keys |= dict(declared_keys(schema.SETTINGS[command], "")) if command in schema.SETTINGS else {}
    table = _table()["sections"].items()
    keys |= {path: choices for path, choices in table if path.partition(".")[0] in sections}
    return {**keys, **{section: [] for section in sections if section not in keys}}


def hyperparameters(algorithms: Iterable[str]) -> dict[str, list[str]]:
    """Return the paths of these algorithms' hyperparameters with their choices."""
    table, keys = _table()["algorithms"], dict[str, list[str]]()
    for name in algorithms:
        keys |= table.get(name) or dict(declared_keys(algorithm_class(name).config_class, "algo."))
    return keys


@functools.cache
def _table() -> dict[str, dict[str, Any]]:
    table: dict[str, dict[str, Any]] = json.loads(_TABLE.read_text(encoding="utf-8"))
    return table


def declared_keys(config_class: type[Any], prefix: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the paths of a dataclass' fields, and of those that they may hold, with their choices."""
    hints = get_type_hints(config_class)
    for field in dataclasses.fields(config_class):
        hint = hints[field.name]
        kinds = get_args(hint) or (hint,)
        choices = field.metadata.get("choices") or ((True, False) if bool in kinds else ())
        texts = [str(choice).lower() if isinstance(choice, bool) else str(choice) for choice in choices]
        yield f"{prefix}{field.name}", texts
        for inner in filter(dataclasses.is_dataclass, kinds):
            yield from declared_keys(inner, f"{prefix}{field.name}.")  # type: ignore[arg-type]


def other_algorithms_hint(key: str, algorithms: Sequence[str]) -> str:
    """Return a hint at the other algorithms that have a hyperparameter, "" where there is none."""
    foreign = [name for name in ALGORITHMS if name not in algorithms]
    others = [name for name in foreign if f"algo.{key}" in hyperparameters([name])]
    if not others:
        return ""
    instead = "".join(NAMES.get(f"{name}.{key}", "") for name in algorithms[:1])
    if instead and " " not in instead:
        instead = f"which has {instead}"
    whose = f", not of {', '.join(algorithms)}{f', {instead}' if instead else ''}" if algorithms else ""
    return f": `algo.{key}` is a hyperparameter of {', '.join(others)}{whose}"


def script(shells: Sequence[str]) -> str:
    """Return the completion script of a shell. Raises `ZooError` for unknown shells."""
    if len(shells) != 1 or shells[0] not in SHELLS:
        raise ZooError(f"zoo --completion takes one of {', '.join(SHELLS)}")
    return Path(__file__).with_name(f"completion.{shells[0]}").read_text(encoding="utf-8")


def candidates(words: Sequence[str], verbs: Iterable[str], flags: Iterable[str] = ()) -> list[str]:
    """Return the words that begin like the last of ``words``: verbs, flags, keys, and values of keys."""
    from zoo.config.choices import algorithm_options, base_of
    from zoo.config.compose import ConfigLoader

    *before, word = words or [""]
    if not before or word.startswith("-"):
        return [option for option in (flags if before else verbs) if option.startswith(word)]
    loader = ConfigLoader(before[0])
    key, equals, _ = word.partition("=")
    bases = [base_of(argument.partition("=")[2]) for argument in before if argument.startswith("algo=")]
    keys = all_keys(before[0], [base for base in bases if is_algorithm(base)])
    if not equals:
        return sorted(f"{path}=" for path in keys if f"{path}=".startswith(word))
    groups = (*loader.groups, "hydra/launcher")
    options = [*keys.get(key, []), *(loader.hydra.get_group_options(key) if key in groups else [])]
    if key == "env":
        import gymnasium

        options += gymnasium.registry
    elif key == "algo":
        options += algorithm_options()
    elif key in RUN_KEYS:
        options += [str(record.parent) for record in Path("runs").glob("*/*/*/run.json")]
    return sorted(value for option in set(options) if (value := f"{key}={option}").startswith(word))
