"""`zoo train`: make the environments and the algorithm, learn, evaluate, and leave a run folder behind."""

from __future__ import annotations

import logging
import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.commands.memory_limit import refuse_too_large_memory
from zoo.commands.starting_weights import take_weights
from zoo.config.fields import build
from zoo.config.paths import shown
from zoo.config.validation import ALGO_LABELS
from zoo.errors import ZooError
from zoo.training.problems import tell
from zoo.training.run_folder import RunFolder
from zoo.training.signals import PREEMPTED, stop_on_signals

if TYPE_CHECKING:
    from zoo.algorithms.base import Algorithm
    from zoo.algorithms.callback import Callback
    from zoo.envs.config import EnvConfig
    from zoo.training.eval_callback import EvalCallback

INTERRUPTED = 130
"""Exit status of a run that a signal ended."""

Config = dict[str, Any]


def run(settings: Mapping[str, Any]) -> int | None:
    """Train as the checked config says. Returns 130 if the user or the cluster ended the run."""
    from zoo.envs.config import EnvConfig
    from zoo.training.making import make_callbacks

    config = _plain(settings)
    _speak_as_wanted(config["verbose"])
    is_resumed = config["resume"] is not None
    run = RunFolder.reopen(config["resume"]) if is_resumed else None
    if config["seed"] is None:
        config["seed"] = int(np.random.SeedSequence().generate_state(1)[0] >> 1)
    env = build(EnvConfig, config["env"], "env")
    algorithm = _algorithm(config, env)
    has_checkpoint = run is not None and run.has_checkpoint
    if config["init_from"] is not None and not has_checkpoint:
        take_weights(algorithm, config["init_from"], config)
    run = run or _new_run(config)
    with _no_folder_after_a_mistake(run, is_new=not is_resumed):
        callbacks = make_callbacks(config, run, env)
    _watch_episodes(algorithm, run, env)
    if has_checkpoint:
        _go_back_to_checkpoint(algorithm, run, callbacks)
    _introduce(config, run, algorithm)
    with run.tracked(algorithm), stop_on_signals(algorithm):
        algorithm.learn(config["n_timesteps"] - algorithm.num_timesteps, callbacks, reset_num_timesteps=False)
        if algorithm.stop_reason != PREEMPTED:
            _evaluate_at_end(algorithm, callbacks)
        algorithm.save(run.agent, card=_score(callbacks, algorithm))
    _conclude(config, run, algorithm, callbacks)
    return INTERRUPTED if algorithm.stop_reason == PREEMPTED else None


def _plain(settings: Mapping[str, Any]) -> Config:
    from omegaconf import OmegaConf

    plain = OmegaConf.to_container(OmegaConf.create(dict(settings)), resolve=True)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def _speak_as_wanted(verbose: int) -> None:
    """Let what the engine has to say, such as why it does not compile, reach the user."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("zoo: %(message)s"))
    logger = logging.getLogger("zoo")
    # Anew in each run: a job of a multirun has a stderr of its own.
    logger.handlers = [handler]
    logger.setLevel([logging.WARNING, logging.INFO, logging.DEBUG][verbose])


def _algorithm(config: Config, env: EnvConfig) -> Algorithm[Any]:
    from zoo.algorithms.registry import algorithm_class
    from zoo.envs.stepper import EnvStepper
    from zoo.envs.vec_env import make_vec_env
    from zoo.policies.config import PolicyConfig

    found = algorithm_class(config["algo"]["name"])
    values = {key: value for key, value in config["algo"].items() if key not in ALGO_LABELS}
    hyperparameters = build(found.config_class, values, "algo")
    gamma = float(getattr(hyperparameters, "gamma", 0.99))
    with warnings.catch_warnings(record=True) as suspicions:
        envs = EnvStepper(make_vec_env(env, config["n_envs"], gamma=gamma))
    for suspicion in suspicions:
        tell(str(suspicion.message))
    refuse_too_large_memory(found, hyperparameters, envs)
    algorithm = found(
        build(PolicyConfig, config["policy"], "policy"),
        envs,
        seed=config["seed"],
        device=config["device"],
        compile=config["compile"],
        threads=config["threads"],
        config=hyperparameters,
    )
    algorithm.env_config = env
    return algorithm


def _new_run(config: Config) -> RunFolder:
    algo = config["algo"].get("preset") or config["algo"]["name"]
    run = RunFolder.create(config["runs_dir"], algo, config["env"]["id"], config["seed"])
    run.write_config(config)
    return run


@contextmanager
def _no_folder_after_a_mistake(run: RunFolder, *, is_new: bool) -> Iterator[None]:
    try:
        yield
    except ZooError:
        if is_new:
            shutil.rmtree(run.path)
        raise


def _watch_episodes(algorithm: Algorithm[Any], run: RunFolder, env: EnvConfig) -> None:
    """Let every finished episode be written to the run's folder."""
    from zoo.envs.monitor import EpisodeMonitor

    envs = algorithm.envs
    assert envs is not None
    envs.monitor = EpisodeMonitor(run.monitor, envs.num_envs, env_id=env.id, info_keywords=env.info_keywords)


