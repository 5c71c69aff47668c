"""`check_env`: is an environment fit to be trained on?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym

from zoo.envs.config import EnvConfig, env_config
from zoo.envs.making import findings


def check_env(
    env: str | EnvConfig | gym.Env[Any, Any] | Callable[[], gym.Env[Any, Any]], **options: Any
) -> list[str]:
    """Try an environment for a moment, with all the wrappers that ``options`` (`EnvConfig`) put around it.

    Raises `ZooError` for what would fail or spoil training later: what was expected, what came, how to mend
    it. Returns what is merely suspicious. An environment of its own is made for the trial, so those that
    are trained on never notice; only a given instance is tried itself.
    """
    return findings(env, env_config(env, **options))
