"""Spaces out of the words in which Stable-Baselines3's files print them beside their pickles."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from zoo.errors import ZooError
from zoo.files.printing import one_line

Space = spaces.Space[Any]

SIZE_LIMIT = 2**24
"""Numbers that an observation or an action may have."""
TEXT_LIMIT = 100_000
"""Characters that a printed space may have; NumPy shortens arrays of more than a thousand numbers."""

_NUMBER = re.compile(r"[-+]?(?:inf|\d+\.?\d*(?:e[-+]?\d+)?|\.\d+)")
_KIND = re.compile(r"<class '(?:gym|gymnasium)\.spaces\.\w+\.(\w+)'>")
_PART = re.compile(
    r"""(?P<key>'(?:[^'\\]|\\.){0,200}'|"(?:[^"\\]|\\.){0,200}")\s*[:,]\s*(?P<kind>Box|Discrete|MultiDiscrete|MultiBinary)\("""
)


class UnknownSpaceError(ZooError):
    """The words don't say all of a space."""


def printed_space(words: Mapping[str, Any]) -> Space:
    """Return the space that was printed attribute by attribute. Raises `UnknownSpaceError`."""
    try:
        return _space(words)
    except UnknownSpaceError:
        raise
    except (
        KeyError,
        ValueError,
        TypeError,
        OverflowError,
        MemoryError,
        AssertionError,
        SyntaxError,
    ) as error:
        raise UnknownSpaceError(f"its description can't be read ({type(error).__name__}: {error})") from error


def _space(words: Mapping[str, Any]) -> Space:
    match = _KIND.fullmatch(str(words.get(":type:", "")))
    kind = match[1] if match else "nothing"
    if kind == "Box":
        shape = _shape(words.get("_shape", words.get("shape")))
        dtype = _type_of_numbers(re.sub(r"<class 'numpy\.(\w+)'>", r"\1", str(words["dtype"])))
        low, high = (
            _bounds(words[name], words.get(f"{name}_repr"), shape, dtype) for name in ("low", "high")
        )
        return _box(low, high, shape, dtype)
    if kind == "Discrete":
        return spaces.Discrete(_within_limit(int(words["n"])), start=int(words.get("start", 0)))
    if kind == "MultiDiscrete":
        return _multi_discrete(_text(words["nvec"]))
    if kind == "MultiBinary":
        return _multi_binary(_text(words["n"]))
    if kind == "Dict":
        return _dict(_text(words["spaces"]))
    raise UnknownSpaceError(f"it is described as {kind}")


def _text(value: Any) -> str:
    text = str(value)
    if len(text) > TEXT_LIMIT:
        raise UnknownSpaceError(f"its description has {len(text):,} characters")
    return text


def _within_limit(size: int) -> int:
    if size > SIZE_LIMIT:
        raise UnknownSpaceError(f"it has more than {SIZE_LIMIT:,} numbers")
    return size


def _shape(value: Any) -> tuple[int, ...]:
    shape = tuple(int(n) for n in (value if isinstance(value, list | tuple) else _numbers(_text(value))))
    if len(shape) > 32 or any(not 1 <= n <= SIZE_LIMIT for n in shape) or math.prod(shape) > SIZE_LIMIT:
        raise UnknownSpaceError("its shape is not one, or of too many numbers")
    return shape


def _box(low: Any, high: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> spaces.Box:
    return spaces.Box(low, high, shape, dtype.type)


def _type_of_numbers(name: str) -> np.dtype[Any]:
    """Return the type of that name; texts, records and others may have gigabytes an element."""
    dtype = np.dtype(name)
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        raise UnknownSpaceError(f"its type is {one_line(name, 40)}")
    return dtype


def _bounds(text: Any, short: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return bounds out of a printed array; where that is not whole, out of the number that all are."""
    for each in (text, short):
        if each is None or "..." in _text(each):
            continue
        numbers = _numbers(_text(each))
        if len(numbers) in (1, math.prod(shape)):
            values = np.array(numbers, np.float64)
            whole = (
                values.reshape(shape) if len(numbers) == math.prod(shape) else np.broadcast_to(values, shape)
            )
            return whole.astype(dtype)
    shown = set(_numbers(_text(text)))
    if dtype == np.uint8 and shown in ({0.0}, {255.0}):  # an image, of which not all pixels are printed
        return np.full(shape, shown.pop(), dtype)
    raise UnknownSpaceError("its bounds are not printed in full")


def _numbers(text: str) -> list[float]:
    return [float(number) for number in _NUMBER.findall(text)]


def _multi_discrete(nvec: str) -> spaces.MultiDiscrete:
    if "..." in nvec or nvec.count("[") > 1:
        raise UnknownSpaceError("its choices are not printed in one row")
    choices = [int(n) for n in _numbers(nvec)]
    _within_limit(sum(choices))
    return spaces.MultiDiscrete(np.array(choices))


def _multi_binary(n: str) -> spaces.MultiBinary:
    sizes = _shape(n)
    return spaces.MultiBinary(sizes[0] if len(sizes) == 1 else sizes)


def _dict(text: str) -> spaces.Dict:
    """Return a dictionary of spaces out of how Python prints one."""
    parts: list[tuple[str, Space]] = []
    position = size = 0
    while match := _PART.search(text, position):
        arguments, position = _arguments(text, match.end())
        part = _part(match["kind"], arguments)
        size = _within_limit(size + spaces.flatdim(part))
        parts.append((ast.literal_eval(match["key"]), part))
    if not parts:
        raise UnknownSpaceError("its parts are not printed in a known form")
    return spaces.Dict(parts)


def _arguments(text: str, start: int) -> tuple[list[str], int]:
    """Return what stands between the commas up to the closing bracket, and the place behind that."""
    arguments, depth, begin = [], 0, start
    for place in range(start, len(text)):
        character = text[place]
        if character in "([":
            depth += 1
        elif character in ")]" and depth:
            depth -= 1
        elif character == ")" or (character == "," and not depth):
            arguments.append(text[begin:place].strip())
            begin = place + 1
            if character == ")":
                return arguments, begin
    raise UnknownSpaceError("its parts are not printed in full")


def _part(kind: str, arguments: list[str]) -> Space:
    if kind == "Box":
        low, high, shape_text, dtype_text = arguments
        shape, dtype = _shape(shape_text), _type_of_numbers(dtype_text)
        return _box(_bounds(low, None, shape, dtype), _bounds(high, None, shape, dtype), shape, dtype)
    if kind == "Discrete":
        start = next((text.partition("=")[2] for text in arguments[1:] if text.startswith("start=")), "0")
        return spaces.Discrete(_within_limit(int(arguments[0])), start=int(start))
    if kind == "MultiDiscrete":
        return _multi_discrete(arguments[0])
    return _multi_binary(arguments[0])
