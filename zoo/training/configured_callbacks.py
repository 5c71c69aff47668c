"""From the sections ``callbacks`` and ``logger`` of a config to the callbacks of a run."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any, TypeGuard

from zoo.algorithms.callback import Callback
from zoo.config.environment_values import as_written
from zoo.config.fields import build
from zoo.config.intervals import minutes_of
from zoo.config.own_modules import own_class
from zoo.config.settings import OwnCallbackSettings
from zoo.config.tracking import TensorBoardSettings
from zoo.envs.config import EnvConfig, env_config
from zoo.errors import ZooError
from zoo.training.checkpoint import CheckpointCallback
from zoo.training.eval_callback import EvalCallback
from zoo.training.evaluation import Env
from zoo.training.histogram_callback import HistogramCallback
from zoo.training.kept_agents import KeepAgentsCallback
from zoo.training.loggers import ConsoleLogger, CsvLogger, Logger
from zoo.training.logging_callback import LoggingCallback
from zoo.training.problems import tell
from zoo.training.progress import ProgressBarCallback
from zoo.training.run_folder import RunFolder
from zoo.training.stopping import (
    StopTrainingOnMaxEpisodes,
    StopTrainingOnNoModelImprovement,
    StopTrainingOnRewardThreshold,
)
from zoo.training.tensorboard_logger import TensorBoardLogger
from zoo.training.trackers import Trackers
from zoo.training.wandb_logger import WandbLogger

TIMES_IN_A_RUN = {"eval": 20, "checkpoint": 10, "agents": 10, "video": 10}
"""How often each callback is called where no interval is set."""

REPORTS_IN_A_RUN = 100
HISTOGRAMS_IN_A_RUN = 20


def make_callbacks(config: Mapping[str, Any], run: RunFolder, eval_env: Env) -> list[Callback]:
    """Return the callbacks of a run, in the order in which they are called.

    ``config`` is the checked config of ``zoo train``; ``eval_env`` an id, a config or environments to
    evaluate in, others than those of the training. Raises `ZooError` for settings that don't go together.
    """
    trackers = Trackers(_outputs(config, run), run.path, as_written(config))
    config = with_intervals(config)
    settings = config["callbacks"]
    evaluating = _evaluation(settings, run, eval_env)
    callbacks: list[Callback] = [
        *evaluating,
        *_kept(settings, run, evaluating),
        *_own(settings),
        *_videos(config, run, eval_env, trackers),
        *_logging(config, trackers),
    ]
    checkpoint = settings.get("checkpoint")
    if _is_ours(checkpoint):
        minutes = minutes_of(checkpoint["every"])
        every = 0 if minutes else checkpoint["every"]
        callbacks.append(CheckpointCallback(run.checkpoint, every, tuple(callbacks), minutes=minutes))
    return callbacks


def with_intervals(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config with each interval that is a share of the run as the number of steps that this is."""
    n_timesteps, logger = config["n_timesteps"], dict(config["logger"])
    callbacks = {
        name: _with(values, "every", n_timesteps, TIMES_IN_A_RUN.get(name))
        for name, values in config["callbacks"].items()
    }
    logger = _with(logger, "every", n_timesteps, REPORTS_IN_A_RUN)
    if isinstance(logger.get("tensorboard"), Mapping):
        tensorboard = _with(logger["tensorboard"], "histograms_every", n_timesteps, HISTOGRAMS_IN_A_RUN)
        logger["tensorboard"] = tensorboard
    return {**config, "callbacks": callbacks, "logger": logger}


