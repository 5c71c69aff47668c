"""Values from environment variables (``${oc.env:NAME}``): used as values, saved as typed.

Such values are secrets or paths of one machine, but a run's config, agents and trackers are shared. So a text
from a variable carries its placeholder, which replaces the value wherever a config leaves the process.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from typing_extensions import Self

from zoo.config.aliases import HYDRA
from zoo.config.user_files import import_own
from zoo.core.printing import one_line
from zoo.errors import ZooError


class VariableText(str):
    """A text that an environment variable gave, and how it was ``written``."""

    written = ""

    def __new__(cls, value: str, written: str = "") -> Self:
        text = super().__new__(cls, value)
        text.written = written
        return text


def resolved(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config as plain values, with `VariableText` where variables gave a text. Raises `ZooError`."""
    try:
        source: Any = config if OmegaConf.is_config(config) else OmegaConf.create(as_written(config))
        written: Any = OmegaConf.to_container(source)
        everything = str(written)
        if "${" not in everything:
            return written
        resolvers = re.findall(r"\$\{([\w.]+):", everything)
        if Path("conf/resolvers.py").is_file() and not all(map(OmegaConf.has_resolver, resolvers)):
            import_own("conf.resolvers")  # which registers the user's own
        plain = OmegaConf.to_container(source, resolve=True)
    except OmegaConfBaseException as error:
        message = one_line(str(error).partition("\n")[0].rpartition("resolving interpolation: ")[2])
        hint = next((f"; {hint}" for words, hint in HYDRA["interpolations"].items() if words in message), "")
        key = f"`{error.full_key}`: " if error.full_key else ""
        raise ZooError(f"{key}{message}{hint}") from error
    secrets = [os.environ.get(name, "") for name in re.findall(r"oc\.env:\s*(\w+)", everything)]

    def named(value: Any, text: Any) -> Any:
        if isinstance(text, dict):
            return {key: named(value[key], item) for key, item in text.items()}
        if isinstance(text, list):
            return [named(*pair) for pair in zip(value, text, strict=True)]
        if not isinstance(value, str) or "${" not in text:
            return value
        # What refers to a variable's value has it too.
        is_secret = "oc.env" in text or any(secret and secret in value for secret in secrets)
        return VariableText(value, text) if is_secret else value

    result: dict[str, Any] = named(plain, written)
    return result


def as_written(value: Any) -> Any:
    """Return a config, or a part of one, with the names of variables where their values stood."""
    if isinstance(value, Mapping):
        return {key: as_written(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_written(item) for item in value]
    return value.written if isinstance(value, VariableText) else value
