"""Spaces as JSON data, as short words, and compared with one another."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from zoo.envs.composite_spaces import is_composite, leaf_spaces
from zoo.errors import ZooError
from zoo.files.printing import one_line

Space = spaces.Space[Any]

PLAIN = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
"""Spaces whose values are numbers or arrays."""

SIZE_LIMIT = 2**24
"""Numbers that one observation or action of an agent in a file may have: a few words can name many more."""

DIMENSION_LIMIT = 32


def space_to_dict(space: Space) -> dict[str, Any]:
    """Return ``space`` as JSON data; bounds that are the same everywhere become one number."""
    if isinstance(space, spaces.Box):
        bounds = {"low": _bound_to_json(space.low), "high": _bound_to_json(space.high)}
        return {"type": "Box", "shape": list(space.shape), "dtype": str(space.dtype), **bounds}
    if isinstance(space, spaces.Discrete):
        return {"type": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        return {"type": "MultiDiscrete", "nvec": space.nvec.tolist(), "start": space.start.tolist()}
    if isinstance(space, spaces.MultiBinary):
        return {"type": "MultiBinary", "shape": list(space.shape)}
    if isinstance(space, spaces.Dict):
        return {"type": "Dict", "spaces": {key: space_to_dict(inner) for key, inner in space.items()}}
    if isinstance(space, spaces.Tuple):
        return {"type": "Tuple", "spaces": [space_to_dict(inner) for inner in space]}
    raise ZooError(unsupported_space(space))


def space_from_dict(data: Mapping[str, Any]) -> Space:
    """Return the space that `space_to_dict` described."""
    try:
        if _n_numbers(data) > SIZE_LIMIT:
            raise ValueError(f"more than {SIZE_LIMIT:,} numbers")
        return _space_from_dict(data)
    except (
        KeyError,
        TypeError,
        ValueError,
        AssertionError,
        AttributeError,
        OverflowError,
        MemoryError,
        RecursionError,
    ) as error:
        raise ZooError(
            f"damaged description of a space: {one_line(repr(error))} in {one_line(data)}"
        ) from error


def describe(space: Space) -> str:
    """Return a few words for a message: ``Box(4,) float32``, ``Discrete(3, start=1)``."""
    if isinstance(space, spaces.Box):
        return f"Box{space.shape} {space.dtype}"
    if isinstance(space, spaces.Discrete):
        return f"Discrete({space.n}, start={space.start})" if space.start else f"Discrete({space.n})"
    if isinstance(space, spaces.MultiDiscrete):
        return f"MultiDiscrete({space.nvec.tolist()})"
    if isinstance(space, spaces.MultiBinary):
        return f"MultiBinary({space.n})"
    if isinstance(space, spaces.Dict):
        return "Dict(" + ", ".join(f"{key}: {describe(inner)}" for key, inner in space.items()) + ")"
    if isinstance(space, spaces.Tuple):
        return "Tuple(" + ", ".join(map(describe, space)) + ")"
    return type(space).__name__


def spaces_differ(a: Space, b: Space) -> str | None:
    """Return what makes ``b`` another space than ``a`` in a few words, or None if they are the same."""
    if isinstance(a, spaces.Dict) and isinstance(b, spaces.Dict):
        return _dicts_differ(a, b)
    if isinstance(a, spaces.Tuple) and isinstance(b, spaces.Tuple) and len(a) == len(b):
        parts = (spaces_differ(*pair) for pair in zip(a, b, strict=True))
        return next((f"part {i}: {each}" for i, each in enumerate(parts) if each is not None), None)
    if type(a) is not type(b) or a.shape != b.shape or a.dtype != b.dtype:
        return f"{describe(a)} is not {describe(b)}"
    if isinstance(a, spaces.Box) and isinstance(b, spaces.Box):
        return _bounds_differ(a, b)
    return None if a == b else f"{describe(a)} is not {describe(b)}"


def interfaces_differ(agent: tuple[Space, Space], env: tuple[Space, Space]) -> tuple[str, str] | None:
    """Return which spaces of an env (``"observations"`` or ``"actions"``) differ from an agent's, and how.

    Each is given by its spaces of observations and actions; None if these are the same.
    """
    for what, ours, theirs in zip(("observations", "actions"), agent, env, strict=True):
        difference = spaces_differ(ours, theirs)
        if difference is not None:
            return what, difference
    return None


def is_image(space: Space) -> bool:
    """Whether ``space`` holds pixels: uint8 from 0 to 255, in two dimensions or, with channels, three."""
    return (
        isinstance(space, spaces.Box)
        and space.dtype == np.uint8
        and len(space.shape) in (2, 3)
        and bool((space.low == 0).all() and (space.high == 255).all())
    )


def channels_first(shape: Sequence[int]) -> bool:
    """Whether a picture of this shape is (channels, height, width): fewer channels than pixels a side."""
    return len(shape) == 3 and shape[0] < min(shape[1:])


def choice_sizes(action_space: Space) -> list[int]:
    """Return how many alternatives each choice of an action has; numbers (Box) are none.

    Discrete is one choice, MultiDiscrete as many as it has parts, MultiBinary one of two for each bit; those
    of Tuple and Dict are the choices of their parts, in the order of the space.
    """
    if isinstance(action_space, spaces.Discrete):
        return [int(action_space.n)]
    if isinstance(action_space, spaces.MultiDiscrete):
        return [int(n) for n in action_space.nvec.reshape(-1)]
    if isinstance(action_space, spaces.MultiBinary):
        return [2] * math.prod(action_space.shape)
    if is_composite(action_space):
        return [size for _, leaf in leaf_spaces(action_space) for size in choice_sizes(leaf)]
    return []


def mask_size(action_space: Space) -> int | None:
    """Return the length of a mask of valid actions, or None for actions that have none.

    It has a value for each alternative of each choice, laid end to end: see `choice_sizes`.
    """
    return sum(choice_sizes(action_space)) or None


def unsupported_space(space: Space) -> str:
    """Return the message for a space that nothing here can handle."""
    advice = "; a gymnasium.ObservationWrapper can turn it into a Box or a Dict of them"
    return (
        f"a space of type {type(space).__name__} is not supported; "
        f"supported: Box, Discrete, MultiDiscrete, MultiBinary, and Dict and Tuple of them{advice}"
    )


def check_supported(observation_space: Space, action_space: Space) -> None:
    """Raise `ZooError` unless observations and actions can be held in arrays."""
    parts = dict(leaf_spaces(action_space))
    for part in parts.values():
        if not isinstance(part, PLAIN):
            raise ZooError(
                f"actions of type {type(part).__name__} are not supported; supported: Box, Discrete, "
                "MultiDiscrete, MultiBinary, and Tuple and Dict of them (an ActionWrapper can translate)"
            )
        _refuse_empty(part, "actions")
    if len(parts) < sum(1 for _ in leaf_spaces(action_space)) or not parts:
        raise ZooError(
            f"actions of {describe(action_space)} need parts, at least one, whose names joined by / differ"
        )
    shown = observation_space.values() if isinstance(observation_space, spaces.Dict) else [observation_space]
    if not shown:
        raise ZooError("observations of an empty Dict show nothing; it needs a part")
    for part in shown:
        if not isinstance(part, PLAIN):
            raise ZooError("observations: " + unsupported_space(part))
        _refuse_empty(part, "observations")


def _refuse_empty(space: Space, what: str) -> None:
    if 0 in (space.shape or ()):
        raise ZooError(f"{what} of {describe(space)} hold no number; leave that part out")


def batch_array(space: Space, n: int) -> Any:
    """Return zeros for ``n`` values of ``space``: an array, or a dict of arrays for a Dict space."""
    if isinstance(space, spaces.Dict):
        return {key: batch_array(inner, n) for key, inner in space.items()}
    return np.zeros((n, *(space.shape or ())), dtype=space.dtype)


def action_array(space: Space, *leading: int) -> Any:
    """Return zeros for actions, (*leading, *shape); for a Tuple or Dict space of records with a field a part.

    The fields are called by the paths of the parts, see `zoo.envs.composite_spaces`.
    """
    if not is_composite(space):
        return np.zeros((*leading, *(space.shape or ())), dtype=space.dtype)
    fields: Any = [(path, leaf.dtype, leaf.shape) for path, leaf in leaf_spaces(space)]
    return np.zeros(leading, dtype=np.dtype(fields))


def _space_from_dict(data: Mapping[str, Any]) -> Space:
    kind = data["type"]
    if kind == "Box":
        dtype, shape = _type_of_numbers(data["dtype"]), _shape(data["shape"])
        low, high = (_bound_from_json(data[name], shape, dtype) for name in ("low", "high"))
        return spaces.Box(low, high, shape, dtype.type)
    if kind == "Discrete":
        space = spaces.Discrete(data["n"], start=data["start"])
        _refuse_numbers_above_all(int(space.start) + int(space.n))
        return space
    if kind == "MultiDiscrete":
        choices = spaces.MultiDiscrete(np.array(data["nvec"]), start=np.array(data["start"]))
        _refuse_numbers_above_all(int(choices.start.max(initial=0)) + int(choices.nvec.max(initial=0)))
        return choices
    if kind == "MultiBinary":
        shape = _shape(data["shape"])
        return spaces.MultiBinary(shape[0] if len(shape) == 1 else shape)
    if kind == "Dict":
        return spaces.Dict(
            [(key, _space_from_dict(inner)) for key, inner in data["spaces"].items()]
        )  # in order
    if kind == "Tuple":
        return spaces.Tuple([_space_from_dict(inner) for inner in data["spaces"]])
    raise ZooError(f"unknown type of space: {kind!r}")


def _refuse_numbers_above_all(end: int) -> None:
    if end > np.iinfo(np.int64).max:
        raise ValueError("choices with numbers above those of 64 bits")


def _type_of_numbers(name: str) -> np.dtype[Any]:
    """Return the type of that name; texts, records and others may have gigabytes an element."""
    dtype = np.dtype(name)
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        raise ValueError(f"the type {one_line(name, 40)} is not one of numbers")
    return dtype


def _n_numbers(data: Mapping[str, Any]) -> int:
    if data["type"] == "Dict":
        return sum(_n_numbers(inner) for inner in data["spaces"].values())
    if data["type"] == "Tuple":
        return sum(_n_numbers(inner) for inner in data["spaces"])
    return math.prod(_shape(data["shape"])) if "shape" in data else 1


def _shape(sizes: Any) -> tuple[int, ...]:
    """Return the shape that a file gives; with other numbers than those of a shape nothing can be counted."""
    if not isinstance(sizes, list | tuple) or not all(type(size) is int and size >= 0 for size in sizes):
        raise ValueError(f"the shape {one_line(sizes, 40)} is no list of whole numbers from 0 on")
    if len(sizes) > DIMENSION_LIMIT:
        raise ValueError(f"more than {DIMENSION_LIMIT} dimensions")
    return tuple(sizes)


def _bound_to_json(bound: np.ndarray[Any, Any]) -> Any:
    """Return numbers, and ``"inf"`` or ``"-inf"`` where there is no bound, for JSON knows no infinity."""
    if bound.size and (bound == bound.flat[0]).all():
        return _number_to_json(bound.flat[0].item())
    return _nested(bound.tolist())


def _nested(values: Any) -> Any:
    return [_nested(value) for value in values] if isinstance(values, list) else _number_to_json(values)


def _number_to_json(number: float) -> float | str:
    return str(number) if np.isinf(number) else number


def _bound_from_json(bound: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    exact = np.array(bound) if dtype.kind in "iu" else np.array(bound, dtype=np.float64)
    return np.broadcast_to(exact, shape).astype(dtype)


def _dicts_differ(a: spaces.Dict, b: spaces.Dict) -> str | None:
    if set(a) != set(b):
        return f"keys {sorted(a)} are not {sorted(b)}"
    for key in a:
        difference = spaces_differ(a[key], b[key])
        if difference is not None:
            return f"{key}: {difference}"
    return None


def _bounds_differ(a: spaces.Box, b: spaces.Box) -> str | None:
    for name in ("low", "high"):
        first, second = getattr(a, name), getattr(b, name)
        if not np.allclose(first, second):
            return f"{name} {_shortened(first)} is not {_shortened(second)}"
    return None


def _shortened(bound: np.ndarray[Any, Any]) -> str:
    return np.array2string(bound, threshold=8, precision=4)
