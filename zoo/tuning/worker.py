"""One worker process of a study: it runs trials, then trains the best ones again."""

from __future__ import annotations

import copy
import json
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import optuna
from optuna.trial import FrozenTrial, Trial, TrialState

from zoo.config.environment_values import keep
from zoo.config.paths import shown
from zoo.core.file_lock import FileLock
from zoo.core.printing import one_line, say, show
from zoo.errors import INTERRUPTED, MISTAKE, ZooError
from zoo.launch.processes import end_with_parent
from zoo.tuning.objective import (
    TOP_RUNS,
    TRIALS,
    InterruptedTrialError,
    TrainingResult,
    smoke_test,
    steps_trained,
    train,
    trial_seeds,
)
from zoo.tuning.plan import Plan
from zoo.tuning.reevaluate import Reevaluation, join_reevaluation
from zoo.tuning.study import (
    DIED,
    REASON,
    TRACEBACK,
    SharedStudy,
    Storage,
    join_study,
    open_storage,
    quiet_optuna,
    reason_of,
    seed_of,
)

RUNS, VALUES, STEPS, SECONDS = "runs", "values", "steps", "seconds"
"""Attributes of a trial."""

POLLING_SECONDS = 1.0
"""Between two checks whether the other processes' trials have ended."""

_INTERRUPTED = threading.Event()
"""Set by a signal: libraries may turn its `KeyboardInterrupt` into another exception."""


