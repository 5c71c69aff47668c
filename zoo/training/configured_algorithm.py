"""The algorithm that a config describes, in its environments, whose episodes are written down."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Mapping
from typing import Any

from zoo.algorithms.algorithm import Algorithm
from zoo.algorithms.registry import algorithm_class
from zoo.config.algorithm_names import ALGO_LABELS
from zoo.config.fields import build
from zoo.envs.config import EnvConfig
from zoo.envs.goals import HINDSIGHT_ASKS, is_goal_space
from zoo.envs.monitor import EpisodeMonitor
from zoo.envs.stepper import EnvStepper
from zoo.envs.vec_env import make_vec_env
from zoo.errors import ZooError
from zoo.memory.config import memory_config
from zoo.memory.replay import refuse_too_large_memory
from zoo.policies.config import PolicyConfig
from zoo.training.problems import tell, warnings_in_one_line
from zoo.training.run_folder import RunFolder
from zoo.training.workers import workers_here


def make_algorithm(
    config: Mapping[str, Any], env: EnvConfig, closing: contextlib.ExitStack
) -> Algorithm[Any]:
    """Make it, and its environments, which are closed with ``closing``. Raises `ZooError`."""
    found = algorithm_class(config["algo"]["name"])
    _check_dataset(found, config.get("dataset"), (config.get("pretrain") or {}).get("dataset"))
    values = {key: value for key, value in config["algo"].items() if key not in ALGO_LABELS}
    hyperparameters = build(found.config_class, values, "algo")
    found.check_workers(hyperparameters, config.get("workers", 1))
    gamma = float(getattr(hyperparameters, "gamma", 0.99))
    with warnings.catch_warnings(record=True) as suspicions:
        envs = EnvStepper(make_vec_env(env, config["n_envs"], gamma=gamma))
    closing.callback(envs.close)
    options: dict[str, Any] = {"memory": memory_config(config.get("memory"))} if found.has_replay else {}
    for suspicion in map(str, (each.message for each in suspicions)):
        if not (_has_hindsight(options) and HINDSIGHT_ASKS in suspicion):  # the run itself will fail with it
            tell(suspicion)
    if found.learns_from_experts:
        options["dataset"] = config.get("dataset")
    if found.has_replay:
        spaces = envs.observation_space, envs.action_space, envs.mask_size
        needed = found.memory_bytes(hyperparameters, *spaces, **options)
        n_here = workers_here(config.get("workers", 1))  # each has a memory
        refuse_too_large_memory(n_here * int(needed), hyperparameters.buffer_size)
    with warnings_in_one_line():
        algorithm = found(
            build(PolicyConfig, config["policy"], "policy"),
            envs,
            seed=config["seed"],
            device=config["device"],
            compile=config["compile"],
            threads=config["threads"],
            precision=config["precision"],
            config=hyperparameters,
            **options,
        )
    algorithm.preset, algorithm.env_config = config["algo"].get("preset"), env
    return algorithm


def _has_hindsight(options: Mapping[str, Any]) -> bool:
    return "memory" in options and options["memory"].hindsight is not None


def _check_dataset(found: type[Algorithm[Any]], dataset: str | None, cloned: str | None) -> None:
    """Raise `ZooError` for expert data that nobody learns from, or where there are none to learn from."""
    if dataset is not None and not found.learns_from_experts:
        raise ZooError(
            f"`dataset={dataset}`: {found.name} learns in environments;"
            f" pretrain.dataset={dataset} lets it start as the clone of an expert"
        )
    if dataset is None and found.learns_from_experts:
        if cloned is not None:
            raise ZooError(
                f"{found.name} learns from expert data: dataset={cloned}; pretrain.dataset is what other"
                " algorithms begin with"
            )
        raise ZooError(
            f"{found.name} learns from expert data: dataset=PATH"
            " (zoo expert agent=… records what an agent does)"
        )


def watch_episodes(
    algorithm: Algorithm[Any],
    run: RunFolder,
    env: EnvConfig,
    closing: contextlib.ExitStack,
    *,
    n_workers: int = 1,
) -> None:
    """Let every finished episode be written to the run's folder; with its success where there are goals.

    There is a file for each environment of all workers.
    """
    envs = algorithm.envs
    assert envs is not None
    keywords = env.info_keywords
    if is_goal_space(envs.observation_space) and "is_success" not in keywords:
        keywords = [*keywords, "is_success"]
    n_envs = n_workers * envs.num_envs
    monitor = EpisodeMonitor(run.monitor, n_envs, env_id=env.id, info_keywords=keywords)
    closing.callback(monitor.close)
    envs.monitor, envs.start = monitor, monitor.start
