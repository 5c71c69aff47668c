"""What may stand on the command line without ``key=``, and keys that go by another name there."""

from __future__ import annotations

import re
from collections.abc import Sequence

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
    given as well, or for more words than are taken. Where a command takes none, Hydra tells.
    """
    key = LISTS.get(command) or WORDS.get(command)
    words = [argument for argument in arguments if key is not None and _is_word(argument)]
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
