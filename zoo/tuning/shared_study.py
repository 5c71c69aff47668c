"""A study that many processes share: each trial is claimed by one of them, and none is lost.

All who share a study take turns at claiming, so that together they run as many trials as were asked for and
no more. A process shows that it lives by a lock that dies with it, or by its heartbeat in the database; the
trial of one that died, or was interrupted, is put into the queue again with the same values.
"""

from __future__ import annotations

import contextlib
import platform
import secrets
import threading
import traceback
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, Trial, TrialState

from zoo.errors import ZooError
from zoo.files.file_lock import FileLock, is_locked
from zoo.files.printing import first_and_last, one_line
from zoo.tuning.storages import Storage

COMMANDS = "commands"
"""Of a study: how many commands have begun it or gone on with it."""

WORKER = "worker"
REASON = "reason"
TRACEBACK = "traceback"
LIKENESS = "likeness"
GOES_ON = "goes_on_from"
"""Of a trial that was interrupted and is run again: the number of the earlier one, which does not count."""

DEATHS = 3
"""How many processes may die of one trial before it has failed."""

CARRIED = ("origin", "trial", "seed")
"""What stays with a trial that is run again: where its values are from, and what it repeats."""

ALIKE = 3
"""So many trials that fail alike one after the other end the study."""

DIED = "its process died"


class SharedStudy:
    """An Optuna study as one process sees it; ``worker`` is the name by which others know that process."""

    def __init__(self, study: optuna.Study, storage: Storage, n_trials: int) -> None:
        self.study, self.storage, self.n_trials = study, storage, n_trials
        self.worker = ""
        self._lock: FileLock | None = None
        self._beat = threading.Event()
        self._running: int | None = None
        self._begun_as = _attributes_of(study)

    @contextlib.contextmanager
    def joined(self, worker: str) -> Iterator[None]:
        """Take part under that name within the block: others see by its lock that this process lives."""
        self.worker, lock = worker, FileLock(_lock_file(self.storage, worker))
        beats = threading.Thread(target=self._keep_beating, name="zoo heartbeat", daemon=True)
        lock.acquire()
        try:
            if self.storage.server is not None:
                beats.start()
            yield
        finally:
            self._beat.set()
            lock.path.unlink(missing_ok=True)
            lock.release()

    def trials(self) -> list[FrozenTrial]:
        """Return all trials, in the order in which they were claimed."""
        return self.study.get_trials(deepcopy=False)

    def claim(self) -> Trial | None:
        """Return a trial to run, of the queue or a new one; None if there are as many as were asked for.

        Raises `ZooError` if another command has put another study in this one's place.
        """
        with self.turn():
            if _attributes_of(self.study) != self._begun_as:
                raise ZooError(f"the study {self.study.study_name} was begun anew by another command")
            self.reap()
            if len(counted(self.trials())) >= self.n_trials:
                return None
            with _quiet():
                trial = self.study.ask()
            # In this order: a trial with a name to it, but without a heartbeat, would never be put back.
            if self.storage.server is not None:
                self.storage.server.record_heartbeat(trial._trial_id)
            trial.set_user_attr(WORKER, self.worker)
            self._running = trial._trial_id
            return trial

    def is_over(self) -> bool:
        """Tell whether as many trials have ended as were asked for."""
        return sum(trial.state.is_finished() for trial in counted(self.trials())) >= self.n_trials

    def is_anyone_running(self) -> bool:
        """Tell whether a trial is under way, in whatever process, after those of dead ones were put back."""
        with self.turn():
            self.reap()
            return any(trial.state == TrialState.RUNNING for trial in self.trials())

    def finish(self, trial: Trial, values: Sequence[float]) -> None:
        """Record what a trial is worth."""
        self._running = None
        self.study.tell(trial, list(values), skip_if_finished=True)

    def prune(self, trial: Trial, reason: str) -> None:
        """Record that a trial was ended early."""
        trial.set_user_attr(REASON, reason)
        self._running = None
        self.study.tell(trial, state=TrialState.PRUNED, skip_if_finished=True)

    def fail(self, trial: Trial, error: BaseException) -> None:
        """Record that a trial failed, and why."""
        trial.set_user_attr(REASON, reason_of(error))
        trial.set_user_attr(LIKENESS, _likeness(error))
        trial.set_user_attr(TRACEBACK, "".join(traceback.format_exception(error))[-4000:])
        self._running = None
        self.study.tell(trial, state=TrialState.FAIL, skip_if_finished=True)

    def give_back(self, trial: Trial, reason: str) -> None:
        """Put an interrupted trial into the queue again."""
        self._running = None
        with self.turn():
            frozen = next((each for each in self.trials() if each.number == trial.number), None)
            if frozen is not None and frozen.state == TrialState.RUNNING:
                self._put_back(frozen, reason)

    def forget(self) -> None:
        """Have nothing more to do with the trial that runs here: another process took it over."""
        self._running = None

    def fail_of_dead(self, worker: str, reason: str) -> None:
        """Record as failed what a process was running that died while its like lived on."""
        with self.turn():
            for trial in self.trials():
                if trial.state == TrialState.RUNNING and trial.user_attrs.get(WORKER) == worker:
                    self._end(trial, reason)

    def has_claimed(self, worker: str) -> bool:
        """Tell whether a process has claimed a trial."""
        return any(trial.user_attrs.get(WORKER) == worker for trial in self.trials())

    def reap(self) -> None:
        """Put back what processes were running that are dead. Only in one's turn."""
        stale = self._stale()
        for trial in self.trials():
            if trial.state == TrialState.RUNNING and self._is_dead(trial, stale):
                self._put_back(trial, DIED)

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Keep all others who share the study waiting within the block."""
        with self.storage.lock(self.study.study_name):
            yield

    def failed_alike(self, since: float) -> FrozenTrial | None:
        """Return the latest trial if the last few that ended since then all failed, and for one reason."""
        ended = [trial for trial in counted(self.trials()) if trial.datetime_complete is not None]
        recent = [trial for trial in ended if _seconds(trial.datetime_complete) >= since]
        latest = sorted(recent, key=lambda trial: _seconds(trial.datetime_complete))[-ALIKE:]
        if len(latest) < ALIKE or any(trial.state != TrialState.FAIL for trial in latest):
            return None
        reasons = {trial.user_attrs.get(LIKENESS, trial.user_attrs.get(REASON)) for trial in latest}
        return latest[-1] if len(reasons) == 1 else None

    def _is_dead(self, trial: FrozenTrial, stale: set[int]) -> bool:
        worker = trial.user_attrs.get(WORKER)
        if worker is None:  # it died in its turn, before it could put its name to the trial
            return True
        if worker == self.worker:
            return trial._trial_id != self._running
        lock = _lock_file(self.storage, worker)
        if lock.exists():
            return not is_locked(lock)
        # Of a process elsewhere there is no file here, only its heartbeat.
        return self.storage.server is None or trial._trial_id in stale

    def _stale(self) -> set[int]:
        server = self.storage.server
        return set() if server is None else set(server._get_stale_trial_ids(self.study._study_id))

    def _put_back(self, trial: FrozenTrial, reason: str) -> None:
        """Put the trial's values into the queue again; one that was put there often enough has failed."""
        deaths = int(trial.user_attrs.get("deaths", 0)) + (reason == DIED)
        if deaths >= DEATHS:
            self._end(trial, f"{reason}, for the {deaths}. time")
            return
        again = {**_told(trial), GOES_ON: trial.number, "deaths": deaths}
        if trial.number not in {each.user_attrs.get(GOES_ON) for each in self.trials()}:
            # It may have been ended before it had drawn all that was queued for it.
            self.study.enqueue_trial({**fixed_parameters(trial), **trial.params}, user_attrs=again)
        self._end(trial, reason)

    def _end(self, trial: FrozenTrial, reason: str) -> None:
        with contextlib.suppress(optuna.exceptions.UpdateFinishedTrialError):
            self.storage.optuna.set_trial_user_attr(trial._trial_id, REASON, reason)
            self.study.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)

    def _keep_beating(self) -> None:
        server = self.storage.server
        assert server is not None
        while not self._beat.wait(server.get_heartbeat_interval()):
            running = self._running
            if running is not None:
                with contextlib.suppress(Exception):  # the next one may get through
                    server.record_heartbeat(running)


