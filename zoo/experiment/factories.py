"""Making a run's algorithm, environments and callbacks by its config."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeGuard, TypeVar

from hydra.errors import HydraException
from hydra.utils import instantiate

from zoo.algorithms.algorithm import Algorithm
from zoo.algorithms.callback import Callback
from zoo.algorithms.registry import algorithm_class
from zoo.buffers.config import replay_config
from zoo.config.environment_values import as_written
from zoo.config.fields import build
from zoo.config.schema import ALGO_LABELS, OwnCallbackSettings
from zoo.config.user_files import own_class
from zoo.core.printing import one_line
from zoo.envs.adapter import make_adapter
from zoo.envs.config import EnvConfig
from zoo.envs.make_env import make_vec_env
from zoo.envs.monitor import EpisodeMonitor
from zoo.envs.spaces import is_goal_space
from zoo.envs.video import parse_size
from zoo.errors import ZooError
from zoo.experiment.callbacks import (
    EvalCallback,
    KeepAgentsCallback,
    StopTrainingOnMaxEpisodes,
    StopTrainingOnNoModelImprovement,
    StopTrainingOnRewardThreshold,
    VideoCallback,
)
from zoo.experiment.checkpoint import CheckpointCallback
from zoo.experiment.loggers import ConsoleLogger, CsvLogger, Logger, LoggerGroup, LoggingCallback, LogInterval
from zoo.experiment.progress_bar import ProgressBarCallback
from zoo.experiment.run_folder import RunFolder
from zoo.experiment.trackers import TensorBoardLogger, WandbLogger
from zoo.policies.config import PolicyConfig

TIMES_IN_A_RUN = {"eval": 20, "checkpoint": 10, "agents": 10, "video": 10, "logger": 100}
"""How often each callback is called, and the loggers are, where no interval is set."""

Base = TypeVar("Base")


def make_algorithm(config: Mapping[str, Any], closing: ExitStack) -> Algorithm:
    """Make the algorithm and its environments, which are closed with ``closing``. Raises `ZooError`."""
    env = build(EnvConfig, config["env"], "env")
    algorithm_type = algorithm_class(config["algo"]["name"], config["algo"].get("preset"))
    _check_dataset(algorithm_type, config.get("dataset"), (config.get("pretrain") or {}).get("dataset"))
    values = {key: value for key, value in config["algo"].items() if key not in ALGO_LABELS}
    hyperparameters = build(algorithm_type.config_class, values, "algo")
    algorithm_type.check_workers(hyperparameters, config.get("workers", 1))
    envs = make_adapter(make_vec_env(env, config["n_envs"], gamma=values.get("gamma", 0.99)))
    closing.callback(envs.close)
    options: dict[str, Any] = {}
    if algorithm_type.learns_from_experts:
        options["dataset"] = config.get("dataset")
    if algorithm_type.has_replay:
        options["replay"] = replay_config(config.get("replay"))
    algorithm = algorithm_type(
        build(PolicyConfig, config["policy"], "policy"),
        envs,
        seed=config["seed"],
        device=config["device"],
        compile=config["compile"],
        threads=config["threads"],
        config=hyperparameters,
        **options,
    )
    algorithm.preset, algorithm.env_config = config["algo"].get("preset"), env
    return algorithm


def _check_dataset(algorithm_type: type[Algorithm], dataset: str | None, cloned: str | None) -> None:
    """Raise `ZooError` for expert data that the algorithm can't use, or that it needs and lacks."""
    name = algorithm_type.of_preset or algorithm_type.name
    if dataset is not None and not algorithm_type.learns_from_experts:
        how = f"pretrain.dataset={dataset} lets it start as the clone of an expert"
        raise ZooError(f"`dataset={dataset}`: {name} learns in environments; {how}")
    if dataset is None and algorithm_type.learns_from_experts:
        how = "(zoo expert agent=… records an agent's episodes)"
        raise ZooError(f"{name} learns from expert data: dataset={cloned or 'PATH'} {how}")


def monitor_episodes(algorithm: Algorithm, run: RunFolder, closing: ExitStack, *, n_workers: int) -> None:
    """Write every finished episode to the run's folder: a file for each environment of all ranks."""
    envs, env = algorithm.envs, algorithm.env_config
    assert envs is not None and env is not None  # noqa: PT018
    lacks_success = is_goal_space(envs.observation_space) and "is_success" not in env.info_keywords
    keywords = [*env.info_keywords, "is_success"] if lacks_success else env.info_keywords
    monitor = EpisodeMonitor(run.monitor, n_workers * envs.num_envs, env_id=env.id, info_keywords=keywords)
    closing.callback(monitor.close)
    envs.monitor, envs.start = monitor, monitor.start


