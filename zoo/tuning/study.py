"""A study: where its trials are stored, how it begins or goes on, and how many processes share it.

Optuna stores the trials, claims each for one process, and in a database retries those whose process missed
its heartbeats. Added here: a lock around claiming, so that all processes together run exactly ``n_trials``,
and for storages in a file a lock file for each process, by which a killed one's trial is retried at once.
"""

from __future__ import annotations

import contextlib
import hashlib
import platform
import re
import secrets
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
import sqlalchemy
from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, JournalStorage, RDBStorage, RetryHeartbeatStaleTrialCallback
from optuna.storages.journal import JournalFileBackend
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, Trial, TrialState

from zoo.config.paths import shown
from zoo.core import atomic
from zoo.core.file_lock import FileLock, is_locked
from zoo.core.printing import first_and_last, one_line, without_password
from zoo.envs.replay import random_seed
from zoo.errors import ZooError
from zoo.tuning.objective import NoSuccessError
from zoo.tuning.plan import Plan, differences

SETTINGS, SEED = "settings", "seed"
"""Attributes of a study."""

ORIGIN, WORKER, REASON, TRACEBACK = "origin", "worker", "reason", "traceback"
"""Attributes of a trial: where its values came from, who ran it, why it ended, and the traceback."""

DIED = "its process died"

WARM_TRIALS = 5
"""Trials of another study that a warm start takes."""

TOP = "/top"
"""Suffix of the name of the second study, in which the best trials are trained again."""

MOST_EQUAL_FAILURES = 3
"""Trials that fail in a row for one reason before the study ends."""

JOURNAL = "journal"
JOURNAL_SUFFIXES = (".journal", ".log")
SQLITE_SUFFIXES = (".db", ".sqlite", ".sqlite3")

SQLITE_TIMEOUT, CONNECT_TIMEOUT = 60, 10
"""Seconds: how long SQLite waits for another process's write, and how long a server may take to answer."""

MISSED_HEARTBEATS = 4

MOST_RETRIES = 3
"""How often the trial of a process that died is run again."""

# -- storages -------------------------------------------------------------------------------------------


@dataclass
class Storage:
    """An open storage of Optuna's."""

    optuna: BaseStorage
    name: str
    """Its path, or its URL without the password."""
    locks: Path
    """Folder of the lock files of the processes that share it."""
    is_file: bool = True

    def close(self) -> None:
        """Close the database; Optuna opens it again when asked for anything more."""
        if isinstance(self.optuna, RDBStorage):
            self.optuna.remove_session()
            self.optuna.engine.dispose()

    @contextlib.contextmanager
    def one_line_errors(self) -> Iterator[None]:
        """Raise `ZooError`, in one line, for a storage that can no longer be reached or written."""
        try:
            yield
        except (StorageInternalError, sqlalchemy.exc.SQLAlchemyError) as error:
            reason = _reason(error.__cause__ if isinstance(error.__cause__, Exception) else error)
            raise ZooError(f"can't go on with the storage {self.name}: {reason}") from error

    @contextlib.contextmanager
    def lock(self, study: str) -> Iterator[None]:
        """Hold the lock of a study, which one of the processes that share it has at a time."""
        if not isinstance(self.optuna, RDBStorage) or self.optuna.engine.dialect.name != "postgresql":
            with FileLock(self.locks / "turn.lock"):
                yield
            return
        # PostgreSQL gives its own lock up when the connection ends, however that comes.
        digest = hashlib.sha256(study.encode()).digest()
        key = {"key": int.from_bytes(digest[:8], "big", signed=True)}
        with self.optuna.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(sqlalchemy.text("SELECT pg_advisory_lock(:key)"), key)
            try:
                yield
            finally:
                connection.execute(sqlalchemy.text("SELECT pg_advisory_unlock(:key)"), key)

    def worker_lock(self, worker: str) -> Path:
        """Return the file that a process holds locked while it works on a study."""
        return self.locks / f"{worker}.lock"