def _with(values: Any, interval: str, n_timesteps: int, times: int | None) -> Any:
    """Return settings of ours with the interval that divides the run into ``times``, unless they have one."""
    if times is None or not _is_ours(values) or values.get(interval) is not None:
        return values
    return {**values, interval: max(1, n_timesteps // times)}


def _evaluation(settings: Mapping[str, Any], run: RunFolder, eval_env: Env) -> list[Callback]:
    """Return the evaluation and what ends a run by it, or by the number of episodes."""
    callbacks: list[Callback] = []
    chosen = {name: values for name, values in settings.items() if _is_ours(values)}
    if "eval" in chosen:
        values = chosen["eval"]
        # The environment was checked before the training began.
        env = dataclasses.replace(eval_env, check=False) if isinstance(eval_env, EnvConfig) else eval_env
        evaluation = EvalCallback(
            env,
            every=values["every"],
            n_eval_episodes=values["n_episodes"],
            deterministic=values["deterministic"],
            n_envs=values["n_envs"],
            run=run,
        )
        callbacks.append(evaluation)
        if "stop_on_reward" in chosen:
            threshold = chosen["stop_on_reward"]["threshold"]
            callbacks.append(StopTrainingOnRewardThreshold(evaluation, threshold))
        if "stop_on_no_improvement" in chosen:
            values = chosen["stop_on_no_improvement"]
            callbacks.append(
                StopTrainingOnNoModelImprovement(
                    evaluation, values["max_evaluations"], values["min_evaluations"]
                )
            )
    else:
        for name in ("stop_on_reward", "stop_on_no_improvement"):
            if name in chosen:
                raise ZooError(f"`callbacks.{name}` needs `callbacks.eval`, which is switched off")
    if "stop_on_episodes" in chosen:
        callbacks.append(StopTrainingOnMaxEpisodes(chosen["stop_on_episodes"]["max_episodes"]))
    return callbacks


def _kept(settings: Mapping[str, Any], run: RunFolder, evaluating: list[Callback]) -> list[Callback]:
    """Return what keeps agents, which comes after the evaluation: that scores them."""
    values = settings.get("agents")
    if not _is_ours(values):
        return []
    evaluation = next((each for each in evaluating if isinstance(each, EvalCallback)), None)
    return [KeepAgentsCallback(run, every=values["every"], evaluation=evaluation)]


def _videos(config: Mapping[str, Any], run: RunFolder, env: Env, trackers: Trackers) -> list[Callback]:
    """Return what films, which comes before what logs: a report takes a video along."""
    values = config["callbacks"].get("video")
    if not _is_ours(values):
        return []
    if not isinstance(env, EnvConfig | str):
        raise ZooError("`callbacks.video` needs an environment that it can make itself, by its id or config")
    from zoo.envs.video import parse_size
    from zoo.training.recording import Look
    from zoo.training.video_callback import VideoCallback

    return [
        VideoCallback(
            env_config(env),
            run.videos,
            every=values["every"],
            length=values["length"],
            deterministic=values["deterministic"],
            look=Look(values["overlay"], parse_size(values["size"])),
            trackers=trackers,
        )
    ]


def _logging(config: Mapping[str, Any], trackers: Trackers) -> list[Callback]:
    callbacks: list[Callback] = []
    settings = config["logger"]
    tensorboard = _tensorboard_settings(settings)
    if tensorboard is not None and tensorboard.histograms:
        every = tensorboard.histograms_every or max(1, config["n_timesteps"] // HISTOGRAMS_IN_A_RUN)
        callbacks.append(HistogramCallback(every, trackers))
    if trackers.outputs:
        callbacks.append(LoggingCallback(settings["every"], trackers, stays_open=True))
    if config.get("progress_bar"):
        callbacks.append(ProgressBarCallback())
    return callbacks


def _outputs(config: Mapping[str, Any], run: RunFolder) -> list[Logger]:
    settings = config["logger"]
    outputs: list[Logger] = []
    if settings["console"] and config.get("verbose", 1):
        outputs.append(ConsoleLogger())
    if settings["csv"]:
        outputs.append(CsvLogger(run.progress))
    if _tensorboard_settings(settings) is not None:
        outputs.append(TensorBoardLogger(run.tensorboard, as_written(config)))
    if settings["wandb"] is not None:
        options = {key: value for key, value in settings["wandb"].items() if value is not None}
        outputs.append(WandbLogger(run.path, as_written(config), **{"name": run.path.name, **options}))
    return outputs + [
        _own_tracker(f"logger.{name}", values)
        for name, values in settings.items()
        if isinstance(values, Mapping) and not _is_ours(values)
    ]


def _tensorboard_settings(settings: Mapping[str, Any]) -> TensorBoardSettings | None:
    values = settings["tensorboard"]
    if isinstance(values, Mapping):
        return TensorBoardSettings(**values)
    return TensorBoardSettings() if values else None


def _own_tracker(where: str, values: Mapping[str, Any]) -> Logger:
    """Make a tracker of the user's own, named by its class in ``_target_``."""
    arguments = dict(values)
    found = own_class(where, str(arguments.pop("_target_")), Logger)
    try:
        return found(**arguments)
    except TypeError as error:
        raise ZooError(f"`{where}`: {error}") from error


def _own(settings: Mapping[str, Any]) -> list[Callback]:
    """Make the user's own callbacks, each named by its class in ``_target_``."""
    return [
        _make_own(f"callbacks.{name}", values)
        for name, values in settings.items()
        if values is not None and not _is_ours(values)
    ]


def _make_own(where: str, values: Mapping[str, Any]) -> Callback:
    arguments = dict(values)
    target = str(arguments.pop("_target_"))
    found = own_class(where, target, Callback)
    every = None
    if "every" in arguments and not _takes_every(found):
        every = build(OwnCallbackSettings, {"every": arguments.pop("every")}, where).every
    try:
        callback = found(**arguments)
    except (TypeError, ZooError) as error:
        raise ZooError(f"`{where}`: {error}") from error
    if every is not None:
        callback.every = every
    if not callback.every and found.on_steps is not Callback.on_steps:
        tell(
            f"{where}: on_steps of {target} is never called, for want of an interval;"
            f" give it one in environment steps: {where}.every=1000"
        )
    return callback


def _takes_every(callback_class: type[Callback]) -> bool:
    parameters = inspect.signature(callback_class.__init__).parameters.values()
    return any(each.name == "every" or each.kind is each.VAR_KEYWORD for each in parameters)


def _is_ours(values: Mapping[str, Any] | None) -> TypeGuard[Mapping[str, Any]]:
    return values is not None and "_target_" not in values
