"""A study process: runs trials, then trains the best ones again."""

from __future__ import annotations

import platform
import re
import secrets
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from optuna.exceptions import StorageInternalError
from optuna.trial import FrozenTrial, Trial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from zoo.config.environment_values import resolved
from zoo.config.user_files import shown
from zoo.core.file_lock import FileLock
from zoo.core.printing import one_line, say, show
from zoo.errors import INTERRUPTED, MISTAKE, ZooError
from zoo.experiment.evaluation import Evaluation
from zoo.tuning.objective import (
    TOP_RUNS,
    TRIAL_SEEDS,
    TRIALS,
    samples_of,
    smoke_test,
    spawned_seeds,
    train,
    value_of,
)
from zoo.tuning.reevaluate import RUN, SAMPLES, SEED, TRIAL, join_reevaluation, values_of
from zoo.tuning.samplers import make_pruner, make_sampler
from zoo.tuning.study import (
    DIED,
    DIVERGED,
    REASON,
    TRACEBACK,
    Plan,
    SharedStudy,
    Storage,
    check_settings,
    existing_study,
    open_storage,
    quiet_optuna,
    reason_of,
    seed_of,
)

RUNS, VALUES = "runs", "values"
"""User attributes of a trial: its run folders, its hyperparameters."""

MOST_EQUAL_FAILURES = 3
"""Trials of a process that fail in a row for the same reason before the study stops."""

SLOW_SECONDS = 60
"""Seconds without output after which a trial's next evaluation is printed."""

POLLING_SECONDS = 1.0
"""Seconds between two checks whether other processes' trials have ended."""


def work(config: Mapping[str, Any], deadline: float | None, arguments: list[str]) -> tuple[int, str]:
    """Run a study process to its end; return the exit status and the error message."""
    sys.argv = arguments
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the interrupted trial is queued again
    try:
        plan = Plan(resolved(config))
        with quiet_optuna():
            StudyProcess(plan, open_storage(plan), deadline).work()
    except KeyboardInterrupt:
        return INTERRUPTED, ""
    except ZooError as error:
        return MISTAKE, str(error)
    except (StorageInternalError, SQLAlchemyError) as error:
        return MISTAKE, f"the storage failed: {one_line(error)}"
    return 0, ""


