"""Starting points of a run: an agent, another run's end, or behaviour cloning by ``pretrain``."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.agents.agent_folder import AgentFiles, read_as_data, read_card
from zoo.agents.card import steps
from zoo.agents.find import resolve_agent, run_of
from zoo.algorithms.callback import PREEMPTED
from zoo.algorithms.saving import Tensors, check_tensors, run_tensors
from zoo.config.environment_values import as_written
from zoo.config.fields import build
from zoo.config.overrides import as_hydra_reads
from zoo.config.schema import preset_or_name
from zoo.config.user_files import shown
from zoo.core.atomic import write_text
from zoo.core.plain_data import value_at
from zoo.core.printing import csv_lines, one_line
from zoo.envs.spaces import interfaces_differ, space_from_dict
from zoo.errors import ZooError
from zoo.experiment.checkpoint import Checkpoint, checkpoint_step, read_checkpoint
from zoo.experiment.run_folder import RunFolder
from zoo.experiment.signals import stop_on_signals
from zoo.imitation.bc import Epoch, PretrainConfig, clone_expert

if TYPE_CHECKING:
    from zoo.algorithms.algorithm import Algorithm
    from zoo.algorithms.off_policy import OffPolicyAlgorithm

logger = logging.getLogger(__name__)

Config = Mapping[str, Any]

SECTIONS = ("algo", "policy", "replay", "env")

WEIGHTS, ALL = "weights", "all"  # values of ``init_with``, beside "optimizer"

OF_NETWORKS = ("n_critics", "n_quantiles", "dueling")  # hyperparameters that shapes of networks depend on

BUFFER_SETTINGS = ("algo.buffer_size", "algo.optimize_memory_usage", "n_envs", "replay.prioritized")
"""Settings that two runs have in common which hand on a replay buffer."""


def init_algorithm(algorithm: Algorithm, source: str, config: Config) -> tuple[str, list[str]]:
    """Load the parts of an agent or run that ``init_with`` names; say which, and what settings differ today.

    Weights come with the running statistics; with the optimizer they are those of the run's last checkpoint.
    Nothing of the agent is run. Raises `ZooError` if there is none, or it does not fit.
    """
    files = read_as_data(source)
    kinds = ("observation_space", "action_space")
    observations, actions = (space_from_dict(files.config[kind]) for kind in kinds)
    if difference := interfaces_differ((observations, actions), algorithm.spaces):
        name, how = difference
        raise ZooError(f"can't start from {source}: its {name} and the environment's differ: {how}")
    for name, array in files.tensors.items():  # from a NaN nothing is learned
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ZooError(f"can't start from {one_line(source)}: {one_line(name)} is not finite")
    mode = config.get("init_with", WEIGHTS)
    if mode == WEIGHTS:
        _take_weights(algorithm, files, source, config)
        taken = f"the weights of {shown(source)} (step {steps(files.card)})"
    else:
        where = f"can't take {'all' if mode == ALL else 'the optimizer'} from {one_line(source)}"
        checkpoint = _checkpoint_of(algorithm, files, source, mode, where)
        _take_tensors(algorithm, checkpoint, where)
        taken = "weights and optimizer"
        if mode == ALL and algorithm.has_replay:
            _take_buffer(algorithm, checkpoint, files.config, config, where)  # type: ignore[arg-type]
            taken = "weights, optimizer and replay buffer"
        taken += f" of the last checkpoint of {shown(source)} (step {checkpoint.timesteps:,})"
    return taken, list(differences(files.config, algorithm, config))


def _take_weights(algorithm: Algorithm, files: AgentFiles, agent: str, config: Config) -> None:
    try:
        algorithm.set_parameters(files.tensors)
    except ZooError as error:
        saved_policy, policy_config = (files.config.get("policy") or {}), algorithm.policy_config
        if saved_policy.get("recurrent") and policy_config.recurrent is None:
            same = f"policy={one_line(saved_policy.get('name'))} is"
            raise ZooError(f"{agent} is recurrent, {policy_config.name} is not; {same}") from error
        trained, today = files.config["algo"], config["algo"]
        policy = {
            key: value for key, value in saved_policy.items() if value != getattr(policy_config, key, value)
        }
        settings = {f"policy.{key}": value for key, value in policy.items() if key != "name"}
        settings |= {f"algo.{key}": trained[key] for key in OF_NETWORKS if trained.get(key) != today.get(key)}
        typed = " ".join(f"{key}={as_hydra_reads(value)}" for key, value in settings.items())
        mend = f"; the same networks: {typed}" if settings and trained["name"] == today["name"] else ""
        raise ZooError(f"the weights of {agent} don't fit {preset_or_name(today)}: {error}{mend}") from error
    if algorithm.normalizer is not None and files.normalization is not None:
        arrays, values = files.normalization
        algorithm.normalizer.load_state({"arrays": arrays, "values": values})


def _checkpoint_of(algorithm: Algorithm, files: AgentFiles, source: str, mode: str, where: str) -> Checkpoint:
    """Return the checkpoint of the run at ``source``, or of the agent's run. Raises `ZooError`."""
    trained = files.config["algo"]["name"]
    if trained != algorithm.name:
        raise ZooError(f"{where}: it is of {one_line(trained)}, not of {algorithm.name}; init_with=weights")
    path = run_of(resolve_agent(source))
    if path is None:
        raise ZooError(f"{where}: it is an agent alone, only a run has more than weights; init_with=weights")
    run = RunFolder(path)
    if not run.has_checkpoint:
        none = "the run has kept no checkpoint (callbacks.checkpoint.keep=true keeps it)"
        raise ZooError(f"{where}: {none}; init_with=weights")
    agent = run.agent if (Path(source).expanduser() / run.record.name).is_file() else resolve_agent(source)
    step, of_agent = f"{checkpoint_step(run.checkpoint):,}", steps(read_card(agent) if agent.exists() else {})
    if of_agent not in ("?", step):
        steps_differ = f"the last checkpoint is of step {step}, {one_line(shown(agent))} of step {of_agent}"
        raise ZooError(f"{where}: {steps_differ}; init_with=weights")
    return read_checkpoint(run.checkpoint, 1 if mode == ALL and algorithm.has_replay else None)


