"""What a config takes from environment variables (``${oc.env:NAME}``): used, and written as it was typed.

Such values are tokens and places of one machine; a run's config, agents and trackers go to others. So where a
config is resolved this process keeps how the value was written, and puts that in its place wherever a config
leaves the process.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path as FilePath
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from zoo.config.aliases import HYDRA
from zoo.config.user_files import import_own
from zoo.core.printing import one_line
from zoo.errors import ZooError

Path = tuple[str | int, ...]

_written: dict[Path, tuple[Any, str]] = {}
"""By place in a config: the value, and the text that stands for it."""


def resolved(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config as plain values; keep how variables were written. Raises `ZooError`."""
    try:
        source: Any = config if OmegaConf.is_config(config) else dict(config)  # a dict of one is resolved
        plain: Any = OmegaConf.to_container(OmegaConf.create(source))
        texts = {path: text for path, text in _leaves(plain) if isinstance(text, str) and "${" in text}
        if not texts:
            return plain
        resolvers = re.findall(r"\$\{([\w.]+):", " ".join(texts.values()))
        if FilePath("conf/resolvers.py").is_file() and not all(map(OmegaConf.has_resolver, resolvers)):
            import_own("conf.resolvers")  # which registers the user's own
        plain = OmegaConf.to_container(OmegaConf.create(plain), resolve=True)
    except OmegaConfBaseException as error:
        message = one_line(str(error).partition("\n")[0].rpartition("resolving interpolation: ")[2])
        hint = next((f"; {hint}" for words, hint in HYDRA["interpolations"].items() if words in message), "")
        key = f"`{error.full_key}`: " if error.full_key else ""
        raise ZooError(f"{key}{message}{hint}") from error
    values = {path: value for path, value in _leaves(plain) if path in texts}
    given = [str(value) for path, value in values.items() if "oc.env" in texts[path] and value]
    for path, value in values.items():
        if any(each in str(value) for each in given):  # what refers to such a value has it too
            _written[path] = (value, texts[path])
    return plain


def as_written(value: Any, path: Path = ()) -> Any:
    """Return a config, or what begins like one, with the names of variables where their values stood."""
    if isinstance(value, Mapping):
        return {str(key): as_written(item, (*path, str(key))) for key, item in value.items()}
    if isinstance(value, list):
        return [as_written(item, (*path, index)) for index, item in enumerate(value)]
    known, text = _written.get(path, (None, None))
    return text if text is not None and known == value else value


def _leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    if not isinstance(value, Mapping | list):
        yield path, value
        return
    for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
        yield from _leaves(item, (*path, key))