def is_anyone_there(storage: Storage) -> bool:
    """Tell whether another process on this machine takes part in a study of this storage."""
    return any(is_locked(lock) for lock in storage.workers.glob("*-*.lock"))


def counted(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """Return the trials that count: not those that wait, and not those that were put into the queue again."""
    again = {trial.user_attrs.get(GOES_ON) for trial in trials}
    return [trial for trial in trials if trial.state != TrialState.WAITING and trial.number not in again]


def fixed_parameters(trial: FrozenTrial) -> dict[str, Any]:
    """Return the parameters with which a trial was put into the queue."""
    return dict(trial.system_attrs.get("fixed_params", {}))


def _told(trial: FrozenTrial) -> dict[str, Any]:
    """Return what was said of a trial when it was put into the queue."""
    return {key: value for key, value in trial.user_attrs.items() if key in CARRIED}


def new_worker_name() -> str:
    """Return a name that no other process has."""
    return f"{platform.node()}-{secrets.token_hex(6)}"


def reason_of(error: BaseException) -> str:
    """Return an exception on one line; of an environment's own, with its traceback, the ends."""
    text = first_and_last(error)
    return one_line(text if isinstance(error, ZooError) else f"{type(error).__name__}: {text}", 500)


def _likeness(error: BaseException) -> str:
    """Return what two exceptions have in common that are the same mistake.

    An environment's own is told with its index and seed, which differ each time.
    """
    lines = str(error).splitlines()
    is_of_environment = isinstance(error, ZooError) and len(lines) > 1
    return one_line(lines[-1], 500) if is_of_environment else reason_of(error)


def _attributes_of(study: optuna.Study) -> dict[str, Any] | None:
    """Return what a study was begun with; None if it is gone."""
    try:
        return {key: value for key, value in study.user_attrs.items() if key != COMMANDS}
    except KeyError:
        return None


def _lock_file(storage: Storage, worker: str) -> Path:
    return storage.workers / f"{Path(worker).name}.lock"


def _seconds(moment: Any) -> float:
    return float(moment.timestamp())


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Leave out that heartbeats are experimental, and belong to a loop that is not ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
