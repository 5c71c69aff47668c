"""`zoo check`: try an environment for a moment, and say what is wrong with it or what it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.config.fields import build


def run(config: Mapping[str, Any]) -> None:
    """Check the environment of the config and print what it looks like; `ZooError` says what is wrong."""
    from zoo.envs.config import EnvConfig
    from zoo.envs.spaces import describe
    from zoo.envs.trial import check_env
    from zoo.envs.vec_env import make_vec_env

    env = build(EnvConfig, config["env"], "env")
    suspicions = check_env(env)
    envs = make_vec_env(env, 1, check=False)
    print(f"{env.id} is fine" if not suspicions else f"{env.id} can be trained on, but look at this:")
    for suspicion in suspicions:
        print(f"  {suspicion}")
    print(f"  observations  {describe(envs.single_observation_space)}")
    print(f"  actions       {describe(envs.single_action_space)}")
    envs.close()
