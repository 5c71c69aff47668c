"""Small environments with a known best return, and classic ones that do not show velocities.

They are registered when `zoo.envs` is imported; those without velocities by the names of RL Baselines3 Zoo.
"""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from zoo.envs.spaces import Info, Space, choice_sizes, leaf_spaces, leaves
from zoo.envs.wrappers import MaskVelocities

ARM_AND_BITS: Space = spaces.Dict(
    {
        "arm": spaces.Tuple((spaces.Discrete(3, start=1), spaces.Box(-1.0, 1.0, (1,), np.float32))),
        "bits": spaces.MultiBinary(2),
    }
)


class Guessing(gym.Env[Any, Any]):
    """Each step asks a question: `_draw` returns the observation, `_reward` what an action earns."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Info]:
        """Draw the first question."""
        super().reset(seed=seed)
        return self._draw(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        """Reward ``action`` and draw the next question."""
        reward = self._reward(action)
        return self._draw(), reward, False, False, {}

    def _draw(self) -> Any:
        raise NotImplementedError

    def _reward(self, action: Any) -> float:
        raise NotImplementedError


class Masked(Guessing):
    """Choose among the actions that `action_masks` allows; a forbidden one ends the episode with −1.

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


IMAGE_SIDE = 36
"""The smallest square that the Nature CNN's three convolutions fit on."""


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


class ImageIdentity(Guessing):
    """Name the bright quarter of a picture: 1 for the right one, else 0."""

    observation_space: Space = spaces.Box(0, 255, (IMAGE_SIDE, IMAGE_SIDE, 1), np.uint8)
    action_space: Space = spaces.Discrete(4)

    def _draw(self) -> Any:
        self._quarter = int(self.np_random.integers(4))
        return quarter_image(self._quarter)

    def _reward(self, action: Any) -> float:
        return float(action == self._quarter)


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


class Memory(gym.Env[Any, Any]):
    """Recall at the last step the cue of the first: 1 for the right one of two actions, else −1.

    In between nothing is observed but the place, so without memory the mean return is 0.
    """

    def __init__(self, length: int = 6) -> None:
        self.observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.action_space = spaces.Discrete(2)
        self._length = length

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Info]:
        """Show the cue."""
        super().reset(seed=seed)
        self._cue = int(self.np_random.integers(2))
        self._place = 0
        return np.array([2 * self._cue - 1, 0.0], dtype=np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        """Go one place on; at the last one the action counts."""
        self._place += 1
        terminated = self._place == self._length
        reward = 2.0 * float(action == self._cue) - 1.0 if terminated else 0.0
        observation = np.array([0.0, self._place / self._length], dtype=np.float32)
        return observation, reward, terminated, False, {"is_success": reward > 0} if terminated else {}


class MaskedMemory(Memory):
    """The same with four actions, of which a mask forbids some; one of these ends it with −1.

    On the way one of the last two actions is allowed, at the last step only the first two, which answer. So
    without masks few episodes reach the end, and without memory the mean return is 0 at best.
    """

    def __init__(self, length: int = 6) -> None:
        super().__init__(length)
        self.action_space = spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Info]:
        """Show the cue."""
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
        """Return which actions are allowed now."""
        return self._allowed.copy()

    def _draw_allowed(self) -> None:
        is_last = self._place >= self._length - 1
        way = 2 + int(self.np_random.integers(2))
        self._allowed = np.arange(4) < 2 if is_last else np.arange(4) == way


class BitFlipping(gym.Env[Any, Any]):
    """Reach a goal pattern by flipping one bit at a time: −1 a step until it is reached (Andrychowicz 2017).

    A goal environment: ``compute_reward`` and ``compute_terminated`` answer for any achieved and desired
    goals, in batches too. With ``continuous`` an action flips every bit whose value is positive; with
    ``image`` patterns are pictures, goals too, of squares that are bright for a one.
    """

    def __init__(self, n_bits: int = 15, continuous: bool = False, image: bool = False) -> None:
        self.n_bits, self.continuous, self.image = n_bits, continuous, image
        pattern: Space = spaces.Box(0.0, 1.0, (n_bits,), np.float32)
        if image:
            pattern = spaces.Box(0, 255, (IMAGE_SIDE, IMAGE_SIDE, 1), np.uint8)
        self._n_axes = len(pattern.shape or ())
        self.observation_space = spaces.Dict(
            {"observation": pattern, "achieved_goal": pattern, "desired_goal": pattern}
        )
        self.action_space = (
            spaces.Box(-1.0, 1.0, (n_bits,), np.float32) if continuous else spaces.Discrete(n_bits)
        )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Info]:
        """Draw a pattern and another one to reach."""
        super().reset(seed=seed)
        self._bits = self._pattern()
        self._goal = self._pattern()
        while np.array_equal(self._bits, self._goal):
            self._goal = self._pattern()
        self._n_steps = 0
        return self._observation(), {"is_success": False}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        """Flip, and end when the goal is reached; after as many steps as there are bits it is too late."""
        flipped = action > 0 if self.continuous else np.arange(self.n_bits) == action
        self._bits = np.where(flipped, 1.0 - self._bits, self._bits).astype(np.float32)
        self._n_steps += 1
        success = bool(np.array_equal(self._bits, self._goal))
        too_late = self._n_steps >= self.n_bits and not success
        return self._observation(), float(success) - 1.0, success, too_late, {"is_success": success}

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> NDArray[np.float32]:
        """Return 0 where the goal is reached and −1 elsewhere, for goals (…, n_bits) or pictures of them."""
        return self.compute_terminated(achieved_goal, desired_goal, info).astype(np.float32) - np.float32(1.0)

    def compute_terminated(self, achieved_goal: Any, desired_goal: Any, info: Any) -> NDArray[np.bool_]:
        """Return whether the goal is reached, for goals (…, n_bits) or pictures of them."""
        axes = tuple(range(-self._n_axes, 0))
        return np.logical_and.reduce(np.equal(achieved_goal, desired_goal), axis=axes)

    def _pattern(self) -> NDArray[np.float32]:
        return self.np_random.integers(0, 2, self.n_bits).astype(np.float32)

    def _observation(self) -> dict[str, Any]:
        shown = bit_image if self.image else np.copy
        return {
            "observation": shown(self._bits),
            "achieved_goal": shown(self._bits),
            "desired_goal": shown(self._goal),
        }


