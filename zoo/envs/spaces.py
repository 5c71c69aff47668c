"""Spaces: their parts by path, as JSON data, in short words, compared with one another."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorWrapper

from zoo.errors import ZooError, ZooWarning

Env = gym.Env[Any, Any]
Info = dict[str, Any]
Space = spaces.Space[Any]
Observations = Any
"""An array with one row an environment, or a dict of such arrays for a Dict space."""

ACHIEVED, DESIRED = "achieved_goal", "desired_goal"
"""The keys under which Gymnasium-Robotics has the goals of an observation."""


def layers(env: Any) -> Iterator[Any]:
    """Yield an environment, or vector environment, and all that it wraps, outermost first."""
    while isinstance(env, gym.Wrapper | VectorWrapper):
        yield env
        env = env.env
    yield env


def is_composite(space: Space) -> bool:
    """Whether values of ``space`` are tuples or dictionaries."""
    return isinstance(space, spaces.Tuple | spaces.Dict)


def is_goal_space(space: Space) -> bool:
    """Whether observations hold an achieved and a desired goal."""
    return isinstance(space, spaces.Dict) and {ACHIEVED, DESIRED} <= set(space)


def leaf_spaces(space: Space) -> Iterator[tuple[str, Space]]:
    """Yield (path, space) of each leaf, in the space's order."""
    return leaves(space, None)


