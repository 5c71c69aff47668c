"""`zoo check`: try an environment for a moment, and say what is wrong with it or what it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.config.fields import build
from zoo.core.printing import show
from zoo.envs.adapter import make_adapter
from zoo.envs.config import EnvConfig
from zoo.envs.env_checker import check_env
from zoo.envs.make_env import make_vec_env
from zoo.envs.spaces import describe


def run(config: Mapping[str, Any]) -> None:
    """Check the config's environment and print its spaces and warnings. Raises `ZooError` if it is broken."""
    env = build(EnvConfig, config["env"], "env")
    suspicions = check_env(env, config["seed"])
    envs = make_vec_env(env, 1, check=False)
    show(f"{env.id} is fine" if not suspicions else f"{env.id} can be trained on, but look at this:")
    for suspicion in suspicions:
        show(f"  {suspicion}")
    show(f"  observations  {describe(envs.single_observation_space)}")
    show(f"  actions       {describe(envs.single_action_space)}")
    show(f"  masks         {_masks(envs, env.mask_actions)}")
    envs.close()


def _masks(envs: Any, mask_actions: bool) -> str:
    if not mask_actions:
        return "not asked for (env.mask_actions=false)"
    stepper = make_adapter(envs)
    stepper.reset([0])
    size = stepper.mask_size
    return "none: every action is valid" if size is None else f"{size} values, one for each choice"
