"""One worker process of a study: it runs trials, then trains the best ones again."""

from __future__ import annotations

import json
import platform
import re
import secrets
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from optuna.trial import FrozenTrial, Trial, TrialState

from zoo.config.environment_values import resolved
from zoo.config.user_files import shown
from zoo.core.file_lock import FileLock
from zoo.core.printing import one_line, say, show
from zoo.errors import INTERRUPTED, MISTAKE, ZooError
from zoo.experiment.evaluation import Evaluation
from zoo.launch.processes import end_with_parent
from zoo.tuning.objective import (
    TOP_RUNS,
    TRIALS,
    InterruptedTrialError,
    samples_of,
    smoke_test,
    train,
    trial_seeds,
    value_of,
)
from zoo.tuning.plan import Plan
from zoo.tuning.reevaluate import RUN, SAMPLES, join_reevaluation, number_and_seed, values_of
from zoo.tuning.study import (
    DIED,
    REASON,
    TRACEBACK,
    Storage,
    join_study,
    open_storage,
    quiet_optuna,
    reason_of,
    seed_of,
)

RUNS, VALUES = "runs", "values"
"""Attributes of a trial."""

MOST_EQUAL_FAILURES = 3
"""Trials of a process that fail in a row for one reason before the study ends."""

POLLING_SECONDS = 1.0
"""Between two checks whether the other processes' trials have ended."""

_INTERRUPTED = threading.Event()
"""Set by a signal: libraries may turn its `KeyboardInterrupt` into another exception."""


def main(job: int) -> NoReturn:
    """Work by the JSON in the open file ``job``; write status and error in its place, and exit."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    end_with_parent()
    with open(job, "r+", encoding="utf-8") as file:
        given = json.load(file)
        file.seek(0)
        file.truncate()
        file.flush()
        status, message = _work(given)
        json.dump([status, message], file)
    sys.exit(status)


def _interrupt(number: int, frame: FrameType | None) -> None:
    _INTERRUPTED.set()
    raise KeyboardInterrupt


def _work(job: Mapping[str, Any]) -> tuple[int, str]:
    """Work to the end of the study; return the exit status and the error for the user."""
    sys.argv = list(job["arguments"])
    try:
        plan = Plan(resolved(job["config"]))
        storage = open_storage(plan.config["storage"], plan.folder)
        with quiet_optuna(), storage.one_line_errors():
            Worker(plan, storage, job["deadline"]).work()
    except KeyboardInterrupt:
        return INTERRUPTED, ""
    except ZooError as error:
        return MISTAKE, str(error)
    except OSError as error:  # such as a full disk below a journal
        return MISTAKE, f"can't go on: {one_line(error)}"
    return 0, ""


class Worker:
    """Works on a study in this process. After ``deadline``, in seconds since 1970, no trial starts."""

    def __init__(self, plan: Plan, storage: Storage, deadline: float | None = None) -> None:
        self.plan, self.storage, self.deadline = plan, storage, deadline
        self.name = f"{platform.node()}-{secrets.token_hex(6)}"
        self.last_reason, self.n_equal_failures = "", 0
        self.shared = join_study(plan, storage)
        self.shared.worker = self.name
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
        top = join_reevaluation(self.plan, self.shared)
        while top is not None:
            if top.run_next(self._train_again, self._on_retraining_end):
                continue
            if not top.is_anyone_running():
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

    def _run_trial(self, trial: Trial) -> float:
        """Run the trainings of a trial, and return its value."""
        plan = self.plan
        seeds = trial_seeds(self.seed, trial.number, plan.n_seeds)
        trial.study.sampler = plan.sampler(self.seed, seeds[0])
        values = plan.space.suggest(trial, plan.base)
        trial.set_user_attr(VALUES, values)
        done: list[Evaluation] = []
        folders: list[str] = []

        def on_start(run: Path) -> None:
            # At once, as a killed process can't store it any more.
            folders.append(shown(run.absolute()))
            trial.set_user_attr(RUNS, folders)
            if _INTERRUPTED.is_set():  # before the experiment handled signals
                raise InterruptedTrialError

        def on_evaluation(steps: int, evaluation: Evaluation) -> str | None:
            if _INTERRUPTED.is_set():  # a library swallowed the KeyboardInterrupt
                raise InterruptedTrialError
            value = value_of(plan.objective, [evaluation])
            trial.report(value, steps)
            return f"pruned after {steps:,} steps: {value:,.6g}" if trial.should_prune() else None

        try:
            for seed in seeds:
                config = plan.config_of_trial(values, seed, plan.folder / TRIALS)
                evaluation, _ = train(
                    config,
                    keep=plan.config["keep"],
                    on_evaluation=None if done else on_evaluation,
                    on_start=on_start,
                )
                done.append(evaluation)
            return value_of(plan.objective, done)
        except Exception as error:
            if _INTERRUPTED.is_set():
                raise InterruptedTrialError from error
            raise

    def _train_again(self, trial: Trial) -> float:
        """Train one of the best trials again on a fresh seed, and return its value."""
        plan, (number, seed) = self.plan, number_and_seed(trial)
        values = values_of(self.shared.trials()[number])
        try:
            evaluation, run = train(plan.config_of_trial(values, seed, plan.folder / TOP_RUNS), keep=True)
        except Exception as error:
            if _INTERRUPTED.is_set():
                raise InterruptedTrialError from error
            raise
        trial.set_user_attr(SAMPLES, samples_of(plan.objective, evaluation))
        trial.set_user_attr(RUN, str(run))
        return value_of(plan.objective, [evaluation])

    def _on_trial_end(self, trial: FrozenTrial) -> None:
        seconds = 0.0 if trial.duration is None else trial.duration.total_seconds()
        self._print(f"trial {trial.number:>4}  {self._ending(trial)}  ({seconds:.1f} s)")
        self._stop_at_repeated_failure(trial)

    def _on_retraining_end(self, trial: FrozenTrial) -> None:
        self._print(
            f"top   trial {trial.params['trial']}, seed {trial.params['seed']}  {self._ending(trial)}"
        )
        self._stop_at_repeated_failure(trial)

    def _ending(self, trial: FrozenTrial) -> str:
        """Return the value of a complete trial, or why it ended."""
        if trial.state == TrialState.COMPLETE:
            return f"{self.plan.objective} {trial.values[0]:,.6g}"
        reason = str(trial.user_attrs.get(REASON, DIED))
        return reason if trial.state == TrialState.PRUNED else f"failed: {reason}"

    def _stop_at_repeated_failure(self, trial: FrozenTrial) -> None:
        """Raise `ZooError` after `MOST_EQUAL_FAILURES` in a row for one reason."""
        # Without numbers: an environment's failure names its index and seed, which differ each time.
        reason = re.sub(r"\d+", "", str(trial.user_attrs.get(REASON, DIED)))
        is_failure = trial.state == TrialState.FAIL
        self.n_equal_failures = is_failure * (self.n_equal_failures * (reason == self.last_reason) + 1)
        self.last_reason = reason
        if self.n_equal_failures == MOST_EQUAL_FAILURES:
            show(trial.user_attrs.get(TRACEBACK, ""), file=sys.stderr, end="", flush=True)
            reason = trial.user_attrs.get(REASON, DIED)
            raise ZooError(f"three trials in a row failed alike, so the study has stopped: {reason}")

    def _print(self, line: str) -> None:
        if self.plan.config["verbose"]:
            say(line)