def main(job: int, report: int) -> NoReturn:
    """Work by the JSON in the open file ``job``; write status and error into ``report``, and exit."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    end_with_parent()
    with open(job, encoding="utf-8") as given:
        status, message = _work(json.load(given))
    with open(report, "w", encoding="utf-8") as file:
        json.dump([status, message], file)
    sys.exit(status)


def _interrupt(number: int, frame: FrameType | None) -> None:
    _INTERRUPTED.set()
    raise KeyboardInterrupt


def _work(job: Mapping[str, Any]) -> tuple[int, str]:
    """Work to the end of the study; return the exit status and the error for the user."""
    sys.argv = list(job["arguments"])
    keep(job["variables"])
    try:
        plan = Plan(job["config"])
        storage = open_storage(plan.config["storage"], plan.folder, plan.config["heartbeat"])
        with quiet_optuna(), storage.one_line_errors():
            Worker(plan, storage, job["name"], job["started"], job["deadline"]).work()
    except KeyboardInterrupt:
        return INTERRUPTED, ""
    except ZooError as error:
        return MISTAKE, str(error)
    except OSError as error:  # such as a full disk below a journal
        return MISTAKE, f"can't go on: {one_line(error)}"
    return 0, ""


class Worker:
    """Works on a study in this process. After ``deadline``, in seconds since 1970, no trial starts."""

    def __init__(
        self, plan: Plan, storage: Storage, name: str, started: float, deadline: float | None = None
    ) -> None:
        self.plan, self.storage, self.name = plan, storage, name
        self.started, self.deadline = started, deadline
        self.shared = join_study(plan, storage)
        self.shared.worker = name
        self.seed = seed_of(self.shared.study)

    def work(self) -> None:
        """Run trials until the study is over, then reevaluate. Raises `KeyboardInterrupt` and `ZooError`."""
        lock = FileLock(self.storage.worker_lock(self.name))
        with lock:
            try:
                self._search()
                self._reevaluate()
            finally:
                lock.path.unlink(missing_ok=True)

    def _search(self) -> None:
        if not self.shared.is_over():
            self._smoke_test()
        while True:
            is_late = self.deadline is not None and time.time() > self.deadline
            if not is_late and self.shared.run_next(self._run_trial, self._on_trial_end):
                continue
            if self.shared.is_anyone_running():
                time.sleep(POLLING_SECONDS)
            elif is_late or self.shared.is_over():
                return

    def _reevaluate(self) -> None:
        reevaluation = join_reevaluation(self.plan, self.shared) if self.plan.config["top_k"] else None
        if reevaluation is None:
            return
        if reevaluation.n_new:
            trainings = f"{reevaluation.n_new} training{'s' * (reevaluation.n_new > 1)}"
            self._print(f"top   {trainings} of the best on fresh seeds")
        reevaluation.shared.worker = self.name
        while True:
            if self._train_again(reevaluation):
                continue
            if not reevaluation.shared.is_anyone_running():
                return
            time.sleep(POLLING_SECONDS)

    def _smoke_test(self) -> None:
        try:
            smoke_test(self.plan.config_of_trial({}, self.seed, self.plan.folder))
        except ZooError:
            raise
        except Exception as error:
            show(traceback.format_exc(), end="", file=sys.stderr, flush=True)
            raise ZooError(
                f"the study does not start, as a first small training failed: {reason_of(error)}"
            ) from error

    def _run_trial(self, trial: Trial) -> list[float]:
        """Run the trainings of a trial, and return its values."""
        plan = self.plan
        seeds = trial_seeds(self.seed, trial.number, plan.n_seeds)
        trial.study.sampler = plan.sampler(self.seed, seeds[0])
        started = time.monotonic()
        values = plan.space.suggest(trial, plan.base)
        trial.set_user_attr(VALUES, values)
        done: list[TrainingResult] = []
        folders: list[str] = []

        def on_start(run: Path) -> None:
            # At once, as a killed process can't store it any more.
            folders.append(shown(run.absolute()))
            trial.set_user_attr(RUNS, folders)
            if _INTERRUPTED.is_set():  # before the experiment handled signals
                raise InterruptedTrialError

        def on_evaluation(steps: int, training: TrainingResult) -> str | None:
            if _INTERRUPTED.is_set():  # a library swallowed the KeyboardInterrupt
                raise InterruptedTrialError
            value = plan.objective.values([training])[0]
            trial.report(value, steps)
            return _why_pruned(steps, value) if trial.should_prune() else None

        try:
            for index, seed in enumerate(seeds):
                config = plan.config_of_trial(values, seed, plan.folder / TRIALS)
                training, _ = train(
                    config,
                    keep=plan.config["keep"],
                    on_evaluation=on_evaluation if index == 0 and plan.objective.is_single else None,
                    on_start=on_start,
                )
                done.append(training)
                if len(done) < plan.n_seeds and plan.objective.is_single:
                    _prune_between(trial, plan, done)
            return plan.objective.values(done)
        except Exception as error:
            if _INTERRUPTED.is_set():
                raise InterruptedTrialError from error
            raise
        finally:
            trial.set_user_attr(STEPS, steps_trained(folders))
            trial.set_user_attr(SECONDS, round(time.monotonic() - started, 1))

    def _train_again(self, reevaluation: Reevaluation) -> bool:
        """Train one of the best trials again on a fresh seed; return False if none is left."""
        plan = self.plan

        def run(trial: Trial) -> list[float]:
            number, seed = reevaluation.number_and_seed(trial)
            config = plan.config_of_trial(reevaluation.values_of(number), seed, plan.folder / TOP_RUNS)
            try:
                training, folder = train(config, keep=True)
            except Exception as error:
                if _INTERRUPTED.is_set():
                    raise InterruptedTrialError from error
                raise
            reevaluation.record(trial, training, folder, plan.objective)
            return plan.objective.values([training])

        def on_end(trial: FrozenTrial) -> None:
            number, seed = reevaluation.number_and_seed(trial)
            self._print(f"top   trial {number}, seed {seed}  {self._ending(trial, names=False)}")
            self._stop_at_repeated_failure(reevaluation.shared)

        return reevaluation.shared.run_next(run, on_end)

    def _on_trial_end(self, trial: FrozenTrial) -> None:
        seconds = trial.user_attrs.get(SECONDS, 0.0)
        self._print(f"trial {trial.number:>4}  {self._ending(trial, names=True)}  ({seconds:g} s)")
        self._stop_at_repeated_failure(self.shared)

    def _ending(self, trial: FrozenTrial, *, names: bool) -> str:
        """Return the values of a complete trial, or why it ended."""
        if trial.state == TrialState.COMPLETE:
            if not names:
                return f"{trial.values[0]:,.6g}"
            pairs = zip(self.plan.objective.names, trial.values, strict=True)
            return "  ".join(f"{name} {value:,.6g}" for name, value in pairs)
        reason = str(trial.user_attrs.get(REASON, DIED))
        return reason if trial.state == TrialState.PRUNED else f"failed: {reason}"

    def _stop_at_repeated_failure(self, shared: SharedStudy) -> None:
        failed = shared.repeated_failure(self.started)
        if failed is None:
            return
        show(failed.user_attrs.get(TRACEBACK, ""), file=sys.stderr, end="", flush=True)
        raise ZooError(
            "three trials in a row failed alike, so the study has stopped:"
            f" {failed.user_attrs.get(REASON, DIED)}"
        )

    def _print(self, line: str) -> None:
        if self.plan.config["verbose"]:
            say(line)


def _prune_between(trial: Trial, plan: Plan, done: Sequence[TrainingResult]) -> None:
    """Raise `optuna.TrialPruned` if the trainings so far are together too bad.

    Only the first training of a trial is pruned evaluation by evaluation: a later one starts low again, and
    is reported at its end.
    """
    steps, value = len(done) * plan.n_timesteps, plan.objective.values(done)[0]
    trial.report(value, steps)
    # The pruner sees this value alone: some go by the best so far, which a lucky first seed would keep high.
    alone = copy.deepcopy(trial.study.get_trials(deepcopy=False)[trial.number])
    alone.intermediate_values = {steps: value}
    if trial.study.pruner.prune(trial.study, alone):
        raise optuna.TrialPruned(_why_pruned(steps, value))


def _why_pruned(steps: int, value: float) -> str:
    return f"pruned after {steps:,} steps: {value:,.6g}"
