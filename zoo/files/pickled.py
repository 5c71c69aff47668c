"""Reading a pickle as what it says, without doing it: nothing is imported, called or built.

A pickle is a program for a small machine with a stack. Here the machine only takes notes: a name stays a name
(`Named`), a call stays a call (`Made`), and what stood in lists and dictionaries stands in lists and
dictionaries. Whoever reads the notes looks for the few things that they know, such as arrays (`array_in`).
"""

from __future__ import annotations

import math
import pickletools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

OPERATIONS_LIMIT = 200_000
"""Steps of the machine; real files have some thousands."""
KEY_LIMIT = 1000
"""Characters that a text may have as the key of a dictionary."""
DIMENSIONS_LIMIT = 32
"""Dimensions that an array may have."""

_MARK = object()

Array = NDArray[Any]


class UnreadablePickleError(ValueError):
    """It is no pickle, or one that does something which nothing that is read here needs."""


@dataclass(frozen=True, eq=False)
class Named:
    """A class or function that would have been imported."""

    path: str


@dataclass(frozen=True, eq=False)
class Outside:
    """What stands outside of the pickle, by what the pickle says of it."""

    identifier: Any


@dataclass(eq=False)
class Made:
    """What a call would have returned; ``state`` and ``items`` are what it would have been given then."""

    function: Any
    arguments: Any
    state: Any = None
    items: dict[Any, Any] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """The name of what would have been called, empty if that has none."""
        return self.function.path if isinstance(self.function, Named) else ""


def read_pickle(content: bytes) -> Any:
    """Return the notes on a pickle. Raises `UnreadablePickleError`."""
    machine = _Machine()
    try:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(content)):
            if count >= OPERATIONS_LIMIT:
                raise UnreadablePickleError(f"it has more than {OPERATIONS_LIMIT:,} steps")
            if opcode.name == "STOP":
                return machine.pop()
            machine.step(opcode.name, argument)
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, MemoryError) as error:
        if isinstance(error, UnreadablePickleError):
            raise
        raise UnreadablePickleError(f"it can't be read ({type(error).__name__}: {error})") from error
    raise UnreadablePickleError("it has no end")


class _Machine:
    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def pop(self) -> Any:
        value = self.stack.pop()
        if value is _MARK:
            raise UnreadablePickleError("it takes from the stack what is not there")
        return value

    def step(self, name: str, argument: Any) -> None:
        push = self.stack.append
        if name in _IGNORED:
            return
        if name in _CONSTANTS:
            push(_CONSTANTS[name])
        elif name in _LITERALS:
            push(argument)
        elif name in _EMPTY:
            push(_EMPTY[name]())
        elif name == "MARK":
            push(_MARK)
        elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
            self.memo[int(argument)] = self.stack[-1]
        elif name == "MEMOIZE":
            self.memo[len(self.memo)] = self.stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            push(self.memo[int(argument)])
        else:
            operation = getattr(self, f"do_{name.lower()}", None)
            if operation is None:
                raise UnreadablePickleError(f"its step {name} is not known here")
            operation(argument)

    def since_mark(self) -> list[Any]:
        """Take off what stands above the last mark, and the mark."""
        above: list[Any] = []
        while (value := self.stack.pop()) is not _MARK:
            above.append(value)
        return above[::-1]

    # Containers

    def do_tuple(self, _: Any) -> None:
        self.stack.append(tuple(self.since_mark()))

    def do_tuple1(self, _: Any) -> None:
        self.stack.append((self.pop(),))

    def do_tuple2(self, _: Any) -> None:
        last, first = self.pop(), self.pop()
        self.stack.append((first, last))

    def do_tuple3(self, _: Any) -> None:
        last, middle, first = self.pop(), self.pop(), self.pop()
        self.stack.append((first, middle, last))

    def do_list(self, _: Any) -> None:
        self.stack.append(self.since_mark())

    def do_frozenset(self, _: Any) -> None:
        self.stack.append(self.since_mark())

    def do_dict(self, _: Any) -> None:
        items = self.since_mark()
        self.stack.append(_keyed(items))

    def do_append(self, _: Any) -> None:
        value = self.pop()
        self._extend([value])

    def do_appends(self, _: Any) -> None:
        self._extend(self.since_mark())

    do_additems = do_appends

    def do_setitem(self, _: Any) -> None:
        value, key = self.pop(), self.pop()
        self._update([key, value])

    def do_setitems(self, _: Any) -> None:
        self._update(self.since_mark())

    def _extend(self, values: list[Any]) -> None:
        into = self.stack[-1]
        if isinstance(into, list):
            into.extend(values)
        elif not isinstance(into, Made):
            raise UnreadablePickleError("it appends to what is no list")

    def _update(self, items: list[Any]) -> None:
        into = self.stack[-1]
        if isinstance(into, Made):
            into = into.items
        if not isinstance(into, dict):
            raise UnreadablePickleError("it sets items of what is no dictionary")
        into.update(_keyed(items))

    # Stack

    def do_pop(self, _: Any) -> None:
        self.stack.pop()

    def do_pop_mark(self, _: Any) -> None:
        self.since_mark()

    def do_dup(self, _: Any) -> None:
        self.stack.append(self.stack[-1])

    # Names and calls

    def do_global(self, argument: str) -> None:
        module, _, name = argument.partition(" ")
        self.stack.append(Named(f"{module}.{name}"))

    def do_stack_global(self, _: Any) -> None:
        name, module = self.pop(), self.pop()
        if not (isinstance(name, str) and isinstance(module, str)):
            raise UnreadablePickleError("it names something by what is no text")
        self.stack.append(Named(f"{module}.{name}"))

    def do_reduce(self, _: Any) -> None:
        arguments, function = self.pop(), self.pop()
        self.stack.append(Made(function, arguments))

    do_newobj = do_reduce

    def do_newobj_ex(self, _: Any) -> None:
        named, arguments, function = self.pop(), self.pop(), self.pop()
        self.stack.append(Made(function, arguments, items=named if isinstance(named, dict) else {}))

    def do_inst(self, argument: str) -> None:
        module, _, name = argument.partition(" ")
        self.stack.append(Made(Named(f"{module}.{name}"), tuple(self.since_mark())))

    def do_obj(self, _: Any) -> None:
        function, *arguments = self.since_mark()
        self.stack.append(Made(function, tuple(arguments)))

    def do_build(self, _: Any) -> None:
        state = self.pop()
        if isinstance(self.stack[-1], Made):
            self.stack[-1].state = state

    def do_persid(self, argument: str) -> None:
        self.stack.append(Outside(argument))

    def do_binpersid(self, _: Any) -> None:
        self.stack.append(Outside(self.pop()))


