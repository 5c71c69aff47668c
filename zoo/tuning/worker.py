"""The processes of a study: each runs trials, then trains the best ones again, and is replaced if it dies."""

from __future__ import annotations

import copy
import json
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import optuna
from optuna.trial import FrozenTrial, Trial, TrialState

from zoo.config.environment_values import keep, kept
from zoo.config.paths import shown
from zoo.core.file_lock import FileLock
from zoo.core.free_memory import usable_cores
from zoo.core.printing import one_line, say, show, without_password
from zoo.errors import INTERRUPTED, MISTAKE, ZooError
from zoo.launch.processes import JobProcesses, describe_exit, end_with_parent
from zoo.tuning.objective import (
    TOP_RUNS,
    TRIALS,
    InterruptedTrialError,
    Training,
    seeds,
    steps_trained,
    train,
    try_small,
)
from zoo.tuning.plan import Plan
from zoo.tuning.reevaluate import Reevaluation, join_reevaluation
from zoo.tuning.study import (
    DIED,
    REASON,
    TOP,
    TRACEBACK,
    SharedStudy,
    Storage,
    existing_study,
    join_study,
    new_worker_name,
    open_storage,
    quiet_optuna,
    reason_of,
    seed_of,
)

RUNS, VALUES, STEPS, SECONDS = "runs", "values", "steps", "seconds"

SECONDS_BETWEEN_LOOKS = 1.0
"""Between two looks whether the others' trials have ended."""

MOST_DEATHS = 3
"""Processes that may die one after the other before they have claimed a trial."""

_INTERRUPTED = threading.Event()
"""Whether a signal has ended what this process does, whatever its `KeyboardInterrupt` became on its way."""