def leaves(space: Space, values: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield path and value of every part; the parts' spaces themselves where there are no values."""
    if not is_composite(space):
        yield path[1:], space if values is None else values
        return
    parts = space.items() if isinstance(space, spaces.Dict) else enumerate(space)  # type: ignore[arg-type]
    for key, part in parts:
        yield from leaves(part, None if values is None else values[key], f"{path}/{key}")


def flat_space(space: Space) -> Space:
    """Return a space of observations as one Dict of parts by path, if it is a Tuple or a nested Dict."""
    is_flat = isinstance(space, spaces.Dict) and not any(map(is_composite, space.values()))
    if is_flat or not is_composite(space):
        return space
    parts = list(leaf_spaces(space))
    if len(dict(parts)) < len(parts):
        raise ZooError(f"the parts of an observation need names that differ when joined by /: {space}")
    return spaces.Dict(parts)


def flat_parts(space: spaces.Dict, values: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield path and value of every part of an observation; what does not fit a `flat_space`, as it is."""
    start = f"{path}/" if path else ""
    if path in space.spaces or not isinstance(values, Mapping | tuple | list):
        yield path, values
    elif isinstance(values, Mapping):
        for key, part in values.items():
            yield from flat_parts(space, part, f"{start}{key}")
    else:
        for index, part in enumerate(values):
            yield from flat_parts(space, part, f"{start}{index}")


def nested(space: Space, by_path: Mapping[str, Any], path: str = "") -> Any:
    """Return the values at the paths as tuples and dictionaries, nested as ``space`` is."""
    if isinstance(space, spaces.Dict):
        return {key: nested(part, by_path, f"{path}/{key}") for key, part in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(nested(part, by_path, f"{path}/{index}") for index, part in enumerate(space))
    return by_path[path[1:]]


def row(values: Any, index: Any) -> Any:
    """Return the row at ``index`` of arrays that stand in tuples and dictionaries, nested as they are."""
    if isinstance(values, tuple):
        return tuple(row(part, index) for part in values)
    if isinstance(values, Mapping):
        return {key: row(part, index) for key, part in values.items()}
    return values[index]


PLAIN = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
"""Spaces whose values are numbers or arrays."""


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
    """Return the space that `space_to_dict` described. Raises `ZooError` for an unknown type."""
    kind = data["type"]
    if kind == "Box":
        dtype, shape = np.dtype(data["dtype"]), tuple(data["shape"])
        exact = None if dtype.kind in "iu" else np.float64
        bounds = (np.array(data[name], exact) for name in ("low", "high"))
        low, high = (np.broadcast_to(bound, shape).astype(dtype) for bound in bounds)
        return spaces.Box(low, high, shape, dtype.type)
    if kind == "Discrete":
        return spaces.Discrete(data["n"], start=data["start"])
    if kind == "MultiDiscrete":
        return spaces.MultiDiscrete(np.array(data["nvec"]), start=np.array(data["start"]))
    if kind == "MultiBinary":
        shape = tuple(data["shape"])
        return spaces.MultiBinary(shape[0] if len(shape) == 1 else shape)
    if kind == "Dict":
        return spaces.Dict([(key, space_from_dict(part)) for key, part in data["spaces"].items()])
    if kind == "Tuple":
        return spaces.Tuple([space_from_dict(part) for part in data["spaces"]])
    raise ZooError(f"unknown type of space: {kind!r}")


def _bound_to_json(bound: np.ndarray[Any, Any]) -> Any:
    """Return numbers, and ``"inf"`` or ``"-inf"`` where there is no bound, for JSON knows no infinity."""
    if bound.size and (bound == bound.flat[0]).all():
        bound = bound.reshape(-1)[0:1].reshape(())
    return np.where(np.isinf(bound), bound.astype(str).astype(object), bound.astype(object)).tolist()


def describe(space: Space) -> str:
    """Return a few words for a message: ``Box(4,) float32``, ``Discrete(3, start=1)``."""
    if isinstance(space, spaces.Box):
        return f"Box{space.shape} {space.dtype}"
    if isinstance(space, spaces.MultiDiscrete):
        return f"MultiDiscrete({space.nvec.tolist()})"
    if isinstance(space, spaces.Dict):
        return "Dict(" + ", ".join(f"{key}: {describe(inner)}" for key, inner in space.items()) + ")"
    if isinstance(space, spaces.Tuple):
        return "Tuple(" + ", ".join(map(describe, space)) + ")"
    return str(space) if isinstance(space, PLAIN) else type(space).__name__


def spaces_differ(a: Space, b: Space, *, bounds: bool = True) -> str | None:
    """Describe how ``b`` differs from ``a`` in a few words; None if they are the same.

    Without ``bounds`` those of a Box may be others, unless they make one of two an image.
    """
    if isinstance(a, spaces.Dict) and isinstance(b, spaces.Dict):
        if set(a) != set(b):
            return f"keys {sorted(a)} are not {sorted(b)}"
        pairs: Any = [(f"{key}: ", a[key], b[key]) for key in a]
    elif isinstance(a, spaces.Tuple) and isinstance(b, spaces.Tuple) and len(a) == len(b):
        pairs = [(f"part {i}: ", *pair) for i, pair in enumerate(zip(a, b, strict=True))]
    else:
        return _leaves_differ(a, b, bounds=bounds)
    differences = ((where, spaces_differ(first, second, bounds=bounds)) for where, first, second in pairs)
    return next((where + text for where, text in differences if text is not None), None)


def _leaves_differ(a: Space, b: Space, *, bounds: bool) -> str | None:
    if type(a) is not type(b) or a.shape != b.shape or a.dtype != b.dtype:
        return f"{describe(a)} is not {describe(b)}"
    if isinstance(a, spaces.Box) and isinstance(b, spaces.Box):
        for name in ("low", "high") if bounds or is_image(a) != is_image(b) else ():
            first, second = getattr(a, name), getattr(b, name)
            for index in map(tuple, np.argwhere(~np.isclose(first.astype(float), second.astype(float)))):
                where = f"{name}{list(map(int, index)) or ''}"
                return f"{where} {first[index]!s} is not {second[index]!s}"
        return None
    return None if a == b else f"{describe(a)} is not {describe(b)}"


def interfaces_differ(agent: tuple[Space, Space], env: tuple[Space, Space]) -> tuple[str, str] | None:
    """Return which space of an env (``"observations"`` or ``"actions"``) is not an agent's, and how.

    No network reads the bounds of observations: `ZooWarning` warns of others.
    """
    for name, expected, space in zip(("observations", "actions"), agent, env, strict=True):
        difference = spaces_differ(expected, space, bounds=name == "actions")
        if difference is not None:
            return name, difference
    widened = spaces_differ(agent[0], env[0])
    if widened is not None:
        text = f"observation bounds differ from the agent's ({widened}); networks don't read them"
        warnings.warn(text, ZooWarning, stacklevel=3)
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

    MultiDiscrete has as many choices as parts, MultiBinary one of two for each bit, Tuple and Dict those of
    their parts, in the order of the space.
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
    """Return the length of a mask, a value for each alternative of `choice_sizes`; None without any."""
    return sum(choice_sizes(action_space)) or None


def unsupported_space(space: Space) -> str:
    """Return the message for a space that nothing here can handle."""
    return (
        f"a space of type {type(space).__name__} is not supported; supported: Box, Discrete, MultiDiscrete, "
        "MultiBinary, and Dict and Tuple of them; a wrapper of Gymnasium can translate"
    )


def check_supported(observation_space: Space, action_space: Space) -> None:
    """Raise `ZooError` unless observations and actions can be held in arrays."""
    observations = (
        observation_space if isinstance(observation_space, spaces.Dict) else {"": observation_space}
    )
    parts_of = {"actions": list(leaf_spaces(action_space)), "observations": list(observations.items())}
    for name, parts in parts_of.items():
        for _, part in parts:
            if not isinstance(part, PLAIN):
                raise ZooError(f"{name}: {unsupported_space(part)}")
            if 0 in (part.shape or ()):
                raise ZooError(f"{name} of {describe(part)} hold no number; leave that part out")
        if not parts or len(dict(parts)) < len(parts):
            raise ZooError(f"{name} need parts, at least one, whose names joined by / differ")


def choice_limits(space: Space) -> tuple[Any, Any] | None:
    """Return the lowest and highest values of a space of choices, None for a Box."""
    if isinstance(space, spaces.MultiBinary):
        return 0, 1
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return space.start, space.start + (space.n if isinstance(space, spaces.Discrete) else space.nvec) - 1
    return None


def misfit(values: Any, space: Space, leading: tuple[int, ...] = (), limits: Any = None) -> str | None:
    """Describe why values (*leading, *shape) don't fit one (sub)space, or return None.

    A cast of numbers must not change them, choices have ``limits``; floats may have any value.
    """
    array, limits = np.asarray(values), limits or choice_limits(space)
    if array.shape != (*leading, *(space.shape or ())):
        return f"shape {array.shape} instead of {(*leading, *(space.shape or ()))}"
    dtype = np.dtype(space.dtype)
    if dtype.kind in "iub" and array.dtype != dtype:
        if array.dtype.kind not in "iubf":
            return f"{array.dtype} instead of numbers"
        with np.errstate(invalid="ignore"):
            is_changed = array.astype(dtype) != array
        if is_changed.any():
            return f"{array[is_changed][0]}, which is no {dtype}"
    if limits is not None:
        is_outside = (array < limits[0]) | (array > limits[1])
        if is_outside.any():
            row = tuple(np.argwhere(is_outside)[0])
            low, high = (np.broadcast_to(limit, array.shape)[row] for limit in limits)
            return f"{array[row]}, which is not within {low} to {high}"
    return None


def action_array(space: Space, *leading: int) -> Any:
    """Return zeros for actions, (*leading, *shape); of a Tuple or Dict records with a field by each path."""
    if not is_composite(space):
        return np.zeros((*leading, *(space.shape or ())), dtype=space.dtype)
    fields: Any = [(path, leaf.dtype, leaf.shape) for path, leaf in leaf_spaces(space)]
    return np.zeros(leading, dtype=np.dtype(fields))
