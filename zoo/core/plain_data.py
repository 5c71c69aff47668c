"""Plain data as YAML and JSON: mappings, lists, texts and numbers, and no other objects."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

import yaml


def plain(value: Any) -> Any:
    """Return the value with NumPy's scalars and arrays, tuples, sets and paths as YAML and JSON have them."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return value.tolist()
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def flat(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value inside with its dotted path; an empty mapping is a value."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def value_at(values: Any, path: str) -> Any:
    """Return the value at a dotted path; None if there is none."""
    for key in path.split("."):
        values = values.get(key) if isinstance(values, Mapping) else None
    return values


def to_yaml(values: Mapping[str, Any]) -> str:
    """Return the values as YAML without references."""
    return yaml.safe_dump(plain(values), sort_keys=False, allow_unicode=True)


def to_json(values: Any) -> str:
    """Return the values as indented JSON."""
    return json.dumps(plain(values), indent=2) + "\n"


def with_finite_numbers(values: Any) -> Any:
    """Return the values as JSON has them, with None for numbers that it does not have: NaN, and infinity."""
    return json.loads(json.dumps(plain(values)), parse_constant=lambda name: None)


def parse_own_yaml(content: bytes) -> dict[str, Any]:
    """Fast `parse_yaml` (libyaml) for Zoo's own files; deep nesting crashes libyaml."""
    return parse_yaml(content, _Loader if b"*" in content else getattr(yaml, "CSafeLoader", _Loader))


def parse_yaml(content: bytes, loader: type[Any] | None = None) -> dict[str, Any]:
    """Return the mapping that YAML holds. Raises `ValueError` in one line if it is not one of plain data."""
    try:
        values = yaml.load(content.decode(), loader or _Loader)
        json.dumps(values)  # dates, bytes and sets are no plain data
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise ValueError(f"{line}{error.problem}") from error
    except (yaml.YAMLError, TypeError, RecursionError) as error:
        raise ValueError(" ".join(str(error).split())) from error
    return _mapping(values)


def parse_json(content: bytes | str) -> dict[str, Any]:
    """Return the mapping that JSON holds. Raises `ValueError` if it is none."""
    try:
        return _mapping(json.loads(content))
    except RecursionError as error:
        raise ValueError(str(error)) from error


def _mapping(values: Any) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise ValueError("it holds no mapping")
    return values


class _Loader(yaml.SafeLoader):
    """Reads no references, by which a few bytes could stand for many."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if self.check_event(yaml.AliasEvent):
            raise yaml.composer.ComposerError(None, None, "a reference (*name)", event.start_mark)
        return super().compose_node(parent, index)
