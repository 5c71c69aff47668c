"""An algorithm as an agent on disk: its config and card, and how it is made again from them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gymnasium import spaces

from zoo.agents.agent_folder import FORMAT, AgentFiles
from zoo.buffers.config import ReplayConfig
from zoo.config.aliases import unknown_key
from zoo.config.environment_values import resolved_values
from zoo.config.fields import build, variant_of
from zoo.config.schema import ALGO_LABELS
from zoo.envs.config import EnvConfig
from zoo.envs.normalize import Normalizer
from zoo.envs.spaces import space_from_dict, space_to_dict
from zoo.errors import ZooError
from zoo.policies.config import PolicyConfig

if TYPE_CHECKING:
    from zoo.algorithms.algorithm import Algorithm


def agent_config(
    name: str,
    config: Any,
    policy: PolicyConfig,
    env: EnvConfig | None,
    n_envs: int,
    observation_space: spaces.Space[Any],
    action_space: spaces.Space[Any],
    replay: ReplayConfig | None = None,
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
        **({} if replay is None else {"replay": dataclasses.asdict(replay)}),
        "env": None if env is None else dataclasses.asdict(env),
        "n_envs": n_envs,
        "observation_space": space_to_dict(observation_space),
        "action_space": space_to_dict(action_space),
        **({"masks_actions": True} if masks_actions else {}),
    }


RETIRED = {"bc": ("ent_coef", "l2_coef"), "gail": ("absorbing_states",)}
"""Hyperparameters of earlier versions, by algorithm: agents that have them act the same without."""

CHOICES = ("seed", "device", "compile", "threads", "precision")
"""Arguments that are not saved with an agent, but chosen when it is loaded."""


def constructor_arguments(
    files: AgentFiles,
    name: str,
    config_class: type[Any],
    options: Mapping[str, Any],
    *,
    has_replay: bool = False,
) -> dict[str, Any]:
    """Return what an algorithm called ``name`` is built with to be this agent, without an environment.

    ``options`` are hyperparameters with other values than the agent's, `CHOICES`, and another ``replay``
    where it learns from one. Raises `ZooError` if it is the agent of another algorithm, or values don't fit.
    """
    values = section_of(files, "algo")
    found, _ = (values.pop(label, None) for label in ALGO_LABELS)
    if found != name:
        raise ZooError(f"this is an agent of {found}, not of {name}; zoo.load() finds the class itself")
    for retired in RETIRED.get(name, ()):
        values.pop(retired, None)
    names = [field.name for field in dataclasses.fields(variant_of(config_class, values, "algo"))]
    replayed = None if files.config.get("replay") is None else section_of(files, "replay")
    replay = {"replay": replayed} if has_replay else {}
    for option in options:
        if option not in names and option not in CHOICES and option not in replay:
            raise unknown_key(option, [*names, *CHOICES, *replay, "n_envs"], "")
    changed = {option: value for option, value in options.items() if option in names}
    return {
        **replay,
        **{option: value for option, value in options.items() if option in (*CHOICES, *replay)},
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


def agent_files(algorithm: Algorithm, card: Mapping[str, Any]) -> AgentFiles:
    """Return an algorithm as an agent; ``card`` is added to its card."""
    config = agent_config(
        *(algorithm.name, algorithm.config, algorithm.policy_config, algorithm.env_config, algorithm.n_envs),
        *(algorithm.observation_space, algorithm.action_space, algorithm.replay_config, algorithm.preset),
        masks_actions=algorithm.masks_actions,
    )
    full_card = {
        "algo": algorithm.preset or algorithm.name,
        "env": None if algorithm.env_config is None else algorithm.env_config.id,
        "seed": algorithm.seed,
        "timesteps": algorithm.num_timesteps,
        "precision": algorithm.runtime.precision,
        **card,
    }
    statistics = None if algorithm.normalizer is None else algorithm.normalizer.state()
    normalization = None if statistics is None else (statistics["arrays"], statistics["values"])
    return AgentFiles(config, algorithm.get_parameters(), normalization, full_card)


def unpickled(algorithm_class: type[Algorithm], files: AgentFiles, options: Mapping[str, Any]) -> Algorithm:
    """Return the algorithm that `Algorithm.__reduce__` has pickled."""
    return algorithm_class.from_files(files, **options)


def restore(algorithm: Algorithm, files: AgentFiles) -> None:
    """Give an algorithm, made for an agent, the agent's parameters, statistics and origin."""
    algorithm.set_parameters(files.tensors)
    algorithm.n_envs = files.config.get("n_envs", 1)
    algorithm.num_timesteps = int(files.card.get("timesteps") or 0)
    algorithm.preset, algorithm.env_config = files.config["algo"].get("preset"), env_of(files)
    algorithm.masks_actions = files.config.get("masks_actions") is True
    if files.normalization is not None:
        arrays, values = files.normalization
        algorithm.normalizer = Normalizer.from_state({"arrays": arrays, "values": values})
