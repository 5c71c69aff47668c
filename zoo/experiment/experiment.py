"""An experiment: make environments, algorithm and callbacks by a config; train, evaluate and save an agent.

Afterwards torch, signals, files and environments are as they were before.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.algorithms.callback import PREEMPTED, InterruptedCallbackError
from zoo.config.compose import compose
from zoo.config.environment_values import as_written, plain_config
from zoo.config.overrides import as_overrides
from zoo.config.paths import shown
from zoo.config.schema import preset_or_name
from zoo.errors import ZooError
from zoo.experiment.callbacks import EvalCallback
from zoo.experiment.checkpoint import (
    CheckpointCallback,
    check_barriers,
    drop_checkpoints,
    max_kept_bytes,
    restore_run,
)
from zoo.experiment.loggers import LoggingCallback, RunSummary
from zoo.experiment.messages import print_message, report_write_errors, warnings_as_messages
from zoo.experiment.resume import (
    extended_config,
    length_dependent_settings,
    one_start_per_job,
    reopen_run,
    write_extended_config,
)
from zoo.experiment.run_folder import FINISHED, RunFolder
from zoo.experiment.signals import stop_on_signals
from zoo.experiment.slurm_environment import is_requeued, slurm_job
from zoo.experiment.workers import LEARN, worker_launcher

if TYPE_CHECKING:
    from typing_extensions import Self

    from zoo.algorithms.algorithm import Algorithm
    from zoo.algorithms.callback import Callback
    from zoo.experiment.evaluation import Evaluation

Config = dict[str, Any]


def train(config: Mapping[str, Any] | str | None = None, *overrides: str, **settings: Any) -> Result:
    """Train as ``zoo train`` does with these overrides, tuned values included, and leave a run's folder.

    ``zoo.train("algo=ppo2", "env=CartPole-v1", n_timesteps=20_000, algo={"gamma": 0.98})``: ``settings`` are
    overrides with values of Python's. Or by a whole config, which `zoo.compose("train", …)` returned.

    A config that names an interrupted run in ``resume``, or its ``job``, goes on with it. SIGINT and SIGTERM
    end the training after the update under way; when all is saved, `TrainingInterrupted` is raised. With
    ``workers`` this process is the first of them; in the other tasks of a Slurm job this function does not
    return: they exit as the run ends. Raises `ZooError` for what does not go together.
    """
    if isinstance(config, Mapping):
        if overrides or settings:
            raise ZooError("a whole config takes no overrides: give them to zoo.compose")
    else:
        given = [] if config is None else [config]
        config = compose("train", [*given, *overrides, *as_overrides(settings)])
    with Experiment(config) as experiment:
        result = experiment.run_through()
    if result.algorithm.stop_reason == PREEMPTED and not result.is_complete:
        raise TrainingInterrupted(result)
    return result


class TrainingInterrupted(KeyboardInterrupt):
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
    best_mean: float | None
    """Mean return of the best agent."""

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
        self.config = plain_config(config)
        self.is_resumed = False
        """Whether an earlier run goes on."""
        self.n_timesteps_before: int | None = None
        """Number of steps that the resumed run was begun with; None for a new run."""
        self.changed_settings: list[str] = []
        """How the agent that ``init_from`` names was trained otherwise."""
        self._closing = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as closing:
            self._make(closing)
            self._closing = closing.pop_all()
        return self

    def __exit__(self, *raised: object) -> None:
        try:
            self._drop_checkpoints()  # also where a signal came before
        finally:
            self._closing.close()

    # -- making it ----------------------------------------------------------------------------------------

    def _make(self, closing: contextlib.ExitStack) -> None:
        self._launcher = worker_launcher(self.config.get("workers", 1))
        closing.callback(self._launcher.close)
        run, is_seed_given = self._reopen_run(closing), self.config["seed"] is not None
        self._make_algorithm(run, closing)
        self.run = self._make_run_folder(closing, is_seed_given) if run is None else run
        restores = self.run.has_checkpoint
        if restores and self.is_extended:
            self.config = extended_config(self.algorithm, self.run, self.config, self.n_timesteps_before)
        try:
            self._make_callbacks(closing)
            if not restores:
                self._pretrain()
            self._start_workers(closing)
        except ZooError:
            if not self.is_resumed:
                shutil.rmtree(self.run.path)  # no folder is left after a mistake
            raise
        if restores:
            with self._launcher.explain_worker_errors():
                folder, is_longer = self.run.checkpoint, self.is_extended
                restore_run(self.algorithm, folder, self.callbacks, for_more_steps=is_longer)
        if self.is_extended:
            self.config = write_extended_config(self.run, self.config, self.algorithm)

    def _reopen_run(self, closing: contextlib.ExitStack) -> RunFolder | None:
        """Return the run that ``resume`` names, or that this job has begun, if there is one."""
        job = self.config["job"] or (slurm_job() if is_requeued() else None)
        if self.config["resume"] is None and job is None:
            return None
        run, self.config = reopen_run(self.config, job)
        if run is not None:
            closing.callback(run.close)
            self.is_resumed = True
        return run

    def _make_algorithm(self, run: RunFolder | None, closing: contextlib.ExitStack) -> None:
        """Make the algorithm and its environments; an agent that ``init_from`` names gives its weights."""
        from zoo.envs.replay import random_seed
        from zoo.experiment.factories import make_algorithm
        from zoo.experiment.init_from import init_algorithm

        previous = None if run is None else plain_config(run.read_config())
        if previous is not None:
            self.n_timesteps_before = previous.get("n_timesteps")
        elif self.config["seed"] is None:
            self.config = {**self.config, "seed": random_seed()}
        launcher = self._launcher
        own_config = self.config if launcher.size == 1 else launcher.own_config(self.config)
        self.algorithm = make_algorithm(own_config, closing)
        if self.config["init_from"] is not None and not (run is not None and run.has_checkpoint):
            self.changed_settings = init_algorithm(self.algorithm, self.config["init_from"], self.config)
        check_barriers(self.algorithm, self.config, previous)

    def _make_run_folder(self, closing: contextlib.ExitStack, is_seed_given: bool) -> RunFolder:
        config = self.config
        is_named = config["job"] is not None and is_seed_given
        with one_start_per_job(config) if is_named else contextlib.nullcontext():
            names = preset_or_name(config["algo"]), config["env"]["id"]
            run = RunFolder.create(config["runs_dir"], *names, config["seed"])
            run.write_config(as_written(config))
        closing.callback(run.close)
        return run

    def _make_callbacks(self, closing: contextlib.ExitStack) -> None:
        from zoo.experiment.factories import make_callbacks, monitor_episodes

        self.callbacks = make_callbacks(self.config, self.run, closing)
        monitor_episodes(self.algorithm, self.run, closing, n_workers=self._launcher.size)

    def _pretrain(self) -> None:
        from zoo.experiment.pretraining import pretrain

        pretrain(self.algorithm, self.config.get("pretrain"), self.run)

    def _start_workers(self, closing: contextlib.ExitStack) -> None:
        if self._launcher.size == 1 or self.algorithm.stop_reason == PREEMPTED:
            return
        on_gpus = self.algorithm.device.type == "cuda"
        self.algorithm.join(self._launcher.start(self.config, on_gpus=on_gpus))
        closing.callback(self.algorithm.leave)
        closing.callback(self._launcher.close)

    # -- the run ------------------------------------------------------------------------------------------

    def run_through(self) -> Result:
        """Learn, evaluate, save, and record in the run's folder, and wherever it is tracked, how it went."""
        try:
            with (
                self.run.tracked(self.algorithm, job=self.config["job"] or slurm_job()),
                stop_on_signals(self.algorithm, forward=self._launcher.forward),
            ):
                try:
                    with self._launcher.explain_worker_errors():
                        self._learn_evaluate_save()
                except ZooError as error:
                    if self.algorithm.stop_reason != PREEMPTED:
                        raise
                    # A signal to the whole group may have ended what an environment needs.
                    print_message(
                        f"after the signal: {error}; the run can be resumed from its last checkpoint"
                    )
        finally:
            self._log_summary()
        self._sync_logs()
        self._drop_checkpoints()
        return self.result()

    def _learn_evaluate_save(self) -> None:
        if self.algorithm.stop_reason == PREEMPTED:  # by a signal since the run was made or read
            return
        self.learn()
        is_evaluated = self.algorithm.stop_reason != PREEMPTED and self.evaluate()
        for each in self.callbacks:
            if isinstance(each, CheckpointCallback):
                each.write_last(self.algorithm, self._max_kept_bytes, is_outdated=is_evaluated)
        stop_reason = self.algorithm.stop_reason
        self.save()
        self._sync_logs()
        self.algorithm.stop_reason = stop_reason  # a signal during the last lines changes nothing

    def learn(self) -> None:
        """Train for the steps of the config that are left: none, if the last update went beyond them."""
        steps = max(0, self.config["n_timesteps"] - self.algorithm.num_timesteps)
        with warnings_as_messages():
            if self.algorithm.distributed.workers is not None:
                self.algorithm.distributed.workers.order(LEARN, steps=steps)
            self.algorithm.learn(steps, self.callbacks, reset_num_timesteps=False)
        self.algorithm.total_timesteps = self.config["n_timesteps"]

    def evaluate(self) -> bool:
        """Evaluate the agent as it is now, unless that is switched off or the last evaluation was of it.

        Return whether there was anything to do. A signal that comes meanwhile leaves a checkpoint from which
        only the evaluation is done again.
        """
        evaluation = self._evaluation
        if evaluation is None or evaluation.evaluated_at == self.algorithm.num_timesteps:
            return False
        with self.algorithm.runtime.in_force(), contextlib.suppress(InterruptedCallbackError):
            evaluation.on_steps(self.algorithm)
        for each in (evaluation, *self._logging):
            each.on_training_end(self.algorithm)
        return True

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
    def is_extended(self) -> bool:
        """Whether an earlier run goes on to more steps than it was begun with."""
        return self.n_timesteps_before not in (None, self.config["n_timesteps"])

    @property
    def can_be_extended(self) -> bool:
        """Whether nothing of the run depends on its number of steps, and it did not end by itself before."""
        return self.algorithm.stop_reason is None and not length_dependent_settings(
            self.algorithm, self.config
        )

    @property
    def _evaluation(self) -> EvalCallback | None:
        return next((each for each in self.callbacks if isinstance(each, EvalCallback)), None)

    @property
    def _logging(self) -> list[LoggingCallback]:
        return [each for each in self.callbacks if isinstance(each, LoggingCallback)]

    def _log_summary(self) -> None:
        """Hand the loggers what stands in the run's record, and the agent."""
        with contextlib.suppress(ZooError):  # that a record can't be read has been printed
            record, result = self.run.read_record(), self.result()
            summary = RunSummary(
                status=record["status"],
                timesteps=self.algorithm.num_timesteps,
                evaluation=record.get("evaluation") or {},
                best_mean=result.best_mean,
                agent=result.agent if result.agent.exists() else None,
            )
            for each in self._logging:
                each.loggers.call("conclude", summary)

    def _sync_logs(self) -> None:
        """Force the last rows to the disk before the run is recorded as finished."""
        with report_write_errors("the last rows of the logs may not be on the disk"):
            self.run.sync_logs()

    def _drop_checkpoints(self) -> None:
        """Remove those of a run that is recorded as finished, unless the config keeps them."""
        if self.is_finished:
            drop_checkpoints(self.run.checkpoint, self._max_kept_bytes)

    @property
    def _max_kept_bytes(self) -> float:
        return max_kept_bytes((self.config["callbacks"].get("checkpoint") or {}).get("keep", False))
