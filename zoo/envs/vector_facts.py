"""What a vector environment says of itself, and what was attached to it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from numpy.typing import NDArray

from zoo.envs.spaces import Space, describe
from zoo.errors import ZooError


class Games(NamedTuple):
    """How whole games stand after a step, where losing a life ends an episode: arrays (num_envs,)."""

    returns: NDArray[np.float64]
    """Sums of raw rewards."""
    lengths: NDArray[np.int64]
    is_life: NDArray[np.bool_]
    """Where the episode ended with a life only."""


def attached(env: Any, name: str) -> Any:
    """Return an attribute that `make_vec_env` left on the environment, below whatever wraps it."""
    while True:
        value = getattr(env, name, None)
        if value is not None or not isinstance(env, VectorWrapper):
            return value
        env = env.env


def autoreset_mode(env: VectorEnv[Any, Any, Any]) -> AutoresetMode:
    mode = env.metadata.get("autoreset_mode")
    try:
        return AutoresetMode(mode)
    except ValueError:
        raise ZooError(
            f"{type(env.unwrapped).__name__} does not say when it resets: set "
            'metadata["autoreset_mode"] to a gymnasium.vector.AutoresetMode'
        ) from None


def refuse_other_shapes(observations: Any, space: Space, num_envs: int) -> None:
    """Raise `ZooError` if these are not the observations of so many environments: they would be broadcast."""
    for key, part in space.items() if isinstance(space, spaces.Dict) else [(None, space)]:
        found = np.shape(observations if key is None else observations[key])
        if part.shape is not None and found != (num_envs, *part.shape):
            what = "observations" if key is None else f"observations `{key}`"
            raise ZooError(
                f"the vector environment gave {what} of shape {found}; "
                f"{num_envs} of {describe(part)} have the shape {(num_envs, *part.shape)}"
            )
