"""Saying in one short message, instead of Hydra's many, what is wrong with a command line or a file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import yaml
from hydra.errors import (
    HydraException,
    MissingConfigException,
    OverrideParseException,
)
from omegaconf.errors import OmegaConfBaseException

from zoo.config.names_elsewhere import OPTIONS
from zoo.config.unknown_keys import unknown_key
from zoo.errors import ZooError, nearest

HYDRA_ERRORS = (HydraException, OmegaConfBaseException, yaml.YAMLError)


CALLED_OTHERWISE = {"init_from.what": "init_with"}
"""Parts of settings that have none, and the settings that say the same."""


def as_zoo_error(error: Exception, known_keys: Sequence[str]) -> ZooError:
    """Return what the user should read; ``known_keys`` are the names at the top of the command's config."""
    if isinstance(error, OverrideParseException):
        return ZooError(_unreadable(error))
    if isinstance(error, MissingConfigException):
        return ZooError(_unknown_option(error))
    text = str(error)
    for pattern, explain in _EXPLANATIONS:
        match = re.search(pattern, text)
        if match is not None:
            return ZooError(explain(match, known_keys))
    cause = error.__cause__
    if isinstance(cause, OmegaConfBaseException):
        text = f"{text}: {cause}" if text else str(cause)
    return ZooError(_first_lines(text))


def _unreadable(error: OverrideParseException) -> str:
    override = error.override
    if "=" not in override:
        return f"`{override}` has no value; expected key=value, such as n_timesteps=1e5"
    key, _, value = override.partition("=")
    section, _, name = key.lstrip("+~").rpartition(".")
    elsewhere = unknown_key(name, [], section)
    if elsewhere.is_answered:
        return str(elsewhere)
    if value.startswith("(") and value.endswith(")"):
        items = re.sub("[\"' ]", "", value[1:-1]).rstrip(",")
        return f"`{override}` can't be read: a list is written in brackets, '{key}=[{items}]'"
    if value.count("[") > value.count("]"):
        return (
            f"`{override}` can't be read: the list has no end; if it has spaces it needs quotes: '{key}=[…]'"
        )
    if value.endswith(","):
        return f"`{override}` can't be read: it ends with a comma; for several values: -m {key}=a,b"
    quoted = f"; a value with special characters needs quotes: '{key}=\"{value}\"'"
    return f"`{override}` can't be read: {_first_lines(error.message)}{quoted}"


def _unknown_option(error: MissingConfigException) -> str:
    group, _, name = (error.missing_cfg_file or "").partition("/")
    if not name:
        return _first_lines(str(error))
    if group == "hydra":
        kind, _, name = name.partition("/")
        group = f"hydra/{kind}"
    options = list(error.options or ())
    if group == "experiment" and name.endswith(".yaml"):
        return f"there is no file {name}"
    if group == "experiment" and Path(name).suffix:
        return f"experiment={name}: the config of an experiment is a file that ends in .yaml"
    if OPTIONS.get(name) in options:
        return f"unknown {group} '{name}': it is {group}={OPTIONS[name]} here"
    known = f" (known: {', '.join(options)})" if options else ""
    return f"unknown {group} '{name}'{_nearest(name, options)}{known}"


def _nearest(name: str, options: Sequence[str]) -> str:
    """Like `nearest`, but a name whose digits are wrong has several right ones: ``ppo3`` is ppo or ppo2."""
    stem = name.rstrip("0123456789")
    relatives = [option for option in options if stem and option.rstrip("0123456789") == stem]
    if len(relatives) > 1:
        return f"; did you mean {' or '.join(repr(option) for option in relatives)}?"
    return nearest(name, options)


def _not_in_config(match: re.Match[str], known_keys: Sequence[str]) -> str:
    key = match[1]
    section, _, rest = key.partition(".")
    if section == "hydra":
        return f"unknown key `{key}` in Hydra's own settings; zoo train --cfg hydra shows them"
    if key in CALLED_OTHERWISE:
        return f"`{key}` is `{CALLED_OTHERWISE[key]}` here"
    if rest and section in known_keys:
        return f"`{key}` can't be set: `{section}` has no such part"
    return str(unknown_key(section, list(known_keys), ""))


def _sweep(match: re.Match[str], known_keys: Sequence[str]) -> str:
    return (
        f"`{match[1]}` stands for several values: add -m to run each of them"
        f" (a list is written [a,b], a text with commas \"'a,b'\")"
    )


def _interval(match: re.Match[str], known_keys: Sequence[str]) -> str:
    return (
        f"`{match[1].lower()}`: a range to search in is for zoo tune (conf/tune/space);"
        " a multirun takes a,b or range(n)"
    )


def _nothing_to_delete(match: re.Match[str], known_keys: Sequence[str]) -> str:
    key = match[1]
    return (
        f"`~{key}` has nothing to leave out: {'it is null' if key in known_keys else 'there is no such key'}"
    )


def _already_there(match: re.Match[str], known_keys: Sequence[str]) -> str:
    return f"`{match[1]}` is in the config already: set it without the +"


def _one_option(match: re.Match[str], known_keys: Sequence[str]) -> str:
    what = "null (to leave tuned values out: tuned=none)" if match[1] == "NoneType" else f"a {match[1]}"
    return f"a group such as algo or env takes the name of one option, not {what}"


def _no_choice(match: re.Match[str], known_keys: Sequence[str]) -> str:
    return "algo and env can't be left out: each takes the name of one option"


def _bad_value(match: re.Match[str], known_keys: Sequence[str]) -> str:
    return f"`{match[1]}` does not fit where it is set: only a mapping has parts of its own"


_EXPLANATIONS = (
    (r"(?:Ambiguous value for argument|Sweep parameters) '([^']+=interval\(.*\))'", _interval),
    (r"does not support sweep type : (INTERVAL)_SWEEP", _interval),
    (r"Ambiguous value for argument '([^']+)'", _sweep),
    (r"Sweep parameters '([^']+)' requires", _sweep),
    (r"Could not delete from config\. '([^']+)' does not exist", _nothing_to_delete),
    (r"An item is already at '([^']+)'", _already_there),
    (r"Multiple values for (\w+)", _already_there),
    (r"Config group override must be a string or a list. Got (\w+)", _one_option),
    (r"Error resolving interpolation '[^']*\$\{algo\}", _no_choice),
    (r"Could not override '([^'@]+)", _not_in_config),
    (r"looks like a config group override, but config group '([^'@]+)", _not_in_config),
    (r"Error merging override (\S+)", _bad_value),
)


_HINT = re.compile(r"\s*(To append|See https?:|Config search path|Available options|Did you mean|full_key)")


def _first_lines(text: str) -> str:
    """Return what stands before Hydra's hints and paths, on one line."""
    kept: list[str] = []
    for line in text.splitlines():
        if _HINT.match(line):
            break
        if line.strip():
            kept.append(line.strip())
    return "; ".join(kept)
