"""A study: where its trials are kept, how it begins or goes on, and how many processes share it.

Optuna keeps the trials, hands each out once, and runs a stale one of a database again. What is added here:
processes take turns at claiming, so that together they run as many trials as were asked for, and one that
shares a file holds a lock that ends with it, so that the trial of a killed one is run again.
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
ORIGIN = "origin"
"""Of a trial whose values did not come from the sampler: where they are from."""

WORKER, REASON, TRACEBACK = "worker", "reason", "traceback"
"""Of a trial: who ran it, why it ended, and where it failed."""

DIED = "its process died"

WARM_TRIALS = 5
"""Trials of another study that a warm start takes."""

TOP = "/top"
"""How the name of the second study ends, in which the best trials are trained again."""

ALIKE = 3
"""So many trials that fail alike one after the other end the study."""

JOURNAL = "journal"
JOURNAL_SUFFIXES = (".journal", ".log")
SQLITE_SUFFIXES = (".db", ".sqlite", ".sqlite3")

SECONDS_FOR_A_LOCK = 60
"""How long SQLite waits for another process that writes."""

SECONDS_TO_CONNECT = 10
"""How long a server may take to answer."""

MISSED_HEARTBEATS = 4

MOST_RETRIES = 3
"""How often the trial of a process that died is run again."""

# -- storages -------------------------------------------------------------------------------------------


@dataclass
class Storage:
    """An open storage. ``locks`` is the folder of the locks of those who share it."""

    optuna: BaseStorage
    shown: str
    """What to call it in messages: a path, or a URL without its password."""
    locks: Path
    is_file: bool = True

    def close(self) -> None:
        """Close the database; what is asked of it afterwards opens it again."""
        if isinstance(self.optuna, RDBStorage):
            self.optuna.remove_session()
            self.optuna.engine.dispose()

    @contextlib.contextmanager
    def mistakes_told(self) -> Iterator[None]:
        """Raise `ZooError`, in one line, for a storage that can't be reached or written any more."""
        try:
            yield
        except (StorageInternalError, sqlalchemy.exc.SQLAlchemyError) as error:
            reason = _reason(error.__cause__ if isinstance(error.__cause__, Exception) else error)
            raise ZooError(f"can't go on with the storage {self.shown}: {reason}") from error

    @contextlib.contextmanager
    def turn(self, study: str) -> Iterator[None]:
        """Keep all others who share the study waiting within the block."""
        if isinstance(self.optuna, RDBStorage) and self.optuna.engine.dialect.name == "postgresql":
            with _advisory_lock(self.optuna, study):
                yield
            return
        with FileLock(self.locks / "turn.lock"):
            yield

    def lock_of(self, worker: str) -> Path:
        """Return the file that a process holds locked for as long as it takes part."""
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
        with FileLock(locks / "turn.lock"):  # two that make a database's tables at once would fail
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
        options = {"connect_args": {"timeout": SECONDS_FOR_A_LOCK}}
        return _rdb(f"sqlite:///{file}", shown(file), options)
    try:
        # Optuna's own lock stays if its holder is killed, and lets one of two processes wait for long.
        lock: Any = FileLock(_locks_of(file) / "journal.lock")
        return JournalStorage(JournalFileBackend(str(file), lock))
    except (ValueError, KeyError, TypeError) as error:  # what Optuna raises of a file that is no journal
        raise ZooError(f"can't read the journal {shown(file)}: {one_line(error)}") from error


def _database(url: str, folder: Path, heartbeat: int) -> Storage:
    if url.startswith("sqlite"):
        raise ZooError(f"`storage={url}`: a SQLite file is named by its path: storage=PATH.db")
    masked = without_password(url)
    options: dict[str, Any] = {"pool_pre_ping": True}
    if url.startswith("postgresql"):
        options["connect_args"] = {"connect_timeout": SECONDS_TO_CONNECT}
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
                heartbeat_stale_trial_callback=None if heartbeat is None else _retry_of_dead(),
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
    """Return what a database says went wrong, on one line and without any password."""
    return without_password(one_line(getattr(error, "orig", None) or error)).rstrip(".")


@contextlib.contextmanager
def _advisory_lock(server: RDBStorage, name: str) -> Iterator[None]:
    """Hold PostgreSQL's lock of that name; it is given up when the connection ends, however that comes."""
    digest = hashlib.sha256(name.encode()).digest()
    key = {"key": int.from_bytes(digest[:8], "big", signed=True)}
    with server.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(sqlalchemy.text("SELECT pg_advisory_lock(:key)"), key)
        try:
            yield
        finally:
            connection.execute(sqlalchemy.text("SELECT pg_advisory_unlock(:key)"), key)


