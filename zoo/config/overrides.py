"""Hydra overrides: parsed from the command line, made from Python settings, formatted for people."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, Quote, QuotedString
from hydra.errors import OverrideParseException

from zoo.config.sections import SECTIONS
from zoo.config.user_files import path_of_class
from zoo.core.printing import one_line
from zoo.errors import ZooError

WORD_KEYS = {"plot": "runs", "compare": "runs", "import": "file", "pull": "source", "status": "folder"}
"""Commands that take bare words, and the key that these are the value of; ``runs`` are any number."""

KEYS_BY_TYPED_NAME = {
    "pull": {"from": "source"},
    **{command: {"env": "env.id"} for command in ("enjoy", "evaluate", "record")},
}
"""Keys that configs call otherwise: where Python has taken their names, or as parts of others."""


def parse_overrides(overrides: Sequence[str], loader: ConfigLoader | None = None) -> list[Override]:
    """Return overrides as Hydra reads them, ``glob`` by a ``loader``. Raises `ZooError`."""
    try:
        return OverridesParser.create(loader).parse_overrides(list(overrides))
    except OverrideParseException as error:
        raise ZooError(
            f"`{error.override}` can't be read: {one_line(error.message.partition(chr(10))[0])}; expected"
            " key=value, 'key=[a,b]' for a list, and 'key=\"…\"' for a text with special characters"
        ) from error


def with_config_keys(command: str, overrides: Sequence[str]) -> list[str]:
    """Return the overrides with each key as the command's settings call it."""
    names = {"algo._target_": "algo", "intrinsic": "algo.intrinsic.kind"}
    names |= KEYS_BY_TYPED_NAME.get(command, {})
    none = {f"intrinsic={word}": "algo.intrinsic=null" for word in ("null", "none", "false")}
    overrides = [none.get(override, override) for override in overrides]
    parts = [re.sub(r"^intrinsic\.", "algo.intrinsic.", override).partition("=") for override in overrides]
    return [f"{names.get(name, name)}{equals}{value}" for name, equals, value in parts]


def parse_arguments(command: str, arguments: Sequence[str]) -> list[str]:
    """Return overrides: ``zoo plot runs/ppo2 x=hours`` is ``zoo plot runs=['runs/ppo2'] x=hours``.

    Raises `ZooError` if the key is given as well, or for more words than are taken.
    """
    key = WORD_KEYS.get(command)
    # ``~key`` deletes something, ``~/folder`` is a word.
    words = [word for word in arguments if "=" not in word and (word[:1] != "~" or word[:2] == "~/")]
    if key is None and words:
        raise ZooError(
            f"`{words[0]}` has no value; expected key=value, such as n_timesteps=1e5, in quotes if it has"
            f" spaces (see: zoo {command} --help)"
        )
    others = with_config_keys(command, [argument for argument in arguments if argument not in words])
    if not words:
        return others
    if any(other.startswith(f"{key}=") for other in others):
        raise ZooError(f"{words[0]} and {key}=… name {key} twice; write it in one place: {key}=…")
    if key != "runs" and len(words) > 1:
        raise ZooError(f"zoo {command} takes one {key}, not {len(words)}: {', '.join(words)}")
    return [f"{key}={as_hydra_reads(words if key == 'runs' else words[0])}", *others]


def quoted(text: str) -> str:
    """Return a text as Hydra's grammar takes it whole."""
    return QuotedString(text, Quote.single).with_quotes()


def format_overrides(overrides: Iterable[Any]) -> str:
    """Return overrides as the user would type them, without Hydra's backslashes and Python's constants."""
    text = " ".join(re.sub(r"\\(.)", r"\1", str(override)) for override in overrides)
    constants = {"True": "true", "False": "false", "None": "null"}
    return re.sub(r"(?<==)(True|False|None)(?= |$)", lambda match: constants[match[1]], text)


def as_overrides(settings: Mapping[str, Any]) -> list[str]:
    """Return settings of Python's as overrides: ``{"algo": {"gamma": 0.9}}`` is ``algo.gamma=0.9``."""
    overrides = []
    for key, value in settings.items():
        if key in ("algo", *SECTIONS) and isinstance(value, Mapping):
            for name, setting in value.items():
                path = path_of_class(setting, key) if isinstance(setting, type) else setting
                overrides.append(f"{key}.{name}={as_hydra_reads(path)}")
        else:
            overrides.append(f"{key}={as_hydra_reads(value)}")
    return overrides


def as_hydra_reads(value: Any) -> str:
    """Return a value of Python's in Hydra's grammar. Raises `ZooError` for one that no config can hold."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str | os.PathLike):
        return quoted(os.fspath(value))
    if isinstance(value, Real):
        return repr(int(value) if isinstance(value, Integral) else float(value))
    if isinstance(value, Mapping) and all(re.fullmatch(r"[\w.-]+", str(key)) for key in value):
        return f"{{{','.join(f'{key}:{as_hydra_reads(item)}' for key, item in value.items())}}}"
    if isinstance(value, Sequence):
        return f"[{','.join(map(as_hydra_reads, value))}]"
    raise ZooError(
        f"{one_line(repr(value))} can't be in a config; expected numbers, texts, lists or dicts; a class is"
        " named by its module, which other processes import: env='MODULE:Id-v0'"
    )