def make_callbacks(config: Mapping[str, Any], run: RunFolder, closing: ExitStack) -> list[Callback]:
    """Return a run's callbacks in the order of their calls; ``closing`` closes them. Raises `ZooError`."""
    env = build(EnvConfig, config["env"], "env")
    loggers = LoggerGroup(_outputs(config, run), run.path, as_written(config))
    config = with_intervals(config)
    settings = {name: value for name, value in config["callbacks"].items() if value is not None}
    built_in = {name: value for name, value in settings.items() if _is_ours(value)}
    evaluation: Any = None
    callbacks: list[Callback] = []
    if values := built_in.get("eval"):
        evaluation = EvalCallback(
            dataclasses.replace(env, check=False),  # it was checked before the training began
            every=values["every"],
            n_eval_episodes=values["n_episodes"],
            deterministic=values["deterministic"],
            n_envs=values["n_envs"],
            confirm=values.get("confirm", 0),  # runs of format 1 that began without it
            run=run,
        )
        callbacks.append(evaluation)
    for name in ("stop_on_reward", "stop_on_no_improvement"):
        if name in built_in and evaluation is None:
            raise ZooError(f"`callbacks.{name}` needs `callbacks.eval`, which is switched off")
    if values := built_in.get("stop_on_reward"):
        callbacks.append(StopTrainingOnRewardThreshold(evaluation, values["threshold"]))
    if values := built_in.get("stop_on_no_improvement"):
        most, first = values["max_evaluations"], values["min_evaluations"]
        callbacks.append(StopTrainingOnNoModelImprovement(evaluation, most, first))
    if values := built_in.get("stop_on_episodes"):
        callbacks.append(StopTrainingOnMaxEpisodes(values["max_episodes"]))
    if values := built_in.get("agents"):  # after the evaluation, which scores them
        callbacks.append(KeepAgentsCallback(run, every=values["every"], evaluation=evaluation))
    callbacks += [
        _own_callback(f"callbacks.{name}", settings[name]) for name in settings if name not in built_in
    ]
    if values := built_in.get("video"):  # before the loggers, which write it beside the next entry
        options = {**values, "size": parse_size(values["size"])}
        callbacks.append(VideoCallback(env, run.videos, loggers=loggers, **options))
    if loggers.outputs:
        callbacks.append(LoggingCallback(config["logger"]["every"], loggers))
    if config.get("progress_bar"):
        callbacks.append(ProgressBarCallback())
    if values := built_in.get("checkpoint"):
        keep = values.get("keep", False)
        callbacks.append(CheckpointCallback(run.checkpoint, values["every"], tuple(callbacks), keep=keep))
    for callback in callbacks:  # they close themselves only where the training comes to its end
        if (close := getattr(callback, "close", None)) is not None:
            closing.callback(close)
    return callbacks


def callbacks_of_learn(
    algorithm: Algorithm, interval: int | None, tb_log_name: str | None, is_new: bool, progress_bar: bool
) -> list[Callback]:
    """Return the loggers and the bar that arguments of an algorithm and of its `learn` ask for.

    TensorBoard's folder has the next number, or the last one where a training goes on. Raises `ZooError`.
    """
    outputs: list[Logger] = [ConsoleLogger()] if algorithm.verbose else []
    if algorithm.tensorboard_log is not None:
        folder, name = Path(algorithm.tensorboard_log), tb_log_name or type(algorithm).__name__
        numbers = [path.name.removeprefix(f"{name}_") for path in folder.glob(f"{name}_*")]
        last = max((int(number) for number in numbers if number.isdecimal()), default=0)
        outputs.append(TensorBoardLogger(folder / f"{name}_{last + 1 if is_new or not last else last}"))
    elif tb_log_name is not None:
        raise ZooError(f"learn(tb_log_name={tb_log_name!r}) needs tensorboard_log=FOLDER of the constructor")
    callbacks: list[Callback] = [ProgressBarCallback()] if progress_bar else []
    if outputs:
        n_steps = algorithm.total_timesteps - algorithm.num_timesteps
        logging = LoggingCallback(0 if interval else max(1, n_steps // TIMES_IN_A_RUN["logger"]), outputs)
        callbacks += [logging, LogInterval(interval, logging)] if interval else [logging]
    return callbacks


def with_intervals(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config with each interval that is a share of the run as the number of steps that this is."""

    def divided(name: str, values: Any) -> Any:
        if name not in TIMES_IN_A_RUN or not _is_ours(values) or values.get("every") is not None:
            return values
        return {**values, "every": max(1, config["n_timesteps"] // TIMES_IN_A_RUN[name])}

    callbacks = {name: divided(name, values) for name, values in config["callbacks"].items()}
    return {**config, "callbacks": callbacks, "logger": divided("logger", config["logger"])}


def _is_ours(values: Mapping[str, Any] | None) -> TypeGuard[Mapping[str, Any]]:
    return values is not None and "_target_" not in values


def _outputs(config: Mapping[str, Any], run: RunFolder) -> list[Logger]:
    settings = config["logger"]
    outputs: list[Logger] = [ConsoleLogger()] if settings["console"] and config.get("verbose", 1) else []
    outputs += [CsvLogger(run.progress)] if settings["csv"] else []
    outputs += [TensorBoardLogger(run.tensorboard)] if settings["tensorboard"] else []
    if settings["wandb"] is not None:
        options = {key: value for key, value in settings["wandb"].items() if value is not None}
        outputs.append(WandbLogger(**options))
    own = [name for name, values in settings.items() if isinstance(values, Mapping) and not _is_ours(values)]
    return outputs + [_made(f"logger.{name}", Logger, settings[name]) for name in own]


def _own_callback(where: str, values: Mapping[str, Any]) -> Callback:
    """Make a callback of the user's own; one that takes no ``every`` is given it as an attribute."""
    arguments, target = dict(values), str(values["_target_"])
    parameters = inspect.signature(own_class(where, target, Callback)).parameters.values()
    takes_every = any(p.name == "every" or p.kind is p.VAR_KEYWORD for p in parameters)
    every = None if takes_every else arguments.pop("every", None)
    callback = _made(where, Callback, arguments)
    if every is not None:
        callback.every = build(OwnCallbackSettings, {"every": every}, where).every
    return callback


def _made(where: str, base: type[Base], values: Mapping[str, Any]) -> Base:
    arguments = dict(values)
    cls = own_class(where, str(arguments.pop("_target_")), base)
    try:
        inner = {key: value for key, value in arguments.items() if isinstance(value, Mapping | list)}
        inner = {key: value for key, value in inner.items() if "_target_" in str(value)}
        return cls(**arguments | {key: instantiate(value, _convert_="all") for key, value in inner.items()})
    except (TypeError, ZooError, HydraException) as error:
        raise ZooError(f"`{where}`: {one_line(error)}") from error
