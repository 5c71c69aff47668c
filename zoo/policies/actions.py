"""Between actions as policies draw and buffers store them, and actions as the environment takes them.

Stored actions (n, …) are flat and count from zero. Those of a Tuple or Dict space are one dictionary of
arrays, by the paths of its parts: ``"arm/0"`` is the first part of the part ``"arm"``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from gymnasium import spaces

from zoo.buffers.arrays import Arrays, ArraySpec
from zoo.envs.spaces import leaf_spaces, leaves, nested
from zoo.errors import ZooError

Array = np.ndarray
Space = spaces.Space[Any]


class ActionAdapter(ABC):
    """Translates the actions of one space; ``spec`` says how they are stored."""

    spec: Any

    @abstractmethod
    def to_env(self, actions: Arrays) -> Any:
        """Return stored actions as a vector environment takes them."""

    @abstractmethod
    def from_env(self, actions: Any) -> Arrays:
        """Return an environment's actions as they are stored: the inverse of `to_env`."""


class DiscreteAdapter(ActionAdapter):
    """One number, counted from the space's start."""

    def __init__(self, space: spaces.Discrete) -> None:
        self.n, self.start, self.dtype = int(space.n), int(space.start), space.dtype
        self.spec = ArraySpec((), np.int64)

    def to_env(self, actions: Array) -> Array:
        return (actions + self.start if self.start else actions).astype(self.dtype, copy=False)

    def from_env(self, actions: Any) -> Array:
        return np.asarray(actions).astype(np.int64) - self.start


class MultiDiscreteAdapter(ActionAdapter):
    """Several numbers, each counted from its start."""

    def __init__(self, space: spaces.MultiDiscrete) -> None:
        self.space = space
        self.spec = ArraySpec((space.nvec.size,), np.int64)

    def to_env(self, actions: Array) -> Array:
        shaped = actions.reshape(len(actions), *self.space.nvec.shape) + self.space.start
        return shaped.astype(self.space.dtype, copy=False)

    def from_env(self, actions: Any) -> Array:
        counted = np.asarray(actions).astype(np.int64) - self.space.start
        return counted.reshape(len(counted), -1)


class MultiBinaryAdapter(ActionAdapter):
    """Bits in a row."""

    def __init__(self, space: spaces.MultiBinary) -> None:
        self.shape = space.shape
        self.spec = ArraySpec((math.prod(space.shape),), np.int8)

    def to_env(self, actions: Array) -> Array:
        return actions.reshape(len(actions), *self.shape)

    def from_env(self, actions: Any) -> Array:
        return np.asarray(actions, np.int8).reshape(len(actions), -1)


class BoxAdapter(ActionAdapter):
    """Numbers in the environment's units, of any size; the environment gets them clipped to its bounds.

    Where these are of a type of whole numbers, it gets the nearest one.
    """

    def __init__(self, space: spaces.Box) -> None:
        self.space = space
        self.spec = ArraySpec((math.prod(space.shape),), np.float32)
        self.is_whole = holds_whole_numbers(space)

    def to_env(self, actions: Array) -> Array:
        shaped = actions.reshape(len(actions), *self.space.shape)
        return self._within_bounds(np.rint(shaped) if self.is_whole else shaped)

    def from_env(self, actions: Any) -> Array:
        return np.asarray(actions, np.float32).reshape(len(actions), -1)

    def _within_bounds(self, actions: Array) -> Array:
        low, high = self.space.low, self.space.high
        if self.is_whole and high.dtype.itemsize == 8:  # as floats the largest ones overflow
            limit = np.nextafter(float(np.iinfo(str(high.dtype)).max), 0.0)
            actions = np.minimum(np.maximum(actions, low), limit).astype(high.dtype)
        return np.minimum(np.maximum(actions, low), high).astype(self.space.dtype, copy=False)


class ScaledBoxAdapter(BoxAdapter):
    """Numbers in [−1, 1], scaled to the environment's bounds; each whole number is an equal part of them."""

    def __init__(self, space: spaces.Box) -> None:
        if not space.is_bounded():
            raise ZooError(f"actions need finite bounds, but the action space is {space}")
        super().__init__(space)
        self.low, self.width = scale_of(space)

    def to_env(self, actions: Array) -> Array:
        shaped = actions.reshape(len(actions), *self.space.shape)
        scaled = self.low + 0.5 * (shaped + 1.0) * self.width
        # Rounding may have gone a little too far.
        return self._within_bounds(
            np.floor(scaled) if self.is_whole else scaled.astype(self.space.dtype, copy=False)
        )

    def from_env(self, actions: Any) -> Array:
        """Undo `to_env`; a whole number gives the middle of its part, a dimension without width 0."""
        low, high = self.space.low.astype(np.float64), self.space.high.astype(np.float64)
        one = float(self.is_whole)
        width = np.where(high > low, high - low + one, np.inf)
        share = np.where(high > low, (np.asarray(actions, np.float64) - low + 0.5 * one) / width, 0.5)
        return (2.0 * share - 1.0).astype(np.float32).reshape(len(actions), -1)


def holds_whole_numbers(space: spaces.Box) -> bool:
    """Whether a Box has whole numbers only, or truth values."""
    return np.dtype(space.dtype).kind in "iub"


def scale_of(space: spaces.Box) -> tuple[Array, Array]:
    """Return where actions in [−1, 1] begin in the environment's units, and how wide they lie there.

    In 64 bits, but for floats whose width 32 bits can hold: Stable-Baselines3 scales those in 32 bits.
    """
    low = space.low.astype(np.float64)
    width = space.high.astype(np.float64) - low + float(holds_whole_numbers(space))
    in_32_bits = space.dtype == np.float32 and (width < np.finfo(np.float32).max / 2).all()
    return (low.astype(np.float32), width.astype(np.float32)) if in_32_bits else (low, width)


class CompositeAdapter(ActionAdapter):
    """Tuples and dictionaries of actions, nested at will."""

    def __init__(self, space: spaces.Tuple[Any] | spaces.Dict, *, scaled: bool) -> None:
        self.space = space
        self.parts = {path: make_action_adapter(leaf, scaled=scaled) for path, leaf in leaf_spaces(space)}
        self.spec = {path: adapter.spec for path, adapter in self.parts.items()}

    def to_env(self, actions: Arrays) -> Any:
        return nested(self.space, {path: part.to_env(actions[path]) for path, part in self.parts.items()})

    def from_env(self, actions: Any) -> Arrays:
        return {path: self.parts[path].from_env(part) for path, part in leaves(self.space, actions)}


def make_action_adapter(space: Space, *, scaled: bool) -> ActionAdapter:
    """Return the adapter of an action space; ``scaled`` keeps Box actions in [−1, 1], not in env units.

    Raises `ZooError` for a space that has none, and for scaled actions without finite bounds.
    """
    if isinstance(space, spaces.Discrete):
        return DiscreteAdapter(space)
    if isinstance(space, spaces.MultiDiscrete):
        return MultiDiscreteAdapter(space)
    if isinstance(space, spaces.MultiBinary):
        return MultiBinaryAdapter(space)
    if isinstance(space, spaces.Box):
        return ScaledBoxAdapter(space) if scaled else BoxAdapter(space)
    if isinstance(space, spaces.Tuple | spaces.Dict):
        return CompositeAdapter(space, scaled=scaled)
    raise ZooError(f"actions of {space} are not supported; wrap the env to flatten them")