def bit_image(bits: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Return a picture of a grid of squares, row by row, which are bright for a one, (36, 36, 1)."""
    n_columns = math.ceil(math.sqrt(len(bits)))
    side = IMAGE_SIDE // n_columns
    grid = np.zeros(n_columns**2, dtype=np.uint8)
    grid[: len(bits)] = 255 * bits
    squares = grid.reshape(n_columns, n_columns).repeat(side, axis=0).repeat(side, axis=1)
    image = np.zeros((IMAGE_SIDE, IMAGE_SIDE, 1), dtype=np.uint8)
    image[: len(squares), : len(squares), 0] = squares
    return image


def quarter_image(quarter: int) -> NDArray[np.uint8]:
    """Return a dark picture whose quarter 0, 1, 2 or 3 is bright, (36, 36, 1)."""
    image = np.zeros((IMAGE_SIDE, IMAGE_SIDE, 1), dtype=np.uint8)
    half = IMAGE_SIDE // 2
    row, column = divmod(quarter, 2)
    image[row * half : (row + 1) * half, column * half : (column + 1) * half] = 255
    return image


def register() -> None:
    """Register the toys, with 20 steps an episode, and the environments without velocities."""
    identities = ("Discrete", "Box", "MultiDiscrete", "MultiBinary")
    maskable = ("MultiDiscrete", "MultiBinary", "Composite")
    toys: dict[str, tuple[type[gym.Env[Any, Any]], dict[str, Any]]] = {
        "Identity": (Identity, {}),
        **{f"Identity{space}": (Identity, {"space": space}) for space in identities},
        "IdentityImage": (ImageIdentity, {}),
        "IdentityDict": (DictIdentity, {}),
        "Composite": (Composite, {}),
        "Masked": (Masked, {}),
        **{f"Masked{space}": (Masked, {"space": space}) for space in maskable},
        "Memory": (Memory, {}),
        "MaskedMemory": (MaskedMemory, {}),
        "BitFlipping": (BitFlipping, {}),
        "BitFlippingContinuous": (BitFlipping, {"continuous": True}),
        "BitFlippingImage": (BitFlipping, {"image": True}),
    }
    for name, (toy, arguments) in toys.items():
        env_id = f"Zoo/{name}-v0"
        limit = None if toy is BitFlipping else 20
        if env_id not in gym.registry:
            place = f"{toy.__module__}:{toy.__name__}"
            gym.register(env_id, entry_point=place, max_episode_steps=limit, kwargs=arguments)
    for env_id, shown in WITHOUT_VELOCITIES.items():
        if env_id not in gym.registry:
            spec = gym.spec(shown)
            gym.register(
                env_id,
                entry_point=f"{__name__}:make",
                max_episode_steps=spec.max_episode_steps,
                reward_threshold=spec.reward_threshold,
                kwargs={"shown": shown},
            )


def _identity_space(name: str) -> Space:
    kinds: dict[str, Space] = {
        "Discrete": spaces.Discrete(4),
        "Box": spaces.Box(-1.0, 1.0, (2,), np.float32),
        "MultiDiscrete": spaces.MultiDiscrete([3, 2]),
        "MultiBinary": spaces.MultiBinary(3),
    }
    return kinds[name]


WITHOUT_VELOCITIES = {
    "CartPoleNoVel-v1": "CartPole-v1",
    "MountainCarNoVel-v0": "MountainCar-v0",
    "MountainCarContinuousNoVel-v0": "MountainCarContinuous-v0",
    "PendulumNoVel-v1": "Pendulum-v1",
    "LunarLanderNoVel-v3": "LunarLander-v3",
    "LunarLanderContinuousNoVel-v3": "LunarLanderContinuous-v3",
}
"""Id without velocities → the id with them."""


def make(shown: str, **options: Any) -> gym.Env[Any, Any]:
    """Return the environment ``shown`` with its velocities masked, and without its time limit."""
    return MaskVelocities(gym.make(shown, **options).unwrapped)
