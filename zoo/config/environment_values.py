"""What a config takes from environment variables (``${oc.env:NAME}``): used, and written as it was typed.

Such values are tokens and places of one machine; a run's config, agents and trackers go to others. So where a
config is resolved this process keeps how the value was written, and puts that in its place wherever a config
leaves the process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from zoo.errors import ZooError

VARIABLE = "oc.env"

Path = tuple[str | int, ...]

_written: dict[Path, tuple[Any, str]] = {}
"""By place in a config: the value, and the text that stands for it."""


def resolved(config: Mapping[str, Any], *, below: Path = ()) -> dict[str, Any]:
    """Return a config, or what stands at ``below`` of one, as plain values; keep how variables were written.

    Raises `ZooError` for a variable that is not set, and an interpolation that leads nowhere.
    """
    try:
        plain: Any = OmegaConf.to_container(OmegaConf.create(dict(config)))
        texts = {path: text for path, text in _leaves(plain, below) if isinstance(text, str) and "${" in text}
        if not texts:
            return plain
        for key in reversed(below):
            plain = {key: plain}
        plain = OmegaConf.to_container(OmegaConf.create(plain), resolve=True)
    except OmegaConfBaseException as error:
        raise ZooError(str(error).partition("\n")[0]) from error
    values = {path: _at(plain, path) for path in texts}
    given = [str(values[path]) for path, text in texts.items() if VARIABLE in text and values[path]]
    for path, value in values.items():
        # What refers to such a value has it too.
        if not isinstance(value, Mapping | list) and any(each in str(value) for each in given):
            _written[path] = (value, texts[path])
    return _at(plain, below)


def as_written(value: Any, path: Path = ()) -> Any:
    """Return a config, or what begins like one, with the names of variables where their values stood."""
    if isinstance(value, Mapping):
        return {str(key): as_written(item, (*path, str(key))) for key, item in value.items()}
    if isinstance(value, list):
        return [as_written(item, (*path, index)) for index, item in enumerate(value)]
    known, text = _written.get(path, (None, None))
    return text if text is not None and known == value else value


def kept() -> list[tuple[list[str | int], Any, str]]:
    """Return what is kept, as plain data, for `keep` in another process."""
    return [(list(path), value, text) for path, (value, text) in _written.items()]


def keep(values: list[tuple[list[str | int], Any, str]]) -> None:
    """Keep what another process kept."""
    _written.update({tuple(path): (value, text) for path, value, text in values})


def _leaves(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if not isinstance(value, Mapping | list):
        yield path, value
        return
    for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
        yield from _leaves(item, (*path, key))


def _at(value: Any, path: Path) -> Any:
    for key in path:
        value = value[key]
    return value
