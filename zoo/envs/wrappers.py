"""Wrappers of single environments."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

Env = gym.Env[Any, Any]
Info = dict[str, Any]


class EpisodeStatistics(gym.Wrapper[Any, Any, Any, Any]):
    """Sums raw rewards below the wrappers that change them; `EnvGroup` reads it when an episode ends."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self._return = 0.0
        self._length = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Info]:
        """Start a new sum."""
        self._return, self._length = 0.0, 0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, Info]:
        """Step and add the reward up."""
        result = self.env.step(action)
        self._return += float(result[1])
        self._length += 1
        return result

    def so_far(self) -> dict[str, Any]:
        """Return ``r`` and ``l`` of the episode, as Gymnasium's RecordEpisodeStatistics names them."""
        return {"r": self._return, "l": self._length}
