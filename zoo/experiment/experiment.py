"""An experiment: make environments, algorithm and callbacks by a config; train, evaluate and save an agent.

Afterwards torch, signals, files and environments are as they were before.
"""

from __future__ import annotations

import contextlib
import logging
import math
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from zoo.algorithms.callback import PREEMPTED, Callback, InterruptedCallbackError
from zoo.config.compose import compose
from zoo.config.environment_values import resolved
from zoo.config.overrides import as_overrides
from zoo.config.user_files import shown
from zoo.core.printing import print_message, warnings_as_messages
from zoo.envs.registry import with_registered_env
from zoo.errors import ToldInterrupt, ZooError
from zoo.experiment.callbacks import EvalCallback
from zoo.experiment.checkpoint import CheckpointCallback, check_barriers, read_checkpoint, restore
from zoo.experiment.loggers import LoggingCallback, RunSummary
from zoo.experiment.run_folder import FINISHED, RunFolder, begin_run, reopen_run
from zoo.experiment.signals import slurm_job, stop_on_signals
from zoo.experiment.workers import LEARN, rank_config, rank_launcher

if TYPE_CHECKING:
    from typing_extensions import Self

    from zoo.algorithms.algorithm import Algorithm
    from zoo.experiment.evaluation import Evaluation

logger = logging.getLogger(__name__)

Found = TypeVar("Found", bound=Callback)


def train(config: Mapping[str, Any] | str | None = None, *overrides: str, **settings: Any) -> Result:
    """Train as ``zoo train`` does with these overrides, tuned values included, and leave a run's folder.

    ``zoo.train("algo=ppo2", "env=CartPole-v1", n_timesteps=20_000, algo={"gamma": 0.98})``: ``settings`` are
    overrides with values of Python's. Or by a whole config, which `zoo.compose("train", …)` returned.

    A config that names an interrupted run in ``resume``, or its ``job``, goes on with it. SIGINT and SIGTERM
    end the training after the update under way; when all is saved, `TrainingInterrupted` is raised. With
    ``workers`` this process is rank 0; the other tasks of a Slurm job exit in here as the run ends. Raises
    `ZooError` for what does not go together.
    """
    if isinstance(config, Mapping):
        if overrides or settings:
            raise ZooError("a whole config takes no overrides: give them to zoo.compose")
    else:
        configs = [] if config is None else [config]
        config = compose("train", [*configs, *overrides, *as_overrides(with_registered_env(settings))])
    with Experiment(config) as experiment:
        result = experiment.run_through()
    if result.algorithm.stop_reason == PREEMPTED and not result.is_complete:
        raise TrainingInterrupted(result)
    return result


class TrainingInterrupted(ToldInterrupt):
    """A signal ended a training, which is saved as far as it came, in ``result``."""

    def __init__(self, result: Result) -> None:
        self.result = result
        run, steps = shown(Path(result.run.path).absolute()), result.algorithm.num_timesteps
        goes_on = result.run.has_checkpoint or steps == 0
        how = f"zoo.train(resume={run!r}) goes on" if goes_on else f"{run} has no checkpoint to go on from"
        super().__init__(f"training ended by a signal after {steps:,} steps; {how}")


@dataclass(frozen=True, repr=False)
class Result:
    """The run, the trained algorithm and its scores."""

    run: RunFolder
    algorithm: Algorithm
    """The agent as it is now; it acts, and can be given an environment again with `set_env`."""
    evaluation: Evaluation | None
    """The last one, if there were any; of the agent as it is now, unless the run was interrupted."""
    best_mean: float | None  # return of the best agent

    def __fspath__(self) -> str:
        """Return the run's folder: `zoo.train(resume=result)`."""
        return str(self.run.path)

    @property
    def agent(self) -> Path:
        """The folder of the best agent, or of the last one where none was evaluated."""
        return self.run.best_agent if self.run.best_agent.exists() else self.run.agent

    @property
    def is_complete(self) -> bool:
        """Whether the run ended by itself; one that a signal ended can be resumed."""
        return self.run.status == FINISHED

    def __repr__(self) -> str:
        how = "complete" if self.is_complete else "not complete"
        best = "" if self.best_mean is None else f", best mean return {self.best_mean:.6g}"
        return f"<Result: {how} after {self.algorithm.num_timesteps:,} steps{best}, in {self.run.path}>"