def open_storage(setting: str | None, folder: Path, heartbeat: int) -> Storage:
    """Open the storage that the setting ``storage`` names; ``folder`` is the study's.

    Raises `ZooError` in one line, without any password, for one that can't be reached.
    """
    try:
        if setting is not None and "://" in setting:
            return _database(setting, folder, heartbeat)
        file = _file(setting, folder)
        atomic.make_folder(file.parent)
        locks = _locks_of(file)
        atomic.make_folder(locks)
        with FileLock(locks / "turn.lock"):  # SQLite fails if two processes make the tables at once
            return Storage(_on_file(file), shown(file), locks)
    except OSError as error:
        raise ZooError(f"can't write into {error.filename}: {error.strerror or error}") from error


def _file(setting: str | None, folder: Path) -> Path:
    if setting is None:
        return (folder / "study.db").absolute()
    if setting == JOURNAL:
        return (folder / "study.journal").absolute()
    path = Path(setting).expanduser().absolute()
    if path.suffix not in (*JOURNAL_SUFFIXES, *SQLITE_SUFFIXES) or path.is_dir():
        known = ", ".join((*SQLITE_SUFFIXES, *JOURNAL_SUFFIXES))
        raise ZooError(
            f"`storage={setting}` is neither a file ({known}), nor journal, nor a database's URL"
            " (postgresql+psycopg://user:password@host/name)"
        )
    if not path.parent.is_dir():
        raise ZooError(f"`storage={setting}`: there is no folder {shown(path.parent)}; make it first")
    return path


def _locks_of(file: Path) -> Path:
    return file.with_name(f"{file.name}.workers")


def _on_file(file: Path) -> BaseStorage:
    if file.suffix not in JOURNAL_SUFFIXES:
        options = {"connect_args": {"timeout": SQLITE_TIMEOUT}}
        return _rdb(f"sqlite:///{file}", shown(file), options)
    try:
        # Optuna's own lock stays behind when its holder is killed.
        lock: Any = FileLock(_locks_of(file) / "journal.lock")
        return JournalStorage(JournalFileBackend(str(file), lock))
    except (ValueError, KeyError, TypeError) as error:  # from Optuna, for another file
        raise ZooError(f"can't read the journal {shown(file)}: {one_line(error)}") from error


def _database(url: str, folder: Path, heartbeat: int) -> Storage:
    if url.startswith("sqlite"):
        raise ZooError(f"`storage={url}`: a SQLite file is named by its path: storage=PATH.db")
    masked = without_password(url)
    options: dict[str, Any] = {"pool_pre_ping": True}
    if url.startswith("postgresql"):
        options["connect_args"] = {"connect_timeout": CONNECT_TIMEOUT}
    storage = _rdb(url, masked, options, heartbeat)
    locks = folder / "workers"
    atomic.make_folder(locks)
    return Storage(storage, masked, locks, is_file=False)