def _take_tensors(algorithm: Algorithm, checkpoint: Checkpoint, where: str) -> None:
    saved, state = checkpoint.algorithm["tensors"], algorithm.runner.state
    shapes = {name: tuple(tensor.shape) for name, tensor in run_tensors(state, algorithm.policy).items()}
    try:
        check_tensors(shapes, saved)
    except ZooError as error:
        raise ZooError(f"{where}: its networks or its optimizer are others: {error}") from error
    if "learning_rate" in state:  # it adapts from where it starts, which is a setting
        saved = {**saved, "learning_rate": state["learning_rate"].numpy(force=True)}
    Tensors(state, algorithm.policy).load_state(saved)
    if algorithm.normalizer is not None and checkpoint.algorithm["normalizer"]:
        algorithm.normalizer.load_state(checkpoint.algorithm["normalizer"])
    if reward_model := getattr(algorithm, "reward_model", None):  # not its other parts: running episodes
        for name in [name for name, part in reward_model.parts().items() if part is reward_model]:
            reward_model.load_state(checkpoint.algorithm[name])


def _take_buffer(
    algorithm: OffPolicyAlgorithm, checkpoint: Checkpoint, trained: Config, config: Config, where: str
) -> None:
    """Load the replay buffer, with all episodes cut: this run begins others."""
    if config.get("workers", 1) > 1:
        raise ZooError(f"{where}: each of workers={config['workers']} has a buffer; init_with=optimizer")
    for path in BUFFER_SETTINGS:
        before, now = (value_at(values, path) for values in (trained, config))
        if path == "replay.prioritized":
            before, now = (None if value is None else "prioritized" for value in (before, now))
        if before != now:
            raise ZooError(
                f"{where}: its replay buffer is of {path}={before}, not {now}; init_with=optimizer"
            )
    state = checkpoint.algorithm["buffer"]
    chunks = {first: dict(rows) for first, rows in state["chunks"].items()}  # without their names
    algorithm.buffer.load_state({**state, "chunks": chunks})
    algorithm.buffer.cut()


def differences(trained: Config, algorithm: Algorithm, config: Config) -> Iterator[str]:
    """Give ``key: value of the agent → value of today`` for every setting that differs."""
    today = as_written({**config, "policy": dataclasses.asdict(algorithm.policy_config)})
    for section in SECTIONS:
        yield from _differing(trained.get(section) or {}, today.get(section) or {}, section)
    if algorithm.normalizer is not None and not (trained.get("env") or {}).get("normalize"):
        yield "the running statistics of observations and rewards start anew: the agent had none"


def _differing(then: Config, now: Config, path: str) -> Iterator[str]:
    """Yield the differences in keys of both; if only one value is a mapping, it is shown as a whole."""
    for key in [key for key in then if key in now and then[key] != now[key]]:
        if isinstance(then[key], Mapping) and isinstance(now[key], Mapping):
            yield from _differing(then[key], now[key], f"{path}.{key}")
        else:
            yield f"{path}.{key}: {one_line(then[key])} → {one_line(now[key])}"


def pretrain(algorithm: Algorithm, settings: Mapping[str, Any] | None, run: RunFolder) -> None:
    """Clone the expert that the settings name, if any; leave the losses of all epochs in the run.

    After a signal ``algorithm.stop_reason`` is PREEMPTED: a run that goes on begins with its pretraining.
    """
    config = build(PretrainConfig, dict(settings or {}), "pretrain")
    if config.dataset is None:
        return

    def note(epoch: Epoch) -> bool:
        if epoch.number % max(1, config.n_epochs // 10) == 0:
            logger.info("pretraining, %s", _told(epoch))
        return algorithm.stop_reason == PREEMPTED

    with stop_on_signals(algorithm):
        epochs = clone_expert(algorithm, config.dataset, config, note)
    write_text(run.pretraining_curves, csv_lines([["epoch", *Epoch._fields[1:]], *epochs]))
    if algorithm.stop_reason != PREEMPTED:
        logger.info("pretrained from %s: %s", one_line(config.dataset), _told(epochs[-1]))


def _told(epoch: Epoch) -> str:
    validation = "" if math.isnan(epoch.validation_loss) else f", {epoch.validation_loss:.4g} validated"
    return f"epoch {epoch.number}: loss {epoch.loss:.4g}{validation}"
