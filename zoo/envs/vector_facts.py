"""What a vector environment says of itself, and what was attached to it."""

from __future__ import annotations

from typing import Any

from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

from zoo.errors import ZooError


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