def _rdb(url: str, masked: str, options: dict[str, Any], heartbeat: int | None = None) -> RDBStorage:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # heartbeats are called experimental
            return RDBStorage(
                url,
                engine_kwargs=options,
                heartbeat_interval=heartbeat,
                grace_period=None if heartbeat is None else MISSED_HEARTBEATS * heartbeat,
                heartbeat_stale_trial_callback=None if heartbeat is None else _retry_callback(),
            )
    except ImportError as error:
        reason = one_line(error.__cause__ or error)
        raise ZooError(
            f"the storage {masked} needs a database driver ({reason}):"
            " pip install 'psycopg[binary]' for PostgreSQL"
        ) from error
    except (sqlalchemy.exc.SQLAlchemyError, StorageInternalError, RuntimeError, ValueError) as error:
        raise ZooError(f"can't reach the storage {masked}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """Return a database's error on one line and without any password."""
    return without_password(one_line(getattr(error, "orig", None) or error)).rstrip(".")


# -- beginning, and going on ------------------------------------------------------------------------------

FirstTrials = list[tuple[dict[str, Any], str]]
"""Parameters of the first trials of a study, each with where they are from."""


def open_study(plan: Plan) -> tuple[SharedStudy, list[str]]:
    """Begin the study, or go on with it; return it, and remarks for the user.

    Raises `ZooError` for a storage that can't be reached, and for a study that was begun with other settings.
    """
    with quiet_optuna():
        # Before anything is written: a mistake in `warm_start` leaves nothing behind.
        early = None if plan.folder.exists() else _warm_start(plan)
        storage = open_storage(plan.config["storage"], plan.folder, plan.config["heartbeat"])
        with storage.one_line_errors(), storage.lock(plan.full_name):
            study = existing_study(plan.full_name, storage)
            if study is not None and n_claimed(study) == 0 and _differences(plan, study):
                # No trial was run yet, so nothing is lost with the old settings.
                optuna.delete_study(study_name=plan.full_name, storage=storage.optuna)
                study = None
            if study is None:
                first, remarks = early or _warm_start(plan)
                study = _begin(plan, storage, first)
            else:
                _check_settings(plan, study)
                remarks = [f"goes on: {n_ended(study)} of {plan.config['n_trials']} trials are done"]
            return SharedStudy(study, storage, plan.config["n_trials"]), remarks


def join_study(plan: Plan, storage: Storage) -> SharedStudy:
    """Return the study that `open_study` began, in another process.

    Raises `ZooError` if it is gone, or was begun anew with other settings by another command meanwhile.
    """
    with quiet_optuna(), storage.lock(plan.full_name):
        study = existing_study(plan.full_name, storage)
        if study is None:
            raise ZooError(f"the study {plan.full_name} is no longer in {storage.name}")
        _check_settings(plan, study)
        study.sampler = plan.sampler(seed_of(study), seed_of(study))
        study.pruner = plan.pruner()
        return SharedStudy(study, storage, plan.config["n_trials"])


def existing_study(name: str, storage: Storage) -> Study | None:
    """Return a study by its name, None if there is none."""
    try:
        return optuna.load_study(study_name=name, storage=storage.optuna)
    except KeyError:
        return None


def n_claimed(study: Study) -> int:
    """Return how many trials of the study have ever been run."""
    return sum(trial.state != TrialState.WAITING for trial in study.get_trials(deepcopy=False))


def seed_of(study: Study) -> int:
    """Return the seed from which all seeds of a study's trials come."""
    return int(study.user_attrs[SEED])


@contextlib.contextmanager
def quiet_optuna() -> Iterator[None]:
    """Turn off Optuna's log, and its warnings that parts of it are experimental."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            warnings.filterwarnings("ignore", module="optuna")
            yield
    finally:
        optuna.logging.set_verbosity(before)


def _begin(plan: Plan, storage: Storage, first: FirstTrials) -> Study:
    study = optuna.create_study(
        study_name=plan.full_name, storage=storage.optuna, directions=plan.objective.directions
    )
    seed = plan.base["seed"]
    study.set_user_attr(SEED, random_seed() if seed is None else seed)
    study.set_user_attr(SETTINGS, plan.settings())
    study.set_metric_names(plan.objective.names)
    for parameters, origin in first:
        study.enqueue_trial(parameters, user_attrs={ORIGIN: origin})
    return study


def _differences(plan: Plan, study: Study) -> list[str]:
    if not {SETTINGS, SEED} <= study.user_attrs.keys():
        raise ZooError(f"the study {plan.full_name} was not made by zoo tune; another name: study=NAME")
    found = differences(plan.settings(), study.user_attrs[SETTINGS])
    seed = plan.base["seed"]
    if seed is not None and seed != seed_of(study):
        found.append(f"`seed` is {seed} (the study has {seed_of(study)})")
    return found


def _check_settings(plan: Plan, study: Study) -> None:
    found = _differences(plan, study)
    if found:
        listed = "; ".join(found[:5]) + (f"; and {len(found) - 5} more" if len(found) > 5 else "")
        raise ZooError(
            f"the study '{plan.name}' of {plan.algo} on {plan.env} was begun with other settings:"
            f" {one_line(listed, 800)}. Another study: study=NAME"
        )


# -- warm starts ------------------------------------------------------------------------------------------


def _warm_start(plan: Plan) -> tuple[FirstTrials, list[str]]:
    """Return the first trials, from the tuned file or another study, and remarks for the user."""
    setting, tuned = plan.config["warm_start"], plan.base["tuned"]
    if isinstance(setting, str):
        return _from_study(plan, setting)
    if not setting or tuned in (None, "none"):
        return [], []
    found, outside = plan.space.parameters_of(plan.base)
    drawn = f"; those of {', '.join(outside)} lie outside the space and are drawn" if outside else ""
    return [(found, str(tuned))], [f"first trial with the values of {tuned}{drawn}"]


def _from_study(plan: Plan, place: str) -> tuple[FirstTrials, list[str]]:
    """Return the best trials of another study, as far as the space has their values, and remarks."""
    if "://" in place:
        raise ZooError(
            f"warm_start={without_password(place)}: a database can't be given here;"
            " expected a study's folder, or its storage's file"
        )
    path = Path(place).expanduser()
    candidates = [path / "study.db", path / "study.journal"] if path.is_dir() else [path]
    file = next((each for each in candidates if each.is_file()), None)
    if file is None:
        raise ZooError(
            f"warm_start={place}: there is no study; expected a study's folder, or its storage's file"
        )
    try:
        storage = Storage(_on_file(file.absolute()), shown(file), file.parent)
        with contextlib.closing(storage) as other, other.one_line_errors():
            best = _best_of(other.optuna)
    except (ZooError, optuna.exceptions.OptunaError) as error:
        raise ZooError(f"warm_start={place}: {one_line(error)}") from error
    found = [(trial.number, plan.space.shared_parameters(trial.params)) for trial in best]
    first = [(parameters, f"trial {number} of {place}") for number, parameters in found if parameters]
    if not first:
        raise ZooError(f"warm_start={place}: none of its best trials has values within this space")
    which = "trial" if len(first) == 1 else f"{len(first)} trials"
    return first, [f"first {which} with the values of the best in {place}"]


def _best_of(storage: BaseStorage) -> list[FrozenTrial]:
    names = [name for name in optuna.get_all_study_names(storage) if not name.endswith(TOP)]
    if len(names) != 1:
        raise ZooError(f"expected one study there, found {len(names)}")
    other = optuna.load_study(study_name=names[0], storage=storage)
    complete = other.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if not complete:
        raise ZooError("the study has no complete trial")
    descending = other.directions[0] == StudyDirection.MAXIMIZE
    return sorted(complete, key=lambda trial: trial.values[0], reverse=descending)[:WARM_TRIALS]


# -- sharing ----------------------------------------------------------------------------------------------


class SharedStudy:
    """An Optuna study that several processes work on; ``worker`` is the name of this process."""

    def __init__(self, study: Study, storage: Storage, n_trials: int, worker: str = "") -> None:
        self.study, self.storage, self.n_trials, self.worker = study, storage, n_trials, worker

    def trials(self) -> list[FrozenTrial]:
        """Return all trials in the order of their numbers."""
        return self.study.get_trials(deepcopy=False)

    def lock(self) -> contextlib.AbstractContextManager[None]:
        """Hold the study's lock within the block."""
        return self.storage.lock(self.study.study_name)

    def run_next(
        self, objective: Callable[[Trial], Sequence[float]], on_end: Callable[[FrozenTrial], None]
    ) -> bool:
        """Run a trial, queued or new; return False if ``n_trials`` are claimed already.

        ``on_end`` is called with it when it is complete, pruned or failed. An interrupted one is queued again
        and the interruption is raised, as are `NoSuccessError` and what ``on_end`` raises.
        """
        no_success: list[NoSuccessError] = []
        with contextlib.ExitStack() as lock:
            lock.enter_context(self.lock())
            self.requeue_dead()
            if len(counted(self.trials())) >= self.n_trials:
                return False

            def run(trial: Trial) -> Sequence[float]:
                trial.set_user_attr(WORKER, self.worker)
                lock.close()
                try:
                    return objective(trial)
                except KeyboardInterrupt:
                    self._requeue(trial.number, RetryHeartbeatStaleTrialCallback())
                    trial.set_user_attr(REASON, "interrupted")
                    raise
                except optuna.TrialPruned as error:
                    trial.set_user_attr(REASON, str(error))
                    raise
                except Exception as error:
                    trial.set_user_attr(REASON, reason_of(error))
                    trial.set_user_attr(TRACEBACK, "".join(traceback.format_exception(error))[-4000:])
                    no_success.extend([error] if isinstance(error, NoSuccessError) else [])
                    raise

            def after(study: Study, trial: FrozenTrial) -> None:
                if not no_success:
                    on_end(trial)

            self.study.optimize(run, n_trials=1, catch=(Exception,), callbacks=[after])
        if no_success:
            raise no_success[0]
        return True

    def requeue_dead(self) -> None:
        """Queue the trials of dead processes again; call it with the lock held.

        In a database a dead process is known by its heartbeat, in a file by its lock, which nobody holds.
        """
        optuna.storages.fail_stale_trials(self.study)
        if not self.storage.is_file:
            return
        for trial in self.trials():
            worker = str(trial.user_attrs.get(WORKER, ""))
            if trial.state != TrialState.RUNNING or worker == self.worker:  # closing our own lock frees it
                continue
            if not is_locked(self.storage.worker_lock(worker)):
                self._requeue(trial.number, _retry_callback())
                self.study.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)

    def is_over(self) -> bool:
        """Tell whether ``n_trials`` have ended."""
        return n_ended(self.study) >= self.n_trials

    def is_anyone_running(self) -> bool:
        """Tell whether a living process runs a trial."""
        with self.lock():
            self.requeue_dead()
            return any(trial.state == TrialState.RUNNING for trial in self.trials())

    def repeated_failure(self, since: float) -> FrozenTrial | None:
        """Return the latest trial if the last few that ended after ``since`` all failed for one reason."""
        ends = [(trial.datetime_complete, trial) for trial in counted(self.trials())]
        recent = [(end.timestamp(), trial) for end, trial in ends if end and end.timestamp() >= since]
        latest = [trial for _, trial in sorted(recent, key=lambda each: each[0])[-MOST_EQUAL_FAILURES:]]
        if len(latest) < MOST_EQUAL_FAILURES or any(trial.state != TrialState.FAIL for trial in latest):
            return None
        # Without numbers: an environment's failure names its index and seed, which differ each time.
        reasons = {re.sub(r"\d+", "", str(trial.user_attrs.get(REASON, DIED))) for trial in latest}
        return latest[-1] if len(reasons) == 1 else None

    def _requeue(self, number: int, retry: RetryHeartbeatStaleTrialCallback) -> None:
        """Queue a trial's values again, unless they are queued already."""
        trials = self.trials()
        if number not in _retried(trials):
            retry(self.study, next(trial for trial in trials if trial.number == number))