def _go_back_to_checkpoint(algorithm: Algorithm[Any], run: RunFolder, callbacks: Sequence[Callback]) -> None:
    from zoo.training.checkpoint import read_checkpoint, restore

    restore(read_checkpoint(run.checkpoint), algorithm, callbacks)


def _introduce(config: Config, run: RunFolder, algorithm: Algorithm[Any]) -> None:
    if not config["verbose"]:
        return
    algo, env = config["algo"].get("preset") or config["algo"]["name"], config["env"]["id"]
    print(f"run     {shown(run.path.absolute())}")
    print(f"tuned   {config['tuned'] or f'no file for {algo} on {env}; defaults of the algorithm'}")
    if algorithm.num_timesteps:
        print(f"resume  from step {algorithm.num_timesteps:,}, its last checkpoint")
    elif config["resume"] is not None:
        print("resume  from the start: the run had no checkpoint yet")


def _evaluation(callbacks: Sequence[Callback]) -> EvalCallback | None:
    from zoo.training.eval_callback import EvalCallback

    return next((each for each in callbacks if isinstance(each, EvalCallback)), None)


def _evaluate_at_end(algorithm: Algorithm[Any], callbacks: Sequence[Callback]) -> None:
    """Evaluate the agent as it is now, unless the last evaluation was of the same one."""
    evaluation = _evaluation(callbacks)
    if evaluation is None or evaluation.evaluated_at == algorithm.num_timesteps:
        return
    evaluation.on_steps(algorithm)
    evaluation.on_training_end(algorithm)


def _score(callbacks: Sequence[Callback], algorithm: Algorithm[Any]) -> dict[str, Any]:
    """Return the score for the card of the agent as it is now, if it was evaluated."""
    from zoo.training.eval_callback import score_for_card

    evaluation = _evaluation(callbacks)
    if evaluation is None or evaluation.last is None or evaluation.evaluated_at != algorithm.num_timesteps:
        return {}
    return score_for_card(evaluation.last)


def _conclude(
    config: Config, run: RunFolder, algorithm: Algorithm[Any], callbacks: Sequence[Callback]
) -> None:
    if not config["verbose"]:
        return
    if algorithm.stop_reason is not None:
        print(f"ended   after {algorithm.num_timesteps:,} steps: {algorithm.stop_reason}")
    evaluation = _evaluation(callbacks)
    if evaluation is not None and evaluation.last is not None:
        last, best = evaluation.last, evaluation.best_mean
        print(f"score   {last.mean:,.2f} ± {last.std:,.2f} over {last.n_episodes} episodes, best {best:,.2f}")
    agent = run.best_agent if run.best_agent.exists() else run.agent
    print(f"agent   {shown(Path(agent).absolute())}")
    is_done = algorithm.stop_reason != PREEMPTED
    next_step = "watch   zoo enjoy agent" if is_done else "resume  zoo train resume"
    print(f"{next_step}={shown(run.path.absolute())}")
