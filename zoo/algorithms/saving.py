"""Between an algorithm's parts and the files of an agent."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from gymnasium import spaces

from zoo.agents.agent_folder import FORMAT, AgentFiles
from zoo.config.aliases import unknown_key
from zoo.config.environment_values import resolved_values
from zoo.config.fields import build, variant_of
from zoo.config.sections import ALGO_LABELS
from zoo.envs.config import EnvConfig
from zoo.envs.spaces import space_from_dict, space_to_dict
from zoo.errors import ZooError
from zoo.memory.config import MemoryConfig
from zoo.policies.config import PolicyConfig


def agent_config(
    name: str,
    config: Any,
    policy: PolicyConfig,
    env: EnvConfig | None,
    n_envs: int,
    observation_space: spaces.Space[Any],
    action_space: spaces.Space[Any],
    memory: MemoryConfig | None = None,
    preset: str | None = None,
    *,
    masks_actions: bool = False,
) -> dict[str, Any]:
    """Return what rebuilds an agent's policy and environment, as plain values.

    ``masks_actions`` says that it has learned to choose among valid actions only.
    """
    return {
        "format": FORMAT,
        "algo": {
            "name": name,
            **({} if preset is None else {"preset": preset}),
            **dataclasses.asdict(config),
        },
        "policy": dataclasses.asdict(policy),
        **({} if memory is None else {"memory": dataclasses.asdict(memory)}),
        "env": None if env is None else dataclasses.asdict(env),
        "n_envs": n_envs,
        "observation_space": space_to_dict(observation_space),
        "action_space": space_to_dict(action_space),
        **({"masks_actions": True} if masks_actions else {}),
    }


CHOICES = ("seed", "device", "compile", "threads", "precision")
"""What is chosen anew each time that an agent is loaded."""


def constructor_arguments(
    files: AgentFiles,
    name: str,
    config_class: type[Any],
    options: Mapping[str, Any],
    *,
    has_replay: bool = False,
) -> dict[str, Any]:
    """Return what an algorithm called ``name`` is built with to be this agent, without an environment.

    ``options`` are hyperparameters with other values than the agent's, `CHOICES`, and another ``memory``
    where it learns from one. Raises `ZooError` if it is the agent of another algorithm, or values don't fit.
    """
    values = section_of(files, "algo")
    found, _ = (values.pop(label, None) for label in ALGO_LABELS)
    if found != name:
        raise ZooError(f"this is an agent of {found}, not of {name}; zoo.load() finds the class itself")
    names = [field.name for field in dataclasses.fields(variant_of(config_class, values, "algo"))]
    replayed = None if files.config.get("memory") is None else section_of(files, "memory")
    memory = {"memory": replayed} if has_replay else {}
    for option in options:
        if option not in names and option not in CHOICES and option not in memory:
            raise unknown_key(option, [*names, *CHOICES, *memory, "n_envs"], "")
    changed = {option: value for option, value in options.items() if option in names}
    return {
        **memory,
        **{option: value for option, value in options.items() if option in (*CHOICES, *memory)},
        "policy": build(PolicyConfig, section_of(files, "policy"), "policy"),
        "config": build(config_class, {**values, **changed}, "algo"),
        "observation_space": space_from_dict(files.config["observation_space"]),
        "action_space": space_from_dict(files.config["action_space"]),
    }


def env_of(files: AgentFiles) -> EnvConfig | None:
    """Return the environment that the agent was trained in, if it is known."""
    return None if files.config.get("env") is None else build(EnvConfig, section_of(files, "env"), "env")


def section_of(files: AgentFiles, name: str) -> dict[str, Any]:
    """Return a section of an agent's config; one that the user trusts may take values from variables."""
    values: dict[str, Any] = files.config.get(name) or {}
    return resolved_values(values, below=(name,)) if files.is_trusted else dict(values)