def counted(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """Return the trials that count towards ``n_trials``: neither waiting nor queued again."""
    retried = _retried(trials)
    return [trial for trial in trials if trial.state != TrialState.WAITING and trial.number not in retried]


def n_ended(study: Study) -> int:
    """Return how many of the trials that count have ended."""
    return sum(trial.state.is_finished() for trial in counted(study.get_trials(deepcopy=False)))


def retry_of(trial: FrozenTrial) -> int | None:
    """Return the number of the interrupted trial that this one repeats."""
    history = _retry_history(trial)
    return history[-1] if history else None


def _retried(trials: Sequence[FrozenTrial]) -> set[int]:
    return {number for trial in trials for number in _retry_history(trial)}


def _retry_history(trial: FrozenTrial) -> list[int]:
    """Return what `RetryHeartbeatStaleTrialCallback.retry_history` does, without a warning at each call."""
    history: list[int] = trial.system_attrs.get("retry_history", [])
    return history


def _retry_callback() -> RetryHeartbeatStaleTrialCallback:
    """Return the callback that queues a dead process's trial again, up to `MOST_RETRIES` times."""
    return RetryHeartbeatStaleTrialCallback(max_retry=MOST_RETRIES)


def new_worker_name() -> str:
    """Return a unique name."""
    return f"{platform.node()}-{secrets.token_hex(6)}"


def reason_of(error: BaseException) -> str:
    """Return an exception on one line; of a long one, such as an environment's traceback, start and end."""
    text = first_and_last(error)
    return one_line(text if isinstance(error, ZooError) else f"{type(error).__name__}: {text}", 500)
