"""What one process does for a study: it claims trials and runs them, then trains the best ones again."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import optuna
from optuna.trial import Trial

from zoo.config.environment_values import keep
from zoo.config.paths import shown
from zoo.errors import INTERRUPTED, MISTAKE, ZooError
from zoo.files.printing import say, show
from zoo.tuning.finals import Finals, join_finals
from zoo.tuning.objective import NoSuccessError, Training
from zoo.tuning.plan import Plan
from zoo.tuning.shared_study import SharedStudy, reason_of
from zoo.tuning.storages import Storage, open_storage
from zoo.tuning.study import join_study, quiet_optuna, seed_of
from zoo.tuning.trials import (
    TOP_RUNS,
    TRIALS,
    InterruptedTrialError,
    PrunedTrialError,
    seeds,
    steps_trained,
    train,
    try_small,
)
from zoo.tuning.try_folders import remove_left_tries, try_folder

RUNS, VALUES, STEPS, SECONDS = "runs", "values", "steps", "seconds"

SECONDS_BETWEEN_LOOKS = 1.0
"""Between two looks whether the others' trials have ended."""

FAILURE = 1


_INTERRUPTED = threading.Event()
"""Whether a signal has ended what this process does, whatever its `KeyboardInterrupt` became on its way."""


class SameFailureError(Exception):
    """The last few trials failed alike: the study does not go on."""


