"""Showing a config and a command to people: YAML in which every value says what it means, and help pages."""

from __future__ import annotations

import dataclasses
import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import yaml
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from zoo.config.fields import variant_of
from zoo.config.schema import SETTINGS
from zoo.config.sections import SECTIONS, algorithm_class, section_class
from zoo.config.source import header
from zoo.errors import ZooError

if TYPE_CHECKING:
    from zoo.config.compose import ConfigLoader

COMMENT_COLUMN = 36
WIDTH = 79

FLAGS = {
    "-h, --help": "this page; with algo=NAME also its hyperparameters and networks",
    "-c, --cfg job": "show the config that would be used, and do nothing; also hydra, all",
    "-p, --package KEY": "with --cfg: show this part of the config alone",
    "--resolve": "with --cfg: show the values of Hydra's interpolations (a job's always are)",
    "-m, --multirun": "run every combination of values given as a,b or range(n)",
    "-m sweep.resume=DIR": "run the unfinished jobs of a sweep",
    "-i, --info defaults": "show which files the config is put together from",
    "--version": "show the versions of Zoo and of Hydra",
}


def readable_yaml(command: str, config: Mapping[str, Any]) -> str:
    """Return the config as YAML, with the meaning of each value beside it."""
    sections = {name: section_class(name) for name in SECTIONS}
    algo = config.get("algo")
    if isinstance(algo, Mapping) and "name" in algo:
        sections["algo"] = _algo_class(algo)
    return "\n".join(_lines(config, SETTINGS[command], sections)) + "\n"


def hydra_yaml(config: DictConfig, part: str, package: str, resolve: bool) -> str:
    """Return ``part`` (job, hydra or all) of a config, or a package of it, as Hydra prints it."""
    HydraConfig.instance().set_config(config)  # for ${hydra:…}
    keys = [str(key) for key in config if part == "all" or (key == "hydra") == (part == "hydra")]
    part_config: Any = OmegaConf.masked_copy(config, keys)
    part_config = OmegaConf.select(part_config, package.replace("/", ".")) if package else part_config
    if not OmegaConf.is_config(part_config):
        raise ZooError(f"--package {package}: no such part of the config; it has {', '.join(keys)}")
    return OmegaConf.to_yaml(part_config, resolve=resolve)


def flag_names() -> list[str]:
    """Return the flags as they are typed."""
    return re.findall(r"--?[a-z][\w-]*", " ".join(FLAGS))


def _algo_class(algo: Mapping[str, Any]) -> type[Any]:
    return variant_of(algorithm_class(algo["name"]).config_class, algo, "algo")


def _fields(config_class: type[Any]) -> dict[str, Any]:
    """Return the one line of meaning of each field."""
    return {field.name: _meaning(field) for field in dataclasses.fields(config_class)}


def _meaning(field: dataclasses.Field[Any]) -> str:
    text, unit = field.metadata.get("help", ""), field.metadata.get("unit")
    choices = [str(choice) for choice in field.metadata.get("choices") or ()]
    if not all(choice in text for choice in choices):
        text = f"{text} ({', '.join(choices)})"
    return f"{text} [{unit}]" if unit and unit not in text else str(text)


def _lines(
    values: Mapping[str, Any], config_class: type[Any], sections: Mapping[str, type[Any]], indent: str = ""
) -> Iterator[str]:
    """Yield the lines of a config; nested configs that are not null are indented."""
    meanings, hints = _fields(config_class), get_type_hints(config_class)
    for key, value in values.items():
        inner: Any = next(filter(dataclasses.is_dataclass, get_args(hints.get(key))), sections.get(key))
        if inner is not None and isinstance(value, Mapping) and value:
            yield f"{indent}{key}:"
            yield from _lines(value, inner, {}, f"{indent}  ")
            continue
        line = f"{indent}{key}: {_flow(value)}"
        yield f"{line:<{COMMENT_COLUMN}}  # {meanings[key]}" if meanings.get(key) else line


def _flow(value: Any) -> str:
    plain = OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
    text = yaml.safe_dump(plain, default_flow_style=True, sort_keys=False, width=float("inf"))
    return text.removesuffix("...\n").strip()


def command_help(command: str, loader: ConfigLoader, overrides: list[str]) -> str:
    """Return the help page of a command: what it does, what can be chosen, what can be set."""
    config = loader.load_incomplete(overrides)
    parts = [header(command), *_groups(loader)]
    parts.append(_values("key=value", "", _fields(SETTINGS[command]), config))
    algo, policy = config.get("algo"), config.get("policy")
    if isinstance(algo, Mapping):
        title = f"hyperparameters of {algo.get('preset') or algo['name']}"
        parts.append(_values(title, "algo.", _fields(_algo_class(algo)), algo))
    if isinstance(algo, Mapping) and isinstance(policy, Mapping):
        parts.append(_values("networks", "policy.", _fields(section_class("policy")), policy))
    parts.append("\n".join(["flags", *_table(FLAGS)]))
    return "\n\n".join(part for part in parts if part)


def _groups(loader: ConfigLoader) -> Iterator[str]:
    for group in [*loader.groups, "hydra/launcher"]:
        options = loader.hydra.get_group_options(group)
        if group == "tuned":
            continue
        table = {option: header(f"{group}/{option}").partition("\n")[0] for option in options}
        if group.startswith("hydra"):  # without Hydra's own, which ours replace
            table = {option: meaning for option, meaning in table.items() if meaning}
        if group == "env":
            title = "env=ID: any Gymnasium id; module:Id imports the module first"
            yield "\n".join([f"{title}. With a file of their own:" if options else title, *_table(table)])
        elif options:
            yield "\n".join([f"{group}=NAME", *_table(table)])


def _values(title: str, prefix: str, meanings: Mapping[str, str], values: Mapping[str, Any]) -> str:
    table = {}
    for key in filter(values.__contains__, meanings):
        value = values[key]
        if isinstance(value, Mapping):
            value = {name: inner for name, inner in value.items() if inner is not None}
        table[f"{prefix}{key}={_flow(value)}"] = meanings[key]
    return "\n".join([title, *_table(table)]) if table else ""


def _table(rows: Mapping[str, str]) -> Iterator[str]:
    column = min(max(map(len, rows), default=0), COMMENT_COLUMN) + 4
    for name, text in rows.items():
        indent = " " * column
        first = f"  {name:<{column - 2}}" if len(name) + 4 <= column else f"  {name}\n{indent}"
        wrapped = textwrap.wrap(text, WIDTH - column) or [""]
        yield f"{first}{f'{chr(10)}{indent}'.join(wrapped)}".rstrip()