class Pool:
    """Keeps as many processes at work on a study as trials run at a time."""

    def __init__(self, plan: Plan, shared: SharedStudy) -> None:
        self.plan, self.shared = plan, shared
        self.running = JobProcesses()
        self.started = time.time()
        minutes = plan.deadline_minutes
        self.deadline = None if minutes is None else self.started + 60 * minutes
        self.mistakes: list[str] = []

    def run(self) -> bool:
        """Run the study to its end and return whether it came there; False: a signal ended it.

        Raises `ZooError` for what stopped the study.
        """
        cores = usable_cores()
        n_jobs = self.plan.config["n_jobs"]
        n_jobs = cores if n_jobs == -1 else n_jobs
        # Each trial would take all cores for its threads.
        self.environment = {"OMP_NUM_THREADS": str(max(1, cores // n_jobs))} if n_jobs > 1 else {}
        with self.running.handling_signals(), ThreadPoolExecutor(n_jobs) as threads:
            statuses = list(threads.map(lambda _: self._keep_one_at_work(), range(n_jobs)))
        if self.mistakes:
            raise ZooError(self.mistakes[0])
        return INTERRUPTED not in statuses

    def _keep_one_at_work(self) -> int:
        """Keep one process at work until nothing is left to do; in a thread of its own."""
        n_deaths = 0
        while True:
            name = new_worker_name()
            status, message = self._work(name)
            if message is not None:
                self.mistakes += [message] if message else []
                return status
            if self.running.is_stopping or self.mistakes:
                return INTERRUPTED
            say(f"zoo: a process {describe_exit(status)}; another one goes on", sys.stderr)
            n_deaths = 0 if self._has_claimed(name) else n_deaths + 1
            if n_deaths >= MOST_DEATHS:
                self.mistakes.append(
                    f"{n_deaths} processes one after the other died before their first trial;"
                    f" the last one {describe_exit(status)}"
                )
                return status

    def _has_claimed(self, name: str) -> bool:
        """Tell whether a process has claimed a trial, or one that trains a best one again."""
        with quiet_optuna():
            top = existing_study(self.plan.full_name + TOP, self.shared.storage)
        studies = [self.shared] if top is None else [self.shared, SharedStudy(top, self.shared.storage, 0)]
        return any(each.has_claimed(name) for each in studies)

    def _work(self, name: str) -> tuple[int, str | None]:
        """Start a process and wait; return its status and its message: None if it died before it told one."""
        job = {
            "config": self.plan.config,
            "variables": kept(),
            "name": name,
            "started": self.started,
            "deadline": self.deadline,
            "shown": [without_password(argument) for argument in sys.argv],
        }
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as report:
            given.write(json.dumps(job).encode())
            given.flush()
            given.seek(0)
            status = self._run_process(given.fileno(), report.fileno())
            report.seek(0)
            reported = report.read()
        if status is None:
            return INTERRUPTED, ""
        if not reported:
            return status, None
        ended: tuple[int, str] = tuple(json.loads(reported))
        return ended

    def _run_process(self, given: int, report: int) -> int | None:
        # Before the process minds signals itself they end it, without a traceback.
        code = (
            f"import sys; sys.path[:] = {sys.path!r};"
            " import signal; signal.signal(signal.SIGINT, signal.SIG_DFL);"
            f" from zoo.tuning.worker import main; main({given}, {report})"
        )
        environment: dict[str, Any] = {**self.environment, **os.environ}
        return self.running.run([sys.executable, "-c", code], env=environment, pass_fds=[given, report])


def main(job: int, report: int) -> NoReturn:
    """Work as the JSON in the open file ``job`` says; write into ``report`` what went wrong, and exit."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    end_with_parent()
    with open(job, encoding="utf-8") as given:
        status, message = _outcome(json.load(given))
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
    except KeyboardInterrupt:
        return INTERRUPTED, ""
    except ZooError as error:
        return MISTAKE, str(error)
    except OSError as error:  # a full disk below a journal, perhaps
        return MISTAKE, f"can't go on: {one_line(error)}"
    return 0, ""


class Worker:
    """One process of a study. After ``deadline``, in seconds since 1970, no trial starts."""

    def __init__(
        self, plan: Plan, storage: Storage, name: str, started: float, deadline: float | None = None
    ) -> None:
        self.plan, self.storage, self.name = plan, storage, name
        self.started, self.deadline = started, deadline
        self.shared = join_study(plan, storage)
        self.shared.worker = name
        self.seed = seed_of(self.shared.study)

    def work(self) -> None:
        """Do what is left of the study. Raises `KeyboardInterrupt` and `ZooError`."""
        lock = FileLock(self.storage.lock_of(self.name))
        with lock:
            try:
                self._search_and_train_again()
            finally:
                lock.path.unlink(missing_ok=True)

    def _search_and_train_again(self) -> None:
        if not self.shared.is_over():
            self._try_small()
        while True:
            is_late = self.deadline is not None and time.time() > self.deadline
            if not is_late and self.shared.run_next(self._values, self._tell):
                continue
            if self.shared.is_anyone_running():
                time.sleep(SECONDS_BETWEEN_LOOKS)
            elif is_late or self.shared.is_over():
                break
        reevaluation = join_reevaluation(self.plan, self.shared) if self.plan.config["top_k"] else None
        if reevaluation is None:
            return
        if reevaluation.n_new:
            self._say(
                f"top   {reevaluation.n_new} training{'s' * (reevaluation.n_new > 1)} of the best on"
                " fresh seeds"
            )
        reevaluation.shared.worker = self.name
        while True:
            if self._train_one_again(reevaluation):
                continue
            if not reevaluation.shared.is_anyone_running():
                return
            time.sleep(SECONDS_BETWEEN_LOOKS)

    def _try_small(self) -> None:
        try:
            try_small(self.plan, self.seed)
        except ZooError:
            raise
        except Exception as error:
            show(traceback.format_exc(), end="", file=sys.stderr, flush=True)
            raise ZooError(
                f"the study does not start, as a first small training failed: {reason_of(error)}"
            ) from error

    def _values(self, trial: Trial) -> list[float]:
        """Run a trial and return what it is worth."""
        plan = self.plan
        trial_seeds = seeds(self.seed, trial.number, plan.n_seeds)
        trial.study.sampler = plan.sampler(self.seed, trial_seeds[0])
        started = time.monotonic()
        values = plan.space.suggest(trial, plan.base)
        trial.set_user_attr(VALUES, values)
        done: list[Training] = []
        folders: list[str] = []

        def has_begun(run: Path) -> None:
            # At once: a process that is killed can't tell it any more.
            folders.append(shown(run.absolute()))
            trial.set_user_attr(RUNS, folders)
            if _INTERRUPTED.is_set():  # and nobody heard of it
                raise InterruptedTrialError

        def while_it_runs(steps: int, training: Training) -> str | None:
            value = plan.objective.values([training])[0]
            trial.report(value, steps)
            return _pruned(steps, value) if trial.should_prune() else None

        try:
            for index, seed in enumerate(trial_seeds):
                config = plan.config_of_trial(values, seed, plan.folder / TRIALS)
                report = while_it_runs if index == 0 and plan.objective.is_single else None
                training, _ = train(config, keep=plan.config["keep"], report=report, begun=has_begun)
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

    def _train_one_again(self, reevaluation: Reevaluation) -> bool:
        """Train one of the best again, on a fresh seed; return False if none is left."""
        plan = self.plan

        def values(trial: Trial) -> list[float]:
            number, seed = reevaluation.what_to_train(trial)
            config = plan.config_of_trial(reevaluation.values_of(number), seed, plan.folder / TOP_RUNS)
            try:
                training, folder = train(config, keep=True)
            except Exception as error:
                if _INTERRUPTED.is_set():
                    raise InterruptedTrialError from error
                raise
            reevaluation.record(trial, training, folder, plan.objective)
            return plan.objective.values([training])

        def tell(trial: FrozenTrial) -> None:
            number, seed = reevaluation.what_to_train(trial)
            self._say(f"top   trial {number}, seed {seed}  {self._ended(trial, names=False)}")
            self._stop_if_all_fail_alike(reevaluation.shared)

        return reevaluation.shared.run_next(values, tell)

    def _tell(self, trial: FrozenTrial) -> None:
        seconds = trial.user_attrs.get(SECONDS, 0.0)
        self._say(f"trial {trial.number:>4}  {self._ended(trial, names=True)}  ({seconds:g} s)")
        self._stop_if_all_fail_alike(self.shared)

    def _ended(self, trial: FrozenTrial, *, names: bool) -> str:
        """Return how a trial has ended."""
        if trial.state == TrialState.COMPLETE:
            if not names:
                return f"{trial.values[0]:,.6g}"
            pairs = zip(self.plan.objective.names, trial.values, strict=True)
            return "  ".join(f"{name} {value:,.6g}" for name, value in pairs)
        reason = str(trial.user_attrs.get(REASON, DIED))
        return reason if trial.state == TrialState.PRUNED else f"failed: {reason}"

    def _stop_if_all_fail_alike(self, shared: SharedStudy) -> None:
        alike = shared.failed_alike(self.started)
        if alike is None:
            return
        show(alike.user_attrs.get(TRACEBACK, ""), file=sys.stderr, end="", flush=True)
        raise ZooError(
            "three trials in a row failed alike, so the study has stopped:"
            f" {alike.user_attrs.get(REASON, DIED)}"
        )

    def _say(self, line: str) -> None:
        if self.plan.config["verbose"]:
            say(line)


def _prune_between(trial: Trial, plan: Plan, done: Sequence[Training]) -> None:
    """Raise `optuna.TrialPruned` if what the trainings so far are worth together is too little.

    The first training is followed evaluation by evaluation. A later one starts low again, so what it shows on
    its way says nothing beside those that have ended: of these the pruner hears at the end of each.
    """
    steps, value = len(done) * plan.n_timesteps, plan.objective.values(done)[0]
    trial.report(value, steps)
    # Some pruners go by the best so far, which a lucky first seed would keep high: they see this alone.
    alone = copy.deepcopy(trial.study.get_trials(deepcopy=False)[trial.number])
    alone.intermediate_values = {steps: value}
    if trial.study.pruner.prune(trial.study, alone):
        raise optuna.TrialPruned(_pruned(steps, value))


def _pruned(steps: int, value: float) -> str:
    return f"pruned after {steps:,} steps: {value:,.6g}"
