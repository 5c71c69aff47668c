"""What a config takes from environment variables (``${oc.env:NAME}``): used, and written as it was typed.

Such values are tokens and places of one machine; a run's config, agents and trackers go to others. So where a
config is resolved this process keeps how the value was written, and puts that in its place wherever a config
leaves the process.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from zoo.core.printing import one_line
from zoo.errors import ZooError

VARIABLE = "oc.env"

Path = tuple[str | int, ...]

_written: dict[Path, tuple[Any, str]] = {}
"""By place in a config: the value, and the text that stands for it."""


def resolved(config: DictConfig) -> dict[str, Any]:
    """Return a config as plain values; how those were written that variables give is kept.

    Raises what OmegaConf does for interpolations that lead nowhere.
    """
    plain: Any = OmegaConf.to_container(config, resolve=True)
    raw: Any = OmegaConf.to_container(config, resolve=False)
    texts = {path: text for path, text in _leaves(raw) if isinstance(text, str) and "${" in text}
    for path in _variable_places(texts):
        value = _at(plain, path)
        if not isinstance(value, Mapping | list):
            _written[path] = (value, texts[path])
    return {str(key): value for key, value in plain.items()}


def plain_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config as plain values; see `resolved`."""
    return resolved(OmegaConf.create(dict(config)))


def resolved_values(values: Mapping[str, Any], *, below: Path = ()) -> dict[str, Any]:
    """Return plain values of a trusted file with what variables give; they stand at ``below`` of a config.

    Raises `ZooError` for a variable that is not set.
    """
    if not any(isinstance(text, str) and "${" in text for _, text in _leaves(values)):
        return dict(values)
    config: Any = dict(values)
    for key in reversed(below):
        config = {key: config}
    try:
        found: Any = _at(resolved(OmegaConf.create(config)), below)
    except OmegaConfBaseException as error:
        raise ZooError(f"a config's value can't be had: {one_line(error)}") from error
    return dict(found)


def as_written(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config, or what begins like one, with the names of variables where their values stood."""
    return {str(key): _as_written(value, (str(key),)) for key, value in config.items()}


def without_variables(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config without what variables give, for files that may not name any."""
    return {str(key): _without_variables(value, (str(key),)) for key, value in config.items()}


def kept() -> list[tuple[list[str | int], Any, str]]:
    """Return what is kept, as plain data, for `keep` in another process."""
    return [(list(path), value, text) for path, (value, text) in _written.items()]


def keep(values: list[tuple[list[str | int], Any, str]]) -> None:
    """Keep what another process kept."""
    _written.update({tuple(path): (value, text) for path, value, text in values})


def _as_written(value: Any, path: Path) -> Any:
    if isinstance(value, Mapping):
        return {key: _as_written(item, (*path, key)) for key, item in value.items()}
    if isinstance(value, list):
        return [_as_written(item, (*path, index)) for index, item in enumerate(value)]
    known, text = _written.get(path, (None, None))
    return text if text is not None and known == value else value


def _without_variables(value: Any, path: Path) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {
        key: _without_variables(item, (*path, key))
        for key, item in value.items()
        if isinstance(item, Mapping) or _as_written(item, (*path, key)) == item
    }


def _variable_places(texts: Mapping[Path, str]) -> set[Path]:
    """Return the places whose text names a variable, or a value that does."""
    found = {path for path, text in texts.items() if VARIABLE in text}
    while True:
        names = {str(path[-1]) for path in found}
        more = {
            path
            for path, text in texts.items()
            if path not in found and names & set(re.findall(r"[\w-]+(?=\]?\})", text))
        }
        if not more:
            return found
        found |= more


def _leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _leaves(item, (*path, index))
    else:
        yield path, value


def _at(value: Any, path: Path) -> Any:
    for key in path:
        value = value[key]
    return value
