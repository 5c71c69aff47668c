"""Stopping at the first NaN or infinity, and saying where it came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import VectorWrapper

from zoo.errors import ZooError


class NanCheck(VectorWrapper):
    """Raises `ZooError` for a NaN or an infinity in actions, observations, final observations or rewards."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self._n_steps = 0

    def reset(
        self, *, seed: int | Sequence[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset and look at the observations."""
        observations, infos = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        self._check("observation of the reset", observations)
        return observations, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Look at the actions, step, and look at what came."""
        self._n_steps += 1
        self._check("action given to", actions)
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        self._check("observation of", observations)
        self._check("reward of", rewards)
        for i, final in enumerate(infos.get("final_obs", ())):
            if final is not None and (terminated[i] or truncated[i]):
                self._check("final observation of", final, only_env=i)
        return observations, rewards, terminated, truncated, infos

    def _check(self, what: str, values: Any, key: str = "", only_env: int | None = None) -> None:
        if isinstance(values, tuple):
            values = dict(enumerate(values))
        if isinstance(values, Mapping):
            for part, inner in values.items():
                self._check(what, inner, f"{key}[{part!r}]", only_env)
            return
        array = np.asarray(values)
        if array.dtype.kind != "f" or np.isfinite(array).all():
            return
        where = np.argwhere(~np.isfinite(array))[0].tolist()
        bad = array[tuple(where)]
        env = only_env if only_env is not None else where.pop(0)
        raise ZooError(f"{bad} in the {what} env {env} at step {self._n_steps}, at {key}{where}")
