"""An experiment: environments and algorithm are made by a config, an agent learns, is evaluated and saved.

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
from zoo.config.environment_values import as_written, resolved
from zoo.config.fields import build
from zoo.config.overrides import as_overrides
from zoo.config.paths import shown
from zoo.config.resume import FREE_OF_CHECKPOINTS, SHOWN_ONLY
from zoo.config.schema import preset_or_name
from zoo.errors import ZooError
from zoo.experiment.callbacks import EvalCallback
from zoo.experiment.checkpoint import CheckpointCallback, drop, go_back, kept_bytes, refuse_unfit_barriers
from zoo.experiment.loggers import Ending, LoggingCallback
from zoo.experiment.problems import tell, told, warnings_in_one_line
from zoo.experiment.resume import (
    begun_once,
    extended,
    unfinished_run,
    what_follows_the_length,
    write_extended,
)
from zoo.experiment.run_folder import FINISHED, RunFolder
from zoo.experiment.signals import stop_on_signals
from zoo.experiment.slurm import is_requeued, slurm_job
from zoo.experiment.workers import LEARN, WorkerLauncher, config_of, worker_launcher

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
    """A signal ended a training, which is saved as far as it came; ``result`` is what came out."""

    def __init__(self, result: Result) -> None:
        self.result = result
        run, steps = shown(Path(result.run.path).absolute()), result.algorithm.num_timesteps
        goes_on = result.run.has_checkpoint or steps == 0
        how = f"zoo.train(resume={run!r}) goes on" if goes_on else f"{run} has no checkpoint to go on from"
        super().__init__(f"training ended by a signal after {steps:,} steps; {how}")


@dataclass(frozen=True, repr=False)
class Result:
    """What came out of an experiment."""

    run: RunFolder
    algorithm: Algorithm[Any]
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
    """One run of a config, made where a block begins and closed where it ends; its parts can be called alone.

    Within the block there are ``run`` (its folder), ``algorithm``, ``callbacks`` and the ``config`` with the
    seed in it. ``is_resumed`` tells whether an earlier run goes on, ``changed_settings`` how the agent that
    ``init_from`` names was trained otherwise.
    """

    run: RunFolder
    algorithm: Algorithm[Any]
    callbacks: list[Callback]

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = _plain(config)
        self.is_resumed = False
        self.resumes_pretraining = False
        """Whether it was still being pretrained."""
        self.n_timesteps_before: int | None = None
        """Those that a run was to have which goes on; None for a new one."""
        self.changed_settings: list[str] = []
        self._closing = contextlib.ExitStack()
        self._launcher: WorkerLauncher | None = None

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

    # -- the run ------------------------------------------------------------------------------------------

    def run_through(self) -> Result:
        """Learn, evaluate, save, and record in the run's folder, and wherever it is tracked, how it went."""
        forward = None if self._launcher is None else self._launcher.forward
        try:
            with (
                self.run.tracked(self.algorithm, job=self.config["job"] or slurm_job()),
                stop_on_signals(self.algorithm, forward=forward),
            ):
                try:
                    with self._causes_told():
                        self._learn_evaluate_save()
                except ZooError as error:
                    if self.algorithm.stop_reason != PREEMPTED:
                        raise
                    # A signal to the whole group may have ended what an environment needs.
                    tell(f"after the signal: {error}; the run can be resumed from its last checkpoint")
        finally:
            self._conclude_logging()
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
                each.leave_last(self.algorithm, self._kept_bytes, is_outdated=is_evaluated)
        stop_reason = self.algorithm.stop_reason
        self.save()
        self._sync_logs()
        self.algorithm.stop_reason = stop_reason  # a signal during the last lines changes nothing

    def learn(self) -> None:
        """Train for the steps of the config that are left: none, if the last update went beyond them."""
        steps = max(0, self.config["n_timesteps"] - self.algorithm.num_timesteps)
        with warnings_in_one_line():
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
        """Return what came out so far."""
        last, best = (getattr(self._evaluation, name, None) for name in ("last", "best_mean"))
        return Result(self.run, self.algorithm, last, best)

    @property
    def is_finished(self) -> bool:
        """Whether the run is recorded as finished; whatever is left to do changes nothing of that."""
        return hasattr(self, "run") and self.run.status == FINISHED

    @property
    def is_extended(self) -> bool:
        """Whether an earlier run goes on to more steps than it was begun with."""
        return self.n_timesteps_before not in (None, self.config["n_timesteps"])

    @property
    def can_be_extended(self) -> bool:
        """Whether nothing of the run depends on its number of steps, and it did not end by itself before."""
        return self.algorithm.stop_reason is None and not what_follows_the_length(self.algorithm, self.config)

    @property
    def _evaluation(self) -> EvalCallback | None:
        return next((each for each in self.callbacks if isinstance(each, EvalCallback)), None)

    @property
    def _logging(self) -> list[LoggingCallback]:
        return [each for each in self.callbacks if isinstance(each, LoggingCallback)]

    def _conclude_logging(self) -> None:
        """Tell the loggers what stands in the run's record and which agent came out."""
        with contextlib.suppress(ZooError):  # a record that can't be read has been told
            record, result = self.run.read_record(), self.result()
            ending = Ending(
                status=record["status"],
                timesteps=self.algorithm.num_timesteps,
                evaluation=record.get("evaluation") or {},
                best_mean=result.best_mean,
                agent=result.agent if result.agent.exists() else None,
            )
            for each in self._logging:
                each.trackers.tell("conclude", ending)

    def _sync_logs(self) -> None:
        """See to it that the last rows are on the disk before the run is recorded as finished."""
        with told("the last rows of the logs may not be on the disk"):
            self.run.sync_logs()

    def _drop_checkpoints(self) -> None:
        """Remove those of a run that is recorded as finished, unless the config keeps them."""
        if self.is_finished:
            drop(self.run.checkpoint, self._kept_bytes)

    @property
    def _kept_bytes(self) -> float:
        """What the checkpoint of a finished run may take."""
        return kept_bytes((self.config["callbacks"].get("checkpoint") or {}).get("keep", False))

    def _causes_told(self) -> contextlib.AbstractContextManager[None]:
        """Within the block, the error of another worker is told in the place of that it is gone."""
        return contextlib.nullcontext() if self._launcher is None else self._launcher.causes_told()

    # -- making it ----------------------------------------------------------------------------------------

    def _make(self, closing: contextlib.ExitStack) -> None:
        from zoo.envs.config import EnvConfig
        from zoo.envs.seeds import random_seed
        from zoo.experiment.factories import make_algorithm, make_callbacks, watch_episodes
        from zoo.experiment.init_from import take_from
        from zoo.experiment.pretraining import pretrain

        n_workers = self.config.get("workers", 1)
        if n_workers > 1:
            self._launcher = worker_launcher(n_workers)
            closing.callback(self._launcher.close)
        run = self._interrupted_run()
        before: Config | None = None
        if run is not None:
            closing.callback(run.close)
            self.is_resumed, before = True, _plain(run.read_config())
            self.n_timesteps_before = before.get("n_timesteps")
        is_seed_given = self.config["seed"] is not None
        if run is None and not is_seed_given:
            self.config["seed"] = random_seed()
        config, launcher = self.config, self._launcher
        env = build(EnvConfig, config["env"], "env")
        own_config = config if launcher is None else config_of(config, launcher.n_here, 0, launcher.task)
        self.algorithm = make_algorithm(own_config, env, closing)
        has_checkpoint = run is not None and run.has_checkpoint
        if config["init_from"] is not None and not has_checkpoint:
            self.changed_settings = take_from(self.algorithm, config["init_from"], config)
        refuse_unfit_barriers(self.algorithm, config, before)
        if run is None:
            with begun_once(config) if is_seed_given else contextlib.nullcontext():
                names = preset_or_name(config["algo"]), config["env"]["id"]
                run = RunFolder.create(config["runs_dir"], *names, config["seed"])
                run.write_config(as_written(config))
            closing.callback(run.close)
        self.run = run
        goes_further = has_checkpoint and self.is_extended
        if goes_further:
            config = self.config = extended(self.algorithm, run, config, self.n_timesteps_before)
        try:
            self.callbacks = make_callbacks(config, run, env)
            closing.callback(_close_all, self.callbacks)
            watch_episodes(self.algorithm, run, env, closing, n_workers=n_workers)
            if not has_checkpoint:
                self.resumes_pretraining = run.has_pretraining
                pretrain(self.algorithm, config.get("pretrain"), run)
            if launcher is not None and self.algorithm.stop_reason != PREEMPTED:
                on_gpus = self.algorithm.device.type == "cuda"
                self.algorithm.join(launcher.start(config, on_gpus=on_gpus))
                closing.callback(self.algorithm.leave)
                closing.callback(launcher.close)
        except ZooError:
            if not self.is_resumed:
                shutil.rmtree(run.path)  # no folder is left after a mistake
            raise
        if has_checkpoint:
            with self._causes_told():
                go_back(self.algorithm, run.checkpoint, self.callbacks, for_more_steps=goes_further)
        if self.is_extended:
            self.config = write_extended(run, self.config, self.algorithm)

    def _interrupted_run(self) -> RunFolder | None:
        """Return the run to go on with, that of ``resume`` or of the job, whose config is then taken."""
        if self.config["resume"] is not None:
            before = RunFolder(self.config["resume"]).read_config().get("n_timesteps")
            is_longer = before not in (None, self.config["n_timesteps"])
            return RunFolder.reopen(self.config["resume"], for_more_steps=is_longer)
        job = self.config["job"] or (slurm_job() if is_requeued() else None)
        found = None if job is None else unfinished_run(self.config, job)
        if found is None:
            return None
        run, config = found
        given, self.config = self.config, _plain(config)
        self.config |= {key: given[key] for key in SHOWN_ONLY if key in given}
        checkpoint = self.config["callbacks"].get("checkpoint")
        if checkpoint is not None:
            checkpoint |= {key: given["callbacks"]["checkpoint"][key] for key in FREE_OF_CHECKPOINTS}
        return run


def _plain(config: Mapping[str, Any]) -> Config:
    from omegaconf import OmegaConf

    return resolved(OmegaConf.create(dict(config)))


def _close_all(callbacks: list[Callback]) -> None:
    """Close what callbacks keep open, which they do themselves only if the training comes to its end."""
    for each in callbacks:
        if (close := getattr(each, "close", None)) is not None:
            close()