# -- beginning, and going on ------------------------------------------------------------------------------


FirstTrials = list[tuple[dict[str, Any], str]]
"""The parameters that the queue of a study begins with, each with where they are from."""


def open_study(plan: Plan) -> tuple[SharedStudy, list[str]]:
    """Begin the study, or go on with it; return it, and what to say of that.

    Raises `ZooError` for a storage that can't be reached, and for a study that was begun with other settings.
    """
    with quiet_optuna():
        # Before there is anything: a mistake in it is told each time, and leaves nothing behind.
        early = None if plan.folder.exists() else _warm_start(plan)
        storage = open_storage(plan.config["storage"], plan.folder, plan.config["heartbeat"])
        with storage.mistakes_told(), storage.turn(plan.full_name):
            study = existing_study(plan.full_name, storage)
            if study is not None and not has_begun(study) and _differences(plan, study):
                # Nothing was tried: perhaps for a mistake that is mended now.
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
    with quiet_optuna(), storage.turn(plan.full_name):
        study = existing_study(plan.full_name, storage)
        if study is None:
            raise ZooError(f"the study {plan.full_name} is no longer in {storage.shown}")
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


def has_begun(study: Study) -> bool:
    """Tell whether a trial of the study was ever run."""
    return any(trial.state != TrialState.WAITING for trial in study.get_trials(deepcopy=False))


def seed_of(study: Study) -> int:
    """Return the seed from which all seeds of a study's trials come."""
    return int(study.user_attrs[SEED])


@contextlib.contextmanager
def quiet_optuna() -> Iterator[None]:
    """Keep Optuna from printing what we say ourselves, and that parts of it are experimental."""
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
        told = "; ".join(found[:5]) + (f"; and {len(found) - 5} more" if len(found) > 5 else "")
        raise ZooError(
            f"the study '{plan.name}' of {plan.algo} on {plan.env} was begun with other settings:"
            f" {one_line(told, 800)}. Another study: study=NAME"
        )


# -- warm starts ------------------------------------------------------------------------------------------


def _warm_start(plan: Plan) -> tuple[FirstTrials, list[str]]:
    """Return the trials to begin with, and what to say of them: as far as the space has their values."""
    setting, tuned = plan.config["warm_start"], plan.base["tuned"]
    if isinstance(setting, str):
        return _from_study(plan, setting)
    if not setting or tuned in (None, "none"):
        return [], []
    found, outside = plan.space.parameters_of(plan.base)
    drawn = f"; those of {', '.join(outside)} lie outside the space and are drawn" if outside else ""
    return [(found, str(tuned))], [f"first trial with the values of {tuned}{drawn}"]


