"""Environments that tests alone use: questions in every kind of space, registered as ``Zoo/…-v0``."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from zoo.envs.spaces import Info, Space, choice_sizes, leaf_spaces, leaves
from zoo.envs.toys import Memory

ARM_AND_BITS: Space = spaces.Dict(
    {
        "arm": spaces.Tuple((spaces.Discrete(3, start=1), spaces.Box(-1.0, 1.0, (1,), np.float32))),
        "bits": spaces.MultiBinary(2),
    }
)


class Guessing(gym.Env[Any, Any]):
    """Each step asks a question: `_draw` returns the observation, `_reward` what an action earns."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Info]:
        super().reset(seed=seed)
        return self._draw(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        reward = self._reward(action)
        return self._draw(), reward, False, False, {}

    def _draw(self) -> Any:
        raise NotImplementedError

    def _reward(self, action: Any) -> float:
        raise NotImplementedError


class MaskedParts(Guessing):
    """Choose among the actions that `action_masks` allows; a forbidden one ends the episode with −1.

    The worth of each alternative is observed; an allowed one earns its worth as a fraction of the best
    allowed one's. Half of the alternatives are allowed, of two one or both. With several choices it is the
    mean over them; a number of the ``Composite`` space has to be the one that is observed.
    """

    def __init__(self, space: str) -> None:
        kinds: dict[str, Space] = {
            "MultiDiscrete": spaces.MultiDiscrete([3, 4]),
            "MultiBinary": spaces.MultiBinary(3),
            "Composite": ARM_AND_BITS,
        }
        self.action_space = kinds[space]
        self._sizes = choice_sizes(self.action_space)
        self._n_numbers = _n_numbers(self.action_space)
        self.observation_space = spaces.Box(0.0, 1.0, (sum(self._sizes) + self._n_numbers,), np.float32)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        """Reward ``action`` and draw anew, or end with −1 if it is forbidden."""
        reward = self._reward(action)
        return self._draw(), reward, reward < 0, False, {}

    def _reward(self, action: Any) -> float:
        chosen, numbers = _choices_and_numbers(self.action_space, action)
        taken = chosen + np.cumsum([0, *self._sizes[:-1]])
        if not self._allowed[taken].all():
            return -1.0
        best = [part.max() for part in self._split(np.where(self._allowed, self._worths, 0.0))]
        earned = [*(self._worths[taken] / best), *(1.0 - np.abs(numbers - self._numbers) / 2)]
        return float(np.mean(earned))

    def action_masks(self) -> NDArray[np.bool_]:
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


class Composite(Guessing):
    """Repeat a nested action that is observed: what its parts earn is multiplied.

    A choice earns 1 or 0, a number 1 minus its distance.
    """

    def __init__(self) -> None:
        self.action_space = ARM_AND_BITS
        self._sizes = choice_sizes(self.action_space)
        self._n_numbers = _n_numbers(self.action_space)
        self.observation_space = spaces.Box(-1.0, 1.0, (sum(self._sizes) + self._n_numbers,), np.float32)

    def _reward(self, action: Any) -> float:
        chosen, numbers = _choices_and_numbers(self.action_space, action)
        distances = np.abs(numbers - self._numbers)
        return float((chosen == self._chosen).all()) * float(np.prod(np.maximum(1.0 - distances, 0.0)))

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


class Identity(Guessing):
    """Repeat what was observed as the action: 1 for all of it, less for a part.

    Discrete: 1 or 0. MultiDiscrete and MultiBinary: the fraction of right parts. Box: 1 minus the mean
    distance.
    """

    def __init__(self, space: str = "Discrete") -> None:
        self.action_space = _identity_space(space)
        self.observation_space = _identity_space(space)
        self._state: Any = None

    def _reward(self, action: Any) -> float:
        if isinstance(self.action_space, spaces.Box):
            return 1.0 - float(np.mean(np.abs(action - self._state)))
        return float(np.mean(action == self._state))

    def _draw(self) -> Any:
        space = self.action_space
        if isinstance(space, spaces.Box):
            self._state = self.np_random.uniform(space.low, space.high).astype(np.float32)
        elif isinstance(space, spaces.Discrete):
            self._state = self.np_random.integers(space.start, space.start + space.n)
        elif isinstance(space, spaces.MultiDiscrete):
            self._state = self.np_random.integers(space.start, space.start + space.nvec)
        else:
            self._state = self.np_random.integers(0, 2, size=space.shape, dtype=np.int8)
        return self._state


IMAGE_SIDE = 36
"""The smallest square that the Nature CNN's three convolutions fit on."""


class ImageIdentity(Guessing):
    """Name the bright quarter of a picture: 1 for the right one, else 0."""

    observation_space: Space = spaces.Box(0, 255, (IMAGE_SIDE, IMAGE_SIDE, 1), np.uint8)
    action_space: Space = spaces.Discrete(4)

    def _draw(self) -> Any:
        self._quarter = int(self.np_random.integers(4))
        return quarter_image(self._quarter)

    def _reward(self, action: Any) -> float:
        return float(action == self._quarter)


class BoardIdentity(ImageIdentity):
    """The same on a board of four by four cells with two channels, the second of them empty."""

    observation_space: Space = spaces.Box(0, 1, (4, 4, 2), bool)

    def _draw(self) -> Any:
        super()._draw()
        board = np.zeros((2, 2, 2, 2, 2), bool)
        board[self._quarter // 2, :, self._quarter % 2, :, 0] = True
        return board.reshape(4, 4, 2)


class DictIdentity(Guessing):
    """Three questions at once, one for each part of the observation; the fraction of right answers.

    The sign of a vector's sum, the bright quarter of a picture, and a number.
    """

    def __init__(self) -> None:
        self.observation_space = spaces.Dict(
            {
                "vector": spaces.Box(-1.0, 1.0, (2,), np.float32),
                "image": spaces.Box(0, 255, (IMAGE_SIDE, IMAGE_SIDE, 1), np.uint8),
                "number": spaces.Discrete(3),
            }
        )
        self.action_space = spaces.MultiDiscrete([2, 4, 3])

    def _reward(self, action: Any) -> float:
        return float(np.mean(action == self._answers))

    def _draw(self) -> dict[str, Any]:
        vector = self.np_random.uniform(-1.0, 1.0, 2).astype(np.float32)
        quarter, number = int(self.np_random.integers(4)), int(self.np_random.integers(3))
        self._answers = np.array([vector.sum() > 0, quarter, number], dtype=np.int64)
        return {"vector": vector, "image": quarter_image(quarter), "number": number}


def mirrored_pendulum(observations: Any, actions: Any) -> tuple[Any, Any]:
    """Return the observations and actions of a pendulum on the other side."""
    return observations * observations.new_tensor([1.0, -1.0, -1.0]), -actions


class MaskedMemory(Memory):
    """The same with four actions, of which a mask forbids some; one of these ends it with −1.

    On the way one of the last two actions is allowed, at the last step only the first two, which answer. So
    without masks few episodes reach the end, and without memory the mean return is 0 at best.
    """

    def __init__(self, length: int = 6) -> None:
        super().__init__(length)
        self.action_space = spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Info]:
        result = super().reset(seed=seed, options=options)
        self._draw_allowed()
        return result

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        """Go one place on, or end where the action is not allowed."""
        is_allowed = bool(self._allowed[action])
        observation, reward, terminated, truncated, info = super().step(action)
        self._draw_allowed()
        if is_allowed:
            return observation, reward, terminated, truncated, info
        return observation, -1.0, True, False, {"is_success": False}

    def action_masks(self) -> NDArray[np.bool_]:
        return self._allowed.copy()

    def _draw_allowed(self) -> None:
        is_last = self._place >= self._length - 1
        way = 2 + int(self.np_random.integers(2))
        self._allowed = np.arange(4) < 2 if is_last else np.arange(4) == way


def quarter_image(quarter: int) -> NDArray[np.uint8]:
    """Return a dark picture whose quarter 0, 1, 2 or 3 is bright, (36, 36, 1)."""
    image = np.zeros((IMAGE_SIDE, IMAGE_SIDE, 1), dtype=np.uint8)
    half = IMAGE_SIDE // 2
    row, column = divmod(quarter, 2)
    image[row * half : (row + 1) * half, column * half : (column + 1) * half] = 255
    return image


def _identity_space(name: str) -> Space:
    kinds: dict[str, Space] = {
        "Discrete": spaces.Discrete(4),
        "Box": spaces.Box(-1.0, 1.0, (2,), np.float32),
        "MultiDiscrete": spaces.MultiDiscrete([3, 2]),
        "MultiBinary": spaces.MultiBinary(3),
    }
    return kinds[name]


for name, toy, arguments in (
    ("Identity", Identity, {}),
    *(
        (f"Identity{kind}", Identity, {"space": kind})
        for kind in ("Discrete", "Box", "MultiDiscrete", "MultiBinary")
    ),
    ("IdentityImage", ImageIdentity, {}),
    ("IdentityBoard", BoardIdentity, {}),
    ("IdentityDict", DictIdentity, {}),
    ("Composite", Composite, {}),
    *(
        (f"Masked{kind}", MaskedParts, {"space": kind})
        for kind in ("MultiDiscrete", "MultiBinary", "Composite")
    ),
    ("MaskedMemory", MaskedMemory, {}),
):
    place = f"{toy.__module__}:{toy.__name__}"
    gym.register(f"Zoo/{name}-v0", entry_point=place, max_episode_steps=20, kwargs=arguments)
