"""The command line as Hydra's overrides: words without ``key=``, spellings, and what is refused."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import OverrideParseException

from zoo.config import sections
from zoo.config.aliases import unknown_key
from zoo.core.printing import one_line
from zoo.errors import ZooError

LISTS = {"plot": "runs", "compare": "runs"}
"""Commands that take any number of bare words, and the key that these are a list for."""

WORDS = {"import": "file", "pull": "source", "reproduce": "run", "status": "folder"}
"""Commands that take one bare word, and the key that it is the value of."""

SPELLINGS = {
    "pull": {"from": "source"},
    **{command: {"env": "env.id"} for command in ("enjoy", "evaluate", "record")},
}
"""Keys that configs call otherwise: where Python has taken their names, or as parts of others."""


NOT_OF_HYDRA = {
    "hydra.run.dir": "a run's folder is made in `runs_dir=`",
    "hydra.output_subdir": "the config stands in the run's folder as config.yaml",
    "hydra.job.chdir": "a run stays in the folder in which it was started",
}
"""Settings of Hydra's own that would do nothing here, and what does."""


def parse_overrides(overrides: Sequence[str], loader: ConfigLoader | None = None) -> list[Override]:
    """Return overrides as Hydra reads them; ``loader`` knows the options of groups, for ``glob``.

    Raises `ZooError` for one that Hydra can't read.
    """
    try:
        return OverridesParser.create(loader).parse_overrides(list(overrides))
    except OverrideParseException as error:
        raise ZooError(
            f"`{error.override}` can't be read: {one_line(error.message.partition(chr(10))[0])}; expected"
            " key=value, 'key=[a,b]' for a list, and 'key=\"…\"' for a text with special characters"
        ) from error


def open_to_new_keys(override: Override, sections: Collection[str]) -> str:
    """Return an override of a key within a section in a form that adds the key where no file has it.

    Whoever checks the config knows which keys there may be.
    """
    if override.input_line == "hydra/launcher=basic":  # what Hydra's own is called, which our files replace
        return "hydra/launcher=local"
    is_plain = not (override.is_add() or override.is_force_add() or override.is_delete())
    section, is_within, _ = override.key_or_group.partition(".")
    return (
        f"++{override.input_line}"
        if is_plain and is_within and section in sections
        else str(override.input_line)
    )


def spelled(command: str, overrides: Sequence[str]) -> list[str]:
    """Return the overrides with each key as the command's settings call it."""
    names = SPELLINGS.get(command, {})
    parts = [override.partition("=") for override in overrides]
    return [f"{names.get(name, name)}{equals}{value}" for name, equals, value in parts]


def as_typed(command: str, keys: Sequence[str]) -> list[str]:
    """Return the names of a command's keys as a user types them."""
    typed = {key: name for name, key in SPELLINGS.get(command, {}).items()}
    return [typed.get(key, key) for key in keys]


def as_overrides(command: str, arguments: Sequence[str]) -> list[str]:
    """Return the overrides that arguments stand for.

    ``zoo plot runs/ppo2 x=hours`` is ``zoo plot runs=['runs/ppo2'] x=hours``. Raises `ZooError` if the key is
    given as well, or for more words than are taken.
    """
    key = LISTS.get(command) or WORDS.get(command)
    words = [argument for argument in arguments if _is_word(argument)]
    if key is None and words:
        raise ZooError(
            f"`{words[0]}` has no value; expected key=value, such as n_timesteps=1e5, in quotes if it has"
            f" spaces (see: zoo {command} --help)"
        )
    others = spelled(command, [argument for argument in arguments if argument not in words])
    if not words:
        return others
    if any(other.startswith(f"{key}=") for other in others):
        raise ZooError(f"{words[0]} and {key}=… name {key} twice; write it in one place: {key}=…")
    if command in LISTS:
        return [f"{key}=[{','.join(map(quoted, words))}]", *others]
    if len(words) > 1:
        raise ZooError(f"zoo {command} takes one {key}, not {len(words)}: {', '.join(words)}")
    return [f"{key}={quoted(words[0])}", *others]


def quoted(text: str) -> str:
    """Return a text as Hydra's grammar takes it whole: backslashes count before a quote and at the end."""
    escaped = re.sub(r"(\\*)('|$)", lambda match: match[1] * 2 + ("\\'" if match[2] else ""), text)
    return f"'{escaped}'"


def _is_word(argument: str) -> bool:
    """Tell a word from an override, which has a ``=``, or begins with ``~`` where it deletes something."""
    return "=" not in argument and (not argument.startswith("~") or argument.startswith("~/"))


def refuse_unknown_names(
    overrides: Iterable[Override], known_keys: Sequence[str], typed_keys: Sequence[str]
) -> None:
    """Raise `ZooError` for a name that is wrong whatever the algorithm, which takes long to import.

    ``known_keys`` are the names at the top of the command's config, ``typed_keys`` what users type for them;
    what is added by ``+`` may be any.
    """
    for override in overrides:
        if override.key_or_group in NOT_OF_HYDRA:
            raise ZooError(f"`{override.key_or_group}` is not used: {NOT_OF_HYDRA[override.key_or_group]}")
        if override.is_add() or override.is_hydra_override():
            continue
        section, *rest = re.split(r"[./]", override.key_or_group)
        if section not in known_keys:
            raise unknown_key(section, typed_keys, "", rest="".join(f".{each}" for each in rest))
        if rest and section in sections.SECTIONS:
            known = [field.name for field in dataclasses.fields(sections.section_class(section))]
            if rest[0] not in known:
                raise unknown_key(rest[0], known, section)


def refuse_empty_choices(overrides: Iterable[Override], options: Mapping[str, Sequence[str]]) -> None:
    """Raise `ZooError` for a group that is given no option, or left out; ``options`` are those of each."""
    for override in overrides:
        group = override.key_or_group
        if group not in options:
            continue
        none = f"; {group}=none leaves it empty" if "none" in options[group] else ""
        if override.is_delete():
            raise ZooError(f"`~{group}`: the section {group} can't be left out{none}")
        if override.is_sweep_override():
            continue
        value = override.value()
        if value == "" or not isinstance(value, str | list):
            raise ZooError(f"`{override.input_line}` names nothing; expected {group}=NAME{none}")


def refuse_several_values(overrides: Iterable[Override]) -> None:
    """Raise `ZooError` for a setting with several values where one job runs."""
    for override in overrides:
        if override.is_sweep_override():
            raise ZooError(
                f"`{override.input_line}` stands for several values: add -m to run each of them"
                " (a list is written [a,b], a text with commas \"'a,b'\")"
            )


def refuse_pretraining_from_nothing(overrides: Iterable[Override], config: Mapping[str, Any]) -> None:
    """Raise `ZooError` for a typed setting of pretraining where there is nothing to start from.

    An experiment may say how to pretrain, and leave the data to whoever has some.
    """
    pretrain = config.get("pretrain")
    if not isinstance(pretrain, Mapping) or pretrain.get("dataset") is not None:
        return
    usual = {field.name: field.default for field in dataclasses.fields(sections.section_class("pretrain"))}
    for override in overrides:
        section, _, key = override.key_or_group.partition(".")
        if section == "pretrain" and key in usual and pretrain.get(key) != usual[key]:
            raise ZooError(
                f"`pretrain.{key}={pretrain.get(key)}` does nothing by itself: it needs"
                " pretrain.dataset=PATH, the expert data to start from"
            )
