"""Plain data as YAML and JSON: mappings, lists, texts, numbers and nothing that could be more.

What is read may come from a stranger: no tag makes an object, no reference multiplies a few bytes into many.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from typing import Any

import yaml

from zoo.files.opening import CONFIG_LIMIT

VALUES_LIMIT = 20_000
"""Names and values that a config may have; real ones have some hundreds."""
BITS_LIMIT = 1_000
"""What a whole number may have; a float holds it then."""
NUMBER_LIMIT = 1_200
"""Characters that a number in YAML may have: `BITS_LIMIT` in any notation."""

_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_BAD_SCALAR = (ArithmeticError, AttributeError, LookupError)
"""What PyYAML raises for ``!!int ""``, ``!!bool maybe``, ``!!timestamp x`` and such."""


def plain(value: Any) -> Any:
    """Return the value with NumPy's scalars and arrays, tuples, sets and paths as YAML and JSON have them."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return value.tolist()
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def to_yaml(values: Mapping[str, Any]) -> str:
    """Return the values as YAML without references."""
    return yaml.dump(plain(values), Dumper=_Dumper, sort_keys=False, allow_unicode=True)


def to_json(values: Any) -> str:
    """Return the values as indented JSON."""
    return json.dumps(plain(values), indent=2) + "\n"


def with_finite_numbers(values: Any) -> Any:
    """Return plain data with None for numbers that JSON does not have: NaN, and what is infinite."""
    if isinstance(values, Mapping):
        return {key: with_finite_numbers(item) for key, item in values.items()}
    if isinstance(values, list | tuple):
        return [with_finite_numbers(item) for item in values]
    return None if isinstance(values, float) and not math.isfinite(values) else values


def parse_yaml(content: bytes, *, n_values: int | None = None) -> dict[str, Any]:
    """Return the mapping that YAML holds. Raises `ValueError` in one line if it is not one of plain data.

    With ``n_values`` it may hold so many names and values: each takes a while to read.
    """
    return _parsed(_Loader, content, math.inf if n_values is None else n_values)


def _parsed(loader_class: type[_Loader], content: bytes, n_values: float) -> dict[str, Any]:
    try:
        loader = loader_class(content.decode())
        loader.n_values_left = n_values
        values = loader.get_single_data()
        _check(values)
        _refuse_objects(values, "")
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise ValueError(f"{line}{error.problem}") from error
    except (yaml.YAMLError, RecursionError, *_BAD_SCALAR) as error:
        raise ValueError(" ".join(str(error).split()) or "a value is none of its kind") from error
    assert isinstance(values, dict)
    return values


def parse_config(content: bytes) -> dict[str, Any]:
    """Return what the config of an agent or a run holds, if it is as large as one; else as `parse_yaml`."""
    if len(content) > CONFIG_LIMIT:
        raise ValueError(f"it has {len(content):,} bytes")
    return parse_yaml(content, n_values=VALUES_LIMIT)


def parse_hydra_config(content: bytes) -> dict[str, Any]:
    """Return what a stranger's file for Hydra holds, as `parse_config`; ``1e5`` is a number there."""
    if len(content) > CONFIG_LIMIT:
        raise ValueError(f"it has {len(content):,} bytes")
    return _parsed(_HydraLoader, content, VALUES_LIMIT)


def parse_json(content: bytes | str) -> dict[str, Any]:
    """Return the mapping that JSON holds. Raises `ValueError` if it is none."""
    try:
        values = json.loads(content)
        _check(values)
    except RecursionError as error:
        raise ValueError(str(error)) from error
    assert isinstance(values, dict)
    return values


class _Dumper(yaml.SafeDumper):
    """Writes a value that occurs twice in full each time."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


class _Loader(yaml.SafeLoader):
    """Reads no references, no more values than it may, and no number that is too long to be one."""

    n_values_left: float = math.inf

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if self.check_event(yaml.AliasEvent):
            raise yaml.composer.ComposerError(None, None, "a reference (*name)", event.start_mark)
        self.n_values_left -= 1
        if self.n_values_left < 0:
            raise yaml.composer.ComposerError(None, None, "too many values", event.start_mark)
        return super().compose_node(parent, index)

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        if node.tag in _NUMBERS and len(node.value) > NUMBER_LIMIT:
            raise yaml.constructor.ConstructorError(None, None, "a number is too long", node.start_mark)
        return super().construct_scalar(node)


class _HydraLoader(_Loader):
    """Reads numbers as OmegaConf does, and no name twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if len(set(names)) < len(names):
            raise yaml.constructor.ConstructorError(None, None, "a name stands there twice", node.start_mark)
        return super().construct_mapping(node, deep)


_HydraLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(\d[\d_]*\.?[\d_]*|\.\d[\d_]*)[eE][-+]?\d+$"),
    list("-+.0123456789"),
)


def _check(values: Any) -> None:
    """Refuse what is no mapping, and whole numbers that no text shows and no float holds."""
    if not isinstance(values, dict):
        raise ValueError("it holds no mapping")
    rest: list[Any] = [values]
    while rest:
        value = rest.pop()
        if isinstance(value, int) and value.bit_length() > BITS_LIMIT:
            raise ValueError(f"a whole number has {value.bit_length():,} bits")
        if isinstance(value, dict):
            rest += value
            rest += value.values()
        elif isinstance(value, list):
            rest += value


def _refuse_objects(value: Any, path: str) -> None:
    """Refuse what YAML can hold beside plain data: dates, bytes, sets, keys that are not names or numbers."""
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str | int):
                raise ValueError(f"the key `{key}` in `{path}` is no name")
            _refuse_objects(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _refuse_objects(item, f"{path}[{index}]")
    elif not isinstance(value, str | int | float | None):
        raise ValueError(f"`{path}` is a {type(value).__name__}")