class StudyProcess:
    """Runs trials of a study in this process. No trial starts after ``deadline``, in seconds since 1970."""

    def __init__(self, plan: Plan, storage: Storage, deadline: float | None = None) -> None:
        self.plan, self.storage, self.deadline = plan, storage, deadline
        self.name = f"{platform.node()}-{secrets.token_hex(6)}"
        self.last_reason, self.n_equal_failures = "", 0
        with storage.lock():
            study = existing_study(plan.full_name, storage)
            if study is None:
                raise ZooError(f"the study {plan.full_name} is not in {storage.name} now; zoo tune begins it")
            check_settings(plan, study)  # another command may have restarted it
        study.pruner = make_pruner(plan.config["pruner"], plan.interval, plan.n_timesteps)
        self.shared = SharedStudy(study, storage, plan.config["n_trials"], self.name)
        self.seed = seed_of(study)

    def work(self) -> None:
        """Run trials until the study is over, then reevaluate. Raises `KeyboardInterrupt` and `ZooError`."""
        lock = FileLock(self.storage.process_lock(self.name))
        with lock:
            try:
                if not self.shared.is_over():
                    self._smoke_test()
                self._run_all(self.shared, self._run_trial, self.deadline)
                best = join_reevaluation(self.plan, self.shared)
                if best is not None:
                    self._run_all(best, self._train_again, None)
            finally:
                lock.path.unlink(missing_ok=True)

    def _run_all(
        self, shared: SharedStudy, objective: Callable[[Trial], float], deadline: float | None
    ) -> None:
        """Run trials until none is left, and wait for the other processes' trials."""
        while True:
            is_late = deadline is not None and time.time() > deadline
            if not is_late and shared.run_next(objective, self._on_end):
                continue
            if shared.is_anyone_running():
                time.sleep(POLLING_SECONDS)
            elif is_late or shared.is_over():
                return

    def _smoke_test(self) -> None:
        try:
            smoke_test(self.plan.config_of_trial({}, self.seed, self.plan.folder))
        except ZooError:
            raise
        except Exception as error:
            show(traceback.format_exc(), end="", file=sys.stderr, flush=True)
            reason = reason_of(error)
            raise ZooError(f"the study does not start: a first small training failed: {reason}") from error

    def _run_trial(self, trial: Trial) -> float:
        plan = self.plan
        seeds = spawned_seeds(self.seed, plan.n_seeds, TRIAL_SEEDS, trial.number)
        trial.study.sampler = make_sampler(plan.config["sampler"], self.seed, seeds[0])
        values = plan.space.suggest(trial, plan.base)
        trial.set_user_attr(VALUES, values)
        evaluations: list[Evaluation] = []
        folders: list[str] = []
        reported_at = time.monotonic()

        def on_start(run: Path) -> None:
            # Now, as a process that is killed later can't store it.
            folders.append(shown(run.absolute()))
            trial.set_user_attr(RUNS, folders)

        def on_evaluation(steps: int, evaluation: Evaluation) -> str | None:
            nonlocal reported_at
            value = value_of(plan.objective, [evaluation])
            trial.report(value, steps)
            if plan.config["verbose"] and time.monotonic() - reported_at > SLOW_SECONDS:
                reported_at = time.monotonic()
                say(f"trial {trial.number:>4}  under way: {steps:,} of {plan.n_timesteps:,} steps")
            return f"pruned after {steps:,} steps: {value:,.6g}" if trial.should_prune() else None

        for seed in seeds:
            config, keep = plan.config_of_trial(values, seed, plan.folder / TRIALS), plan.config["keep"]
            report = None if evaluations else on_evaluation  # the first seed's evaluations
            evaluations.append(train(config, keep=keep, on_evaluation=report, on_start=on_start)[0])
        return value_of(plan.objective, evaluations)

    def _train_again(self, trial: Trial) -> float:
        plan = self.plan
        number, seed = (trial.suggest_int(name, 0, 2**31) for name in (TRIAL, SEED))
        values = values_of(self.shared.trials()[number])
        evaluation, run = train(plan.config_of_trial(values, seed, plan.folder / TOP_RUNS), keep=True)
        trial.set_user_attr(SAMPLES, samples_of(plan.objective, evaluation))
        trial.set_user_attr(RUN, str(run))
        return value_of(plan.objective, [evaluation])

    def _on_end(self, trial: FrozenTrial) -> None:
        """Print how a trial ended. Raises `ZooError` after `MOST_EQUAL_FAILURES` equal failures in a row."""
        seconds = 0.0 if trial.duration is None else trial.duration.total_seconds()
        retrained, reason = trial.params.get(TRIAL), str(trial.user_attrs.get(REASON, DIED))
        seed = trial.params.get(SEED)
        name = f"trial {trial.number:>4}" if retrained is None else f"top   trial {retrained}, seed {seed}"
        endings = {TrialState.FAIL: f"failed: {reason}", TrialState.PRUNED: reason}
        ending = endings.get(trial.state) or f"{self.plan.objective} {trial.values[0]:,.6g}"
        if self.plan.config["verbose"]:
            say(f"{name}  {ending}  ({seconds:.1f} s)")
        if trial.state != TrialState.FAIL or trial.user_attrs.get(DIVERGED):  # by the values it had
            self.n_equal_failures = 0
            return
        # Without numbers: an environment's failure names its index and seed, which differ between trials.
        pattern = re.sub(r"\d+", "", reason)
        self.n_equal_failures = self.n_equal_failures + 1 if pattern == self.last_reason else 1
        self.last_reason = pattern
        if self.n_equal_failures == MOST_EQUAL_FAILURES:
            show(trial.user_attrs.get(TRACEBACK, ""), file=sys.stderr, end="", flush=True)
            raise ZooError(f"three trials in a row failed alike, so the study has stopped: {reason}")
