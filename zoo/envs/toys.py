"""Small environments with a known best return, and classic ones that do not show velocities."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from zoo.envs.spaces import Info
from zoo.envs.wrappers import MaskVelocities


class Masked(gym.Env[Any, Any]):
    """Choose among the actions that `action_masks` allows, half of all; a forbidden one ends with −1.

    The worth of each action is observed; an allowed one earns it as a fraction of the best allowed one's.
    """

    def __init__(self, n_actions: int = 6) -> None:
        self._n = n_actions
        self.action_space = spaces.Discrete(n_actions)
        self.observation_space = spaces.Box(0.0, 1.0, (n_actions,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Info]:
        super().reset(seed=seed)
        return self._draw(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        """Reward ``action`` and draw anew, or end with −1 if it is forbidden."""
        is_allowed = bool(self._allowed[action])
        best = np.where(self._allowed, self._worths, 0.0).max()
        reward = float(self._worths[action] / best) if is_allowed else -1.0
        return self._draw(), reward, not is_allowed, False, {}

    def action_masks(self) -> NDArray[np.bool_]:
        """Return which actions are allowed now."""
        return self._allowed.copy()

    def _draw(self) -> NDArray[np.float32]:
        self._worths = self.np_random.uniform(0.1, 1.0, self._n).astype(np.float32)
        self._allowed = self.np_random.permutation(self._n) < self._n // 2
        return self._worths.copy()


class Memory(gym.Env[Any, Any]):
    """Recall at the last step the cue of the first: 1 for the right one of two actions, else −1.

    In between nothing is observed but the place, so without memory the mean return is 0.
    """

    def __init__(self, length: int = 6) -> None:
        self.observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.action_space = spaces.Discrete(2)
        self._length = length

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Info]:
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


class BitFlipping(gym.Env[Any, Any]):
    """Reach a goal pattern by flipping one bit at a time: −1 a step until it is reached (Andrychowicz 2017).

    A goal environment: ``compute_reward`` and ``compute_terminated`` answer for any achieved and desired
    goals, in batches too. With ``continuous`` an action flips every bit whose value is positive.
    """

    def __init__(self, n_bits: int = 15, continuous: bool = False) -> None:
        self.n_bits, self.continuous = n_bits, continuous
        pattern = spaces.Box(0.0, 1.0, (n_bits,), np.float32)
        self.observation_space = spaces.Dict(
            {"observation": pattern, "achieved_goal": pattern, "desired_goal": pattern}
        )
        every_bit = spaces.Box(-1.0, 1.0, (n_bits,), np.float32)
        self.action_space = every_bit if continuous else spaces.Discrete(n_bits)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Info]:
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
        """Return 0 where the goal is reached and −1 elsewhere, for goals (…, n_bits)."""
        return self.compute_terminated(achieved_goal, desired_goal, info).astype(np.float32) - np.float32(1.0)

    def compute_terminated(self, achieved_goal: Any, desired_goal: Any, info: Any) -> NDArray[np.bool_]:
        """Return whether the goal is reached, for goals (…, n_bits)."""
        return np.logical_and.reduce(np.equal(achieved_goal, desired_goal), axis=-1)

    def _pattern(self) -> NDArray[np.float32]:
        return self.np_random.integers(0, 2, self.n_bits).astype(np.float32)

    def _observation(self) -> dict[str, Any]:
        bits, goal = self._bits.copy(), self._goal.copy()
        return {"observation": bits, "achieved_goal": bits.copy(), "desired_goal": goal}


def make(base: str, **options: Any) -> gym.Env[Any, Any]:
    """Return the environment ``base`` with its velocities masked, and without its time limit."""
    return MaskVelocities(gym.make(base, **options).unwrapped)