def main(job: int, report: int) -> NoReturn:
    """Work as the JSON in the open file ``job`` says; write into ``report`` what went wrong, and exit."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    threading.Thread(target=_end_with_the_supervisor, daemon=True).start()
    status, message = _outcome(json.loads(_read(job)))
    with open(report, "w", encoding="utf-8") as file:
        json.dump([status, message], file)
    sys.exit(status)


def _interrupt(number: int, frame: FrameType | None) -> None:
    _INTERRUPTED.set()
    raise KeyboardInterrupt


def _outcome(job: Mapping[str, Any]) -> tuple[int, str]:
    """Work, and return the exit status and what to tell the user."""
    sys.argv = list(job["shown"])
    keep(job["variables"])
    try:
        plan = Plan(job["config"])
        storage = open_storage(plan.config["storage"], plan.folder, plan.config["heartbeat"])
        with quiet_optuna(), storage.mistakes_told():
            Worker(plan, storage, job["name"], job["started"], job["deadline"]).work()
    except (KeyboardInterrupt, InterruptedTrialError):
        return INTERRUPTED, ""
    except (ZooError, SameFailureError) as error:
        return MISTAKE, str(error)
    return 0, ""


class Worker:
    """One process of a study. After ``deadline``, in seconds since 1970, no trial starts."""

    def __init__(
        self, plan: Plan, storage: Storage, name: str, started: float, deadline: float | None
    ) -> None:
        self.plan, self.storage, self.name = plan, storage, name
        self.started, self.deadline = started, deadline
        self.shared = join_study(plan, storage)
        self.seed = seed_of(self.shared.study)

    def work(self) -> None:
        """Do what is left of the study. Raises `SameFailureError`, `InterruptedTrialError`, `ZooError`."""
        with self.shared.joined(self.name):
            if not self.shared.is_over():
                self._try_small()
            self._search()
        if not self.plan.config["top_k"]:
            return
        finals = join_finals(self.plan, self.shared)
        if finals is not None:
            if finals.n_new:
                self._say(f"top   {finals.about_how_long(self.plan)}")
            with finals.shared.joined(self.name):
                self._train_best_again(finals)

    def _try_small(self) -> None:
        remove_left_tries(self.plan.folder, self.storage.workers)
        try:
            try_small(self.plan, self.seed, try_folder(self.plan.folder, self.name))
        except ZooError:
            raise
        except Exception as error:
            import traceback

            show(traceback.format_exc(), end="", file=sys.stderr, flush=True)
            raise ZooError(
                f"the study does not start, as a first small training failed: {reason_of(error)}"
            ) from error

    # -- searching --------------------------------------------------------------------------------------

    def _search(self) -> None:
        while True:
            trial = None if self._is_late() else self.shared.claim()
            if trial is not None:
                self._run(trial)
            elif self.shared.is_anyone_running():
                time.sleep(SECONDS_BETWEEN_LOOKS)
            elif self._is_late() or self.shared.is_over():
                return

    def _is_late(self) -> bool:
        return self.deadline is not None and time.time() > self.deadline

    def _run(self, trial: Trial) -> None:
        """Run a trial, unless another process takes it over because no heartbeat of ours came through."""
        try:
            self._run_to_its_end(trial)
        except optuna.exceptions.UpdateFinishedTrialError:
            self.shared.forget()
            self._tell(trial, "another process took it over")

    def _run_to_its_end(self, trial: Trial) -> None:
        """Run a trial and record how it ended; what a signal interrupts goes back into the queue."""
        try:
            values = self._values(trial)
        except PrunedTrialError as error:
            self.shared.prune(trial, str(error))
            self._tell(trial, str(error))
        except (InterruptedTrialError, KeyboardInterrupt):
            self.shared.give_back(trial, "interrupted")
            raise
        except (NoSuccessError, optuna.exceptions.StorageInternalError) as error:
            self.shared.fail(trial, error)
            raise
        except optuna.exceptions.UpdateFinishedTrialError:
            raise
        except Exception as error:
            if _INTERRUPTED.is_set():
                self.shared.give_back(trial, "interrupted")
                raise InterruptedTrialError from error
            self.shared.fail(trial, error)
            self._tell(trial, f"failed: {reason_of(error)}")
            self._stop_if_all_fail_alike(self.shared)
        else:
            self.shared.finish(trial, values)
            names = self.plan.objective.names
            self._tell(
                trial, "  ".join(f"{name} {each:,.6g}" for name, each in zip(names, values, strict=True))
            )

    def _values(self, trial: Trial) -> list[float]:
        plan = self.plan
        trial_seeds = seeds(self.seed, trial.number, plan.n_seeds)
        trial.study.sampler = plan.sampler.make(self.seed, trial_seeds[0])
        started = time.monotonic()
        values = plan.space.suggest(trial, plan.base)
        trial.set_user_attr(VALUES, values)  # for those who look into the study; it is read nowhere
        done: list[Training] = []
        folders: list[str] = []
        reports = _Reports(trial, plan)

        def has_begun(run: Path) -> None:
            # At once: a process that is killed can't tell it any more.
            folders.append(shown(run.absolute()))
            trial.set_user_attr(RUNS, folders)
            if _INTERRUPTED.is_set():  # and nobody heard of it
                raise InterruptedTrialError

        try:
            for index, seed in enumerate(trial_seeds):
                config = plan.config_of_trial(values, seed, plan.folder / TRIALS)
                report = reports.during_the_first if index == 0 else None
                training, _ = train(config, keep=plan.config["keep"], report=report, begun=has_begun)
                done.append(training)
                if len(done) < plan.n_seeds:
                    reports.between(done)
            return plan.objective.values(done)
        finally:
            # What another process took over is no longer ours to write to.
            with contextlib.suppress(optuna.exceptions.UpdateFinishedTrialError):
                trial.set_user_attr(STEPS, steps_trained(folders))
                trial.set_user_attr(SECONDS, round(time.monotonic() - started, 1))

    def _stop_if_all_fail_alike(self, shared: SharedStudy) -> None:
        alike = shared.failed_alike(self.started)
        if alike is None:
            return
        show(alike.user_attrs.get("traceback", ""), file=sys.stderr, end="", flush=True)
        raise SameFailureError(
            f"three trials in a row failed alike, so the study has stopped: {alike.user_attrs.get('reason')}"
        )

    def _tell(self, trial: Trial, what: str) -> None:
        if self.plan.config["verbose"]:
            seconds = trial.user_attrs.get(SECONDS, 0.0)
            say(f"trial {trial.number:>4}  {what}  ({seconds:g} s)")

    # -- the best ones again ----------------------------------------------------------------------------

    def _train_best_again(self, finals: Finals) -> None:
        while True:
            trial = finals.shared.claim()
            if trial is not None:
                try:
                    self._run_final(finals, trial)
                except optuna.exceptions.UpdateFinishedTrialError:
                    finals.shared.forget()
            elif finals.shared.is_anyone_running():
                time.sleep(SECONDS_BETWEEN_LOOKS)
            else:
                return

    def _run_final(self, finals: Finals, trial: Trial) -> None:
        plan, shared = self.plan, finals.shared
        number, seed = finals.what_to_train(trial)
        try:
            values = finals.values_of(number, plan)
            config = plan.config_of_trial(values, seed, plan.folder / TOP_RUNS)
            training, folder = train(config, keep=True)
            finals.record(trial, training, folder, plan.objective)
        except (InterruptedTrialError, KeyboardInterrupt):
            shared.give_back(trial, "interrupted")
            raise
        except (optuna.exceptions.StorageInternalError, optuna.exceptions.UpdateFinishedTrialError):
            raise
        except Exception as error:
            if _INTERRUPTED.is_set():
                shared.give_back(trial, "interrupted")
                raise InterruptedTrialError from error
            shared.fail(trial, error)
            self._say(f"top   trial {number}, seed {seed}  failed: {reason_of(error)}")
            self._stop_if_all_fail_alike(shared)
        else:
            shared.finish(trial, plan.objective.values([training]))
            self._say(f"top   trial {number}, seed {seed}  {plan.objective.values([training])[0]:,.6g}")

    def _say(self, line: str) -> None:
        if self.plan.config["verbose"]:
            say(line)


class _Reports:
    """Tells a trial how its trainings go, and asks whether it is worth going on.

    The first training is followed evaluation by evaluation. A later one starts low again, so what it shows on
    its way says nothing beside those that have ended: of these the pruner hears at the end of each.
    """

    def __init__(self, trial: Trial, plan: Plan) -> None:
        self.trial, self.plan = trial, plan

    def during_the_first(self, steps: int, training: Training) -> str | None:
        """Report an evaluation of the first training; return why the trial should end, if it should."""
        if not self.plan.objective.is_single:
            return None
        value = self.plan.objective.values([training])[0]
        self.trial.report(value, steps)
        return _pruned(steps, value) if self.trial.should_prune() else None

    def between(self, done: Sequence[Training]) -> None:
        """Report what the trainings so far are worth. Raises `PrunedTrialError`."""
        if not self.plan.objective.is_single:
            return
        steps, value = len(done) * self.plan.n_timesteps, self.plan.objective.values(done)[0]
        self.trial.report(value, steps)
        # Some pruners go by the best so far, which a lucky first seed would keep high: they see this alone.
        study, storage = self.trial.study, self.trial.study._storage
        alone = copy.deepcopy(storage.get_trial(self.trial._trial_id))
        alone.intermediate_values = {steps: value}
        if study.pruner.prune(study, alone):
            raise PrunedTrialError(_pruned(steps, value))


def _pruned(steps: int, value: float) -> str:
    return f"pruned after {steps:,} steps: {value:,.6g}"


def _end_with_the_supervisor() -> None:
    """Wait until the other end of our standard input closes, which means that its process is gone."""
    os.read(sys.stdin.fileno(), 1)
    os.kill(os.getpid(), signal.SIGTERM)


def _read(descriptor: int) -> str:
    with open(descriptor, encoding="utf-8") as file:
        return file.read()