def _from_study(plan: Plan, place: str) -> tuple[FirstTrials, list[str]]:
    """Let the first trials have the values of another study's best, as far as the space has them."""
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
        with contextlib.closing(storage) as other, other.mistakes_told():
            best = _best_of(other.optuna)
    except (ZooError, optuna.exceptions.OptunaError) as error:
        raise ZooError(f"warm_start={place}: {one_line(error)}") from error
    found = [(plan.space.of_this_space(trial.params), f"trial {trial.number} of {place}") for trial in best]
    first = [each for each in found if each[0]]
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
    """An Optuna study as one process sees it; ``worker`` is the name by which others know that process."""

    def __init__(self, study: Study, storage: Storage, n_trials: int, worker: str = "") -> None:
        self.study, self.storage, self.n_trials, self.worker = study, storage, n_trials, worker

    def trials(self) -> list[FrozenTrial]:
        """Return all trials, in the order in which they were claimed."""
        return self.study.get_trials(deepcopy=False)

    def turn(self) -> contextlib.AbstractContextManager[None]:
        """Keep all others who share the study waiting within the block."""
        return self.storage.turn(self.study.study_name)

    def run_next(
        self, objective: Callable[[Trial], Sequence[float]], ended: Callable[[FrozenTrial], None]
    ) -> bool:
        """Run a trial, of the queue or a new one; return False if there are as many as were asked for.

        ``ended`` takes it when it is complete, pruned or failed. An interrupted one goes into the queue again
        and the interruption is raised, as are `NoSuccessError` and what ``ended`` raises.
        """
        hopeless: list[NoSuccessError] = []
        with contextlib.ExitStack() as turn:
            turn.enter_context(self.turn())
            self.requeue_dead()
            if len(counted(self.trials())) >= self.n_trials:
                return False

            def run(trial: Trial) -> Sequence[float]:
                trial.set_user_attr(WORKER, self.worker)
                turn.close()
                try:
                    return objective(trial)
                except KeyboardInterrupt:
                    self._put_back(trial.number, RetryHeartbeatStaleTrialCallback())
                    trial.set_user_attr(REASON, "interrupted")
                    raise
                except optuna.TrialPruned as error:
                    trial.set_user_attr(REASON, str(error))
                    raise
                except Exception as error:
                    trial.set_user_attr(REASON, reason_of(error))
                    trial.set_user_attr(TRACEBACK, "".join(traceback.format_exception(error))[-4000:])
                    hopeless.extend([error] if isinstance(error, NoSuccessError) else [])
                    raise

            def after(study: Study, trial: FrozenTrial) -> None:
                if not hopeless:
                    ended(trial)

            self.study.optimize(run, n_trials=1, catch=(Exception,), callbacks=[after])
        if hopeless:
            raise hopeless[0]
        return True

    def requeue_dead(self) -> None:
        """Put the trials of processes that died into the queue again. Only in one's turn.

        Of a database these are known by their heartbeat, of a file by the lock that their process held.
        """
        optuna.storages.fail_stale_trials(self.study)
        if not self.storage.is_file:
            return
        for trial in self.trials():
            worker = str(trial.user_attrs.get(WORKER, ""))
            is_ours = worker == self.worker  # asking for our own lock would give it up
            if trial.state == TrialState.RUNNING and not (is_ours or is_locked(self.storage.lock_of(worker))):
                self._put_back(trial.number, _retry_of_dead())
                self.study.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)

    def is_over(self) -> bool:
        """Tell whether as many trials have ended as were asked for."""
        return n_ended(self.study) >= self.n_trials

    def is_anyone_running(self) -> bool:
        """Tell whether a trial is under way, in whatever process, after those of dead ones were put back."""
        with self.turn():
            self.requeue_dead()
            return any(trial.state == TrialState.RUNNING for trial in self.trials())

    def has_claimed(self, worker: str) -> bool:
        """Tell whether a process has claimed a trial."""
        return any(trial.user_attrs.get(WORKER) == worker for trial in self.trials())

    def failed_alike(self, since: float) -> FrozenTrial | None:
        """Return the latest trial if the last few that ended since then all failed, and for one reason."""
        ends = [(trial.datetime_complete, trial) for trial in counted(self.trials())]
        recent = [(end.timestamp(), trial) for end, trial in ends if end and end.timestamp() >= since]
        latest = [trial for _, trial in sorted(recent, key=lambda each: each[0])[-ALIKE:]]
        if len(latest) < ALIKE or any(trial.state != TrialState.FAIL for trial in latest):
            return None
        # An environment's own failure is told with its index and seed, which differ each time.
        reasons = {re.sub(r"\d+", "", str(trial.user_attrs.get(REASON, DIED))) for trial in latest}
        return latest[-1] if len(reasons) == 1 else None

    def _put_back(self, number: int, retry: RetryHeartbeatStaleTrialCallback) -> None:
        """Let a trial be run again with the same values, unless it is in the queue already."""
        trials = self.trials()
        if number not in _retried(trials):
            retry(self.study, next(trial for trial in trials if trial.number == number))


def counted(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """Return the trials that count: not those that wait, and not those that were put into the queue again."""
    retried = _retried(trials)
    return [trial for trial in trials if trial.state != TrialState.WAITING and trial.number not in retried]


def n_ended(study: Study) -> int:
    """Return how many of the trials that count have ended."""
    return sum(trial.state.is_finished() for trial in counted(study.get_trials(deepcopy=False)))


def goes_on_from(trial: FrozenTrial) -> int | None:
    """Return the number of the interrupted trial that this one is a repetition of."""
    history = _history(trial)
    return history[-1] if history else None


def _retried(trials: Sequence[FrozenTrial]) -> set[int]:
    return {number for trial in trials for number in _history(trial)}


def _history(trial: FrozenTrial) -> list[int]:
    """Return what `RetryHeartbeatStaleTrialCallback.retry_history` does, which warns at each call."""
    history: list[int] = trial.system_attrs.get("retry_history", [])
    return history


def _retry_of_dead() -> RetryHeartbeatStaleTrialCallback:
    """Return what runs the trial of a dead process again, but not for ever: it may be what kills them."""
    return RetryHeartbeatStaleTrialCallback(max_retry=MOST_RETRIES)


def new_worker_name() -> str:
    """Return a name that no other process has."""
    return f"{platform.node()}-{secrets.token_hex(6)}"


def reason_of(error: BaseException) -> str:
    """Return an exception on one line; of an environment's own, with its traceback, the ends."""
    text = first_and_last(error)
    return one_line(text if isinstance(error, ZooError) else f"{type(error).__name__}: {text}", 500)
