"""Between an algorithm and the files of an agent."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from zoo.agents.files import AgentFiles
from zoo.config.fields import build
from zoo.envs.config import EnvConfig
from zoo.envs.normalize import Normalizer
from zoo.envs.spaces import space_from_dict, space_to_dict
from zoo.errors import ZooError
from zoo.policies.config import PolicyConfig

if TYPE_CHECKING:
    from zoo.algorithms.base import Algorithm

Agent = TypeVar("Agent", bound="Algorithm[Any]")


def files_of(algorithm: Algorithm[Any], card: Mapping[str, Any]) -> AgentFiles:
    """Return what rebuilds the agent: its config, parameters and statistics, and the card with its scores."""
    env_config = algorithm.env_config
    config = {
        "format": 1,
        "algo": {"name": algorithm.name, **dataclasses.asdict(algorithm.config)},
        "policy": dataclasses.asdict(algorithm.policy_config),
        "env": None if env_config is None else dataclasses.asdict(env_config),
        "n_envs": algorithm.n_envs,
        "observation_space": space_to_dict(algorithm.observation_space),
        "action_space": space_to_dict(algorithm.action_space),
    }
    full_card = {
        "algo": algorithm.name,
        "env": None if env_config is None else env_config.id,
        "seed": algorithm.seed,
        "timesteps": algorithm.num_timesteps,
        **card,
    }
    statistics = None if algorithm.normalizer is None else algorithm.normalizer.state()
    normalization = None if statistics is None else (statistics["arrays"], statistics["values"])
    return AgentFiles(config, algorithm.get_parameters(), normalization, full_card)


def rebuilt(agent_class: type[Agent], files: AgentFiles, env: Any, options: Mapping[str, Any]) -> Agent:
    """Return the agent of these files, in ``env`` if one is given. Raises `ZooError` if they don't fit."""
    values = dict(files.config["algo"])
    name = values.pop("name", None)
    if name != agent_class.name:
        raise ZooError(
            f"this is an agent of {name}, not of {agent_class.name}; zoo.load() finds the class itself"
        )
    agent = agent_class(
        build(PolicyConfig, files.config["policy"], "policy"),
        None,
        config=build(agent_class.config_class, values, "algo"),
        observation_space=space_from_dict(files.config["observation_space"]),
        action_space=space_from_dict(files.config["action_space"]),
        **options,
    )
    agent.set_parameters(files.tensors)
    agent.num_timesteps = int(files.card.get("timesteps") or 0)
    if files.config.get("env") is not None:
        agent.env_config = build(EnvConfig, files.config["env"], "env")
    if files.normalization is not None:
        arrays, values = files.normalization
        agent.normalizer = Normalizer.from_state({"arrays": arrays, "values": values})
    if env is not None:
        agent.set_env(env, n_envs=int(files.config.get("n_envs", 1)) if isinstance(env, str) else 1)
    return agent
