"""Toys whose actions are restricted by masks, or have parts; `zoo.envs.toys` registers them."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from zoo.envs.composite_spaces import leaf_spaces, leaves
from zoo.envs.spaces import Space, choice_sizes

Info = dict[str, Any]

ARM_AND_BITS: Space = spaces.Dict(
    {
        "arm": spaces.Tuple((spaces.Discrete(3, start=1), spaces.Box(-1.0, 1.0, (1,), np.float32))),
        "bits": spaces.MultiBinary(2),
    }
)


class Masked(gym.Env[Any, Any]):
    """Some actions are forbidden at each step, as only `action_masks` tells; one of them ends it with −1.

    The worth of each alternative is observed; an allowed one earns its worth as a fraction of the best
    allowed one's. Half of the alternatives are allowed, of two one or both. With several choices it is the
    mean over them; a number of the ``Composite`` space has to be the one that is observed.
    """

    def __init__(self, n_actions: int = 6, space: str = "Discrete") -> None:
        kinds: dict[str, Space] = {
            "Discrete": spaces.Discrete(n_actions),
            "MultiDiscrete": spaces.MultiDiscrete([3, 4]),
            "MultiBinary": spaces.MultiBinary(3),
            "Composite": ARM_AND_BITS,
        }
        self.action_space = kinds[space]
        self._sizes = choice_sizes(self.action_space)
        self._n_numbers = _n_numbers(self.action_space)
        self.observation_space = spaces.Box(0.0, 1.0, (sum(self._sizes) + self._n_numbers,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Info]:
        """Draw the first worths and what is forbidden."""
        super().reset(seed=seed)
        return self._draw(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        """Earn what allowed alternatives are worth, or end with −1."""
        chosen, numbers = _choices_and_numbers(self.action_space, action)
        taken = chosen + np.cumsum([0, *self._sizes[:-1]])
        if not self._allowed[taken].all():
            return self._draw(), -1.0, True, False, {}
        best = [part.max() for part in self._split(np.where(self._allowed, self._worths, 0.0))]
        earned = [*(self._worths[taken] / best), *(1.0 - np.abs(numbers - self._numbers) / 2)]
        return self._draw(), float(np.mean(earned)), False, False, {}

    def action_masks(self) -> NDArray[np.bool_]:
        """Return which alternatives are allowed now."""
        return self._allowed.copy()

    def _draw(self) -> NDArray[np.float32]:
        self._worths = self.np_random.uniform(0.1, 1.0, sum(self._sizes)).astype(np.float32)
        self._allowed = np.concatenate([self._drawn_mask(size) for size in self._sizes])
        shares = self.np_random.uniform(size=self._n_numbers).astype(np.float32)
        self._numbers = 2 * shares - 1
        return np.concatenate([self._worths, shares])

    def _drawn_mask(self, size: int) -> NDArray[np.bool_]:
        n_allowed = size // 2 if size > 2 else self.np_random.integers(1, 3)
        mask: NDArray[np.bool_] = self.np_random.permutation(size) < n_allowed
        return mask

    def _split(self, values: NDArray[Any]) -> list[NDArray[Any]]:
        return np.split(values, np.cumsum(self._sizes)[:-1])


class Composite(gym.Env[Any, Any]):
    """Every part of a nested action has to be the one that is observed: what they earn is multiplied.

    A choice earns 1 or 0, a number 1 minus its distance.
    """

    def __init__(self) -> None:
        self.action_space = ARM_AND_BITS
        self._sizes = choice_sizes(self.action_space)
        self._n_numbers = _n_numbers(self.action_space)
        self.observation_space = spaces.Box(-1.0, 1.0, (sum(self._sizes) + self._n_numbers,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Info]:
        """Draw the first action that is right."""
        super().reset(seed=seed)
        return self._draw(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        """Compare ``action`` with the right one and draw anew."""
        chosen, numbers = _choices_and_numbers(self.action_space, action)
        distances = np.abs(numbers - self._numbers)
        reward = float((chosen == self._chosen).all()) * float(np.prod(np.maximum(1.0 - distances, 0.0)))
        return self._draw(), reward, False, False, {}

    def _draw(self) -> NDArray[np.float32]:
        self._chosen = self.np_random.integers(self._sizes)
        self._numbers = self.np_random.uniform(-1.0, 1.0, self._n_numbers).astype(np.float32)
        shown = [np.arange(size) == right for size, right in zip(self._sizes, self._chosen, strict=True)]
        return np.concatenate([*shown, self._numbers]).astype(np.float32)


def _n_numbers(space: Space) -> int:
    return sum(int(np.prod(leaf.shape)) for _, leaf in leaf_spaces(space) if isinstance(leaf, spaces.Box))


def _choices_and_numbers(space: Space, action: Any) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return what was chosen, counted from 0, and the numbers, each in the order of the space."""
    chosen: list[NDArray[Any]] = [np.zeros(0, np.int64)]
    numbers: list[NDArray[Any]] = [np.zeros(0, np.float32)]
    parts = dict(leaves(space, action))
    for path, leaf in leaf_spaces(space):
        is_number = isinstance(leaf, spaces.Box)
        (numbers if is_number else chosen).append(np.ravel(parts[path] - getattr(leaf, "start", 0)))
    return np.concatenate(chosen), np.concatenate(numbers)