class Experiment:
    """One run of a config, made where a ``with`` block begins and closed where it ends.

    Within the block there are ``run`` (its folder), ``algorithm``, ``callbacks`` and the ``config`` with the
    seed in it; `learn`, `evaluate` and `save` can be called alone, `run_through` does all of them.
    """

    run: RunFolder
    algorithm: Algorithm
    callbacks: list[Callback]

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = resolved(config)
        self.is_resumed = False  # whether an earlier run goes on
        self.init = ""  # which part of which agent ``init_from`` took, and of which step
        self.changed_settings: list[str] = []  # how the agent that ``init_from`` names was trained otherwise
        self._closing = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as closing:
            self._make(closing)
            self._closing = closing.pop_all()
        return self

    def __exit__(self, *raised: object) -> None:
        with self._closing:
            for callback in self._callbacks_of(CheckpointCallback) if self.is_finished else []:
                callback.drop()  # also where a signal came before

    def _make(self, closing: contextlib.ExitStack) -> None:
        """Make, or reopen, the run's folder; make algorithm, callbacks, ranks; restore the checkpoint."""
        from zoo.envs.replay import random_seed
        from zoo.experiment.factories import make_algorithm, make_callbacks, monitor_episodes
        from zoo.experiment.init_from import init_algorithm, pretrain

        closing.enter_context(warnings_as_messages())
        self._launcher = rank_launcher(self.config.get("workers", 1))
        closing.callback(self._launcher.close)
        given_config, checkpoint = self.config, None
        run, self.config = reopen_run(given_config)
        self.is_resumed = run is not None
        if run is not None:
            closing.callback(run.close)
            if run.has_checkpoint:
                checkpoint = read_checkpoint(run.checkpoint, self._launcher.size)
        elif self.config["seed"] is None:
            self.config = {**self.config, "seed": random_seed()}
        self.algorithm = make_algorithm(rank_config(self.config, self._launcher.task), closing)
        if self.config["init_from"] is not None and checkpoint is None:
            source = self.config["init_from"]
            self.init, self.changed_settings = init_algorithm(self.algorithm, source, self.config)
        check_barriers(self.algorithm, self.config, None if run is None else run.read_config())
        if run is None:
            run = begin_run(self.config, given_config)
            closing.callback(run.close)
        self.run = run
        try:
            self.callbacks = make_callbacks(self.config, self.run, closing)
            monitor_episodes(self.algorithm, self.run, closing, n_workers=self._launcher.size)
            if checkpoint is None:
                pretrain(self.algorithm, self.config.get("pretrain"), self.run)
            if self._launcher.size > 1 and self.algorithm.stop_reason != PREEMPTED:
                on_gpus = self.algorithm.device.type == "cuda"
                folder = None if checkpoint is None else self.run.checkpoint
                self.algorithm.join(self._launcher.join(self.config, folder, on_gpus=on_gpus))
                closing.callback(self.algorithm.join, None)
                closing.callback(self._launcher.close)
        except ZooError:
            if not self.is_resumed:
                shutil.rmtree(self.run.path)  # no folder is left after a mistake
            raise
        if checkpoint is not None:
            with self._launcher.explain_errors():
                restore(checkpoint, self.algorithm, self.callbacks)

    def run_through(self) -> Result:
        """Learn, evaluate and save; record the outcome in the run's folder and in the loggers."""
        algorithm, job = self.algorithm, self.config["job"] or slurm_job()
        signals = stop_on_signals(algorithm, forward=self._launcher.forward)
        try:
            with self.run.tracked(algorithm, job=job), signals:
                try:
                    with self._launcher.explain_errors():
                        self._learn_evaluate_save()
                except ZooError as error:
                    if algorithm.stop_reason != PREEMPTED:
                        raise
                    # A signal to the whole group may have ended what an environment needs.
                    print_message(f"after the signal: {error}; the run can be resumed from its checkpoint")
        finally:
            self._log_summary()
        return self.result()

    def _learn_evaluate_save(self) -> None:
        if self.algorithm.stop_reason == PREEMPTED:  # by a signal since the run was made or read
            return
        self.learn()
        if self.algorithm.stop_reason != PREEMPTED:
            self.evaluate()
        for callback in self._callbacks_of(CheckpointCallback):
            callback.write_last(self.algorithm)
        stop_reason = self.algorithm.stop_reason
        self.save()
        self.algorithm.stop_reason = stop_reason  # a signal during the last lines changes nothing

    def learn(self) -> None:
        """Train for the steps of the config that are left: none, if the last update went beyond them."""
        steps = max(0, self.config["n_timesteps"] - self.algorithm.num_timesteps)
        self._tell_whole_rollouts(steps)
        if self.algorithm.distributed.workers is not None:
            self.algorithm.distributed.workers.order(LEARN, total_timesteps=steps)
        self.algorithm.learn(steps, self.callbacks, reset_num_timesteps=False, progress_bar=False)
        self.algorithm.total_timesteps = self.config["n_timesteps"]

    def _tell_whole_rollouts(self, steps: int) -> None:
        """Log if whole rollouts mean more steps than ``steps``, or fewer evaluations than planned."""
        buffer: Any = getattr(self.algorithm, "buffer", None)
        rollout = getattr(buffer, "n_steps", 0) * self.algorithm.n_envs * self._launcher.size
        n_rollouts = math.ceil(steps / (rollout or 1))
        every = self._evaluation.every if self._evaluation is not None else steps
        if steps and rollout and (n_rollouts * rollout > 1.01 * steps or n_rollouts < steps // every):
            total = n_rollouts * rollout
            parts = [f"trains {total:,} steps, not {steps:,}"] if total > steps else []
            planned = steps // every
            parts += [f"evaluations: {n_rollouts}, not {planned}"] if n_rollouts < planned else []
            logger.info(f"rollouts of {rollout:,} (n_steps × n_envs) are never split: {'; '.join(parts)}")

    def evaluate(self) -> None:
        """Evaluate the agent as it is now, unless that is switched off or the last evaluation was of it.

        A signal that comes meanwhile leaves a checkpoint from which only the evaluation is done again.
        """
        evaluation = self._evaluation
        if evaluation is None or evaluation.evaluated_at == self.algorithm.num_timesteps:
            return
        with self.algorithm.runtime.in_force(), contextlib.suppress(InterruptedCallbackError):
            evaluation.on_steps(self.algorithm)
        for callback in (evaluation, *self._callbacks_of(LoggingCallback)):
            callback.on_training_end(self.algorithm)

    def save(self) -> None:
        """Write the agent as it is now, with its score if it was evaluated."""
        evaluation = self._evaluation
        card = {} if evaluation is None else evaluation.card_at(self.algorithm.num_timesteps)
        self.algorithm.save(self.run.agent, card=card)

    def result(self) -> Result:
        """Return the run as far as it came."""
        last, best = (getattr(self._evaluation, name, None) for name in ("last", "best_mean"))
        return Result(self.run, self.algorithm, last, best)

    @property
    def is_finished(self) -> bool:
        """Whether the run is recorded as finished."""
        return hasattr(self, "run") and self.run.status == FINISHED

    @property
    def _evaluation(self) -> EvalCallback | None:
        return next(iter(self._callbacks_of(EvalCallback)), None)

    def _callbacks_of(self, kind: type[Found]) -> list[Found]:
        return [callback for callback in self.callbacks if isinstance(callback, kind)]

    def _log_summary(self) -> None:
        """Pass the run's final status, scores and agent to the loggers."""
        with contextlib.suppress(ZooError):  # that a record can't be read has been printed
            record, result = self.run.read_record(), self.result()
            agent, scores = result.agent if result.agent.exists() else None, record.get("evaluation") or {}
            steps, best = self.algorithm.num_timesteps, result.best_mean
            summary = RunSummary(record["status"], steps, scores, best, agent)
            for callback in self._callbacks_of(LoggingCallback):
                callback.loggers.call("conclude", summary)