_IGNORED = ("PROTO", "FRAME")
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY: dict[str, Any] = {"EMPTY_LIST": list, "EMPTY_TUPLE": tuple, "EMPTY_DICT": dict, "EMPTY_SET": list}
_LITERALS = {
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
    *("UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"),
}


def _keyed(items: list[Any]) -> dict[Any, Any]:
    """Return keys and values by turns as a dictionary, of keys that are short texts and numbers alone.

    Other keys would have to be hashed, which a pickle can make take for ever.
    """
    pairs = zip(items[::2], items[1::2], strict=True)
    return {key: value for key, value in pairs if _is_key(key)}


def _is_key(key: Any) -> bool:
    if isinstance(key, str | bytes):
        return len(key) <= KEY_LIMIT
    return key is None or isinstance(key, float) or (isinstance(key, int) and -(2**63) <= key < 2**63)


# Arrays

_MULTIARRAY = ("numpy.core.multiarray", "numpy._core.multiarray")
_NUMERIC = ("numpy.core.numeric", "numpy._core.numeric")


def array_in(note: Any) -> Array | None:
    """Return the array or number that a note stands for, None if it stands for something else.

    Raises `UnreadablePickleError` for an array whose shape, dtype and bytes don't fit each other.
    """
    if isinstance(note, bool | int | float):
        return np.asarray(note) if isinstance(note, float) or -(2**63) <= note < 2**63 else None
    if not isinstance(note, Made):
        return None
    module, _, name = note.path.rpartition(".")
    try:
        if module in _MULTIARRAY and name == "_reconstruct":
            _, shape, dtype, is_fortran, content = note.state
            return _array(shape, dtype, content, "F" if is_fortran else "C")
        if module in _MULTIARRAY and name == "scalar":
            dtype, content = note.arguments
            return _array((), dtype, content, "C")
        if module in _NUMERIC and name == "_frombuffer":
            content, dtype, shape, order = note.arguments
            return _array(shape, dtype, content, "F" if order == "F" else "C")
    except (TypeError, ValueError, LookupError, OverflowError, AttributeError, MemoryError) as error:
        raise UnreadablePickleError(f"an array in it can't be read ({error})") from error
    return None


def is_shape(note: Any) -> bool:
    """Whether a note is a tuple of a few numbers, whose product is safe to take."""
    return (
        isinstance(note, tuple)
        and len(note) <= DIMENSIONS_LIMIT
        and all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 2**48 for n in note)
    )


def bytes_in(note: Any) -> bytes | None:
    """Return bytes as pickles hold them: as such, or, in old ones, as text."""
    if isinstance(note, bytes | bytearray):
        return bytes(note)
    if isinstance(note, Made) and note.path == "__builtin__.bytes" and note.arguments == ():
        return b""
    if isinstance(note, Made) and note.path == "_codecs.encode":
        text = note.arguments[0] if note.arguments else None
        return text.encode("latin1") if isinstance(text, str) else None
    return None


def _array(shape: Any, dtype: Any, content: Any, order: Any) -> Array:
    numbers, raw = _dtype(dtype), bytes_in(content)
    if raw is None or not is_shape(shape):
        raise ValueError("it is not made of numbers")
    if math.prod(shape) * numbers.itemsize != len(raw):
        raise ValueError(f"{len(raw):,} bytes for the shape {list(shape)[:8]}")
    array = np.frombuffer(raw, numbers).reshape(shape, order=order)
    return np.array(array, dtype=numbers.newbyteorder("="))


def _dtype(note: Any) -> np.dtype[Any]:
    if not isinstance(note, Made) or note.path != "numpy.dtype":
        raise ValueError("it has no dtype")
    code = note.arguments[0]
    if not isinstance(code, str) or code[:1] not in "biuf" or not code[1:].isdigit():
        raise ValueError("it does not hold numbers")
    order = note.state[1] if isinstance(note.state, tuple) and len(note.state) > 1 else "="
    return np.dtype(f"{'>' if order == '>' else '<'}{code}")
