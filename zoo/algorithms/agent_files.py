"""An algorithm as an agent on disk, and back: config, parameters, statistics and card, which can act."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from zoo.agents.agent_folder import FORMAT, AgentFiles
from zoo.config.aliases import UnknownKeyError
from zoo.config.environment_values import resolved
from zoo.config.fields import build, variant_of
from zoo.config.schema import ALGO_LABELS, OLDER_POLICY
from zoo.envs.config import EnvConfig
from zoo.envs.normalize import Normalizer
from zoo.envs.spaces import space_from_dict, space_to_dict
from zoo.errors import ZooError
from zoo.policies.config import PolicyConfig

if TYPE_CHECKING:
    from zoo.algorithms.agent import Agent


RETIRED = {"bc": ("ent_coef", "l2_coef"), "gail": ("absorbing_states", "d_normalize", "d_reward")}
"""Hyperparameters of earlier versions, by algorithm: agents that have them act the same without."""

CHOICES = ("seed", "device", "compile", "threads", "verbose", "tensorboard_log")
"""Arguments that are not saved with an agent, but chosen when it is loaded."""


def agent_files(algorithm: Agent, card: Mapping[str, Any]) -> AgentFiles:
    """Return an algorithm as an agent; ``card`` is added to its card."""
    preset, replay, env = algorithm.preset, algorithm.replay_config, algorithm.env_config
    config = {
        "format": FORMAT,
        "algo": {
            "name": algorithm.name,
            **({} if preset is None else {"preset": preset}),
            **dataclasses.asdict(algorithm.config),
        },
        "policy": dataclasses.asdict(algorithm.policy_config),
        **({} if replay is None else {"replay": dataclasses.asdict(replay)}),
        "env": None if env is None else dataclasses.asdict(env),
        "n_envs": algorithm.n_envs,
        "observation_space": space_to_dict(algorithm.observation_space),
        "action_space": space_to_dict(algorithm.action_space),
        **({"masks_actions": True} if algorithm.masks_actions else {}),
    }
    full_card = {
        "algo": algorithm.label,
        "env": None if env is None else env.id,
        "seed": algorithm.seed,
        "timesteps": algorithm.num_timesteps,
        **card,
    }
    statistics = None if algorithm.normalizer is None else algorithm.normalizer.state()
    normalization = None if statistics is None else (statistics["arrays"], statistics["values"])
    return AgentFiles(config, algorithm.get_parameters(), normalization, full_card)


def reduced(algorithm: Agent, of: type[Agent]) -> tuple[Any, ...]:
    """Return an agent for pickle (`__reduce__`): what loads it, a function of class ``of``, and its files."""
    options = {name: getattr(algorithm.runtime, name) for name in ("compile", "threads")}
    options |= {"seed": algorithm.seed, "device": str(algorithm.device)}
    return partial(of.from_files, **options), (agent_files(algorithm, {}),)


def constructor_arguments(
    files: AgentFiles, algorithm: type[Agent], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return constructor arguments that rebuild this agent without an environment.

    ``options`` are hyperparameters with other values than the agent's, `CHOICES`, and another ``replay``
    or a ``dataset`` where it learns from one. Raises `ZooError` if it is the agent of another algorithm, or
    values don't fit.
    """
    values = section_of(files, "algo")
    saved, preset = (values.pop(label, None) for label in ALGO_LABELS)
    if saved != algorithm.name:
        expected = algorithm.of_preset or algorithm.name
        raise ZooError(
            f"this is an agent of {preset or saved}, not of {expected}; zoo.load() finds the class itself"
        )
    for retired in RETIRED.get(algorithm.name, ()):
        values.pop(retired, None)
    config_class = variant_of(algorithm.config_class, values, "algo")
    names = [field.name for field in dataclasses.fields(config_class)]
    arguments: dict[str, Any] = {}
    if algorithm.has_replay:
        arguments["replay"] = section_of(files, "replay") or None
    if algorithm.learns_from_experts:
        arguments["dataset"] = None
    for option, value in options.items():
        if option in names:
            values[option] = value
        elif option in (*CHOICES, *arguments):
            arguments[option] = value
        else:
            raise UnknownKeyError(option, [*names, *CHOICES, *arguments, "n_envs"])
    policy = {**OLDER_POLICY, **section_of(files, "policy")}
    return {
        **arguments,
        "policy": build(PolicyConfig, policy, "policy"),
        "config": build(algorithm.config_class, values, "algo"),
        "observation_space": space_from_dict(files.config["observation_space"]),
        "action_space": space_from_dict(files.config["action_space"]),
    }


def restore(algorithm: Agent, files: AgentFiles) -> None:
    """Give an algorithm, made for an agent, the agent's parameters, statistics and origin."""
    config, env = files.config, section_of(files, "env")
    algorithm.set_parameters(files.tensors)
    algorithm.n_envs = config.get("n_envs", 1)
    algorithm.num_timesteps = int(files.card.get("timesteps") or 0)
    algorithm.preset = config["algo"].get("preset")
    algorithm.env_config = build(EnvConfig, env, "env") if env else None
    algorithm.masks_actions = config.get("masks_actions") is True
    if files.normalization is not None:
        arrays, values = files.normalization
        algorithm.normalizer = Normalizer.from_state({"arrays": arrays, "values": values})


def section_of(files: AgentFiles, name: str) -> dict[str, Any]:
    """Return a section of an agent's config; one that the user trusts may take values from variables."""
    values: dict[str, Any] = files.config.get(name) or {}
    return resolved({name: values})[name] if files.is_trusted else dict(values)
