"""A study: its plan, where its trials are stored, how it begins or goes on, and how many processes share it.

Optuna stores the trials, claims each for one process, and in a database retries those whose process missed
its heartbeats. Added here: a lock around claiming, so that all processes together run exactly ``n_trials``,
and for storages in a file a lock file for each process, by which a killed one's trial is retried at once.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import optuna
import sqlalchemy
from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, JournalStorage, RDBStorage, RetryHeartbeatStaleTrialCallback
from optuna.storages.journal import JournalFileBackend
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState

from zoo.config.environment_values import as_written
from zoo.config.schema import TrainSettings
from zoo.config.sections import SECTIONS
from zoo.config.user_files import shown
from zoo.core.file_lock import FileLock, is_locked
from zoo.core.plain_data import flat
from zoo.core.printing import first_and_last, one_line, without_password
from zoo.envs.registry import folder_name
from zoo.envs.replay import random_seed
from zoo.errors import NotFiniteError, ZooError
from zoo.tuning.space import Config, Space

FREE = (
    *("resume", "job", "runs_dir", "progress_bar", "verbose", "device", "threads", "compile"),
    *("tuned", "seed", "logger", "callbacks.checkpoint"),
)
"""Settings of a training that may change between two commands on one study."""

SETTINGS, SEED = "settings", "seed"
"""Attributes of a study."""

ORIGIN, PROCESS, REASON, TRACEBACK, DIVERGED = "origin", "worker", "reason", "traceback", "diverged"
"""Attributes of a trial: where its values came from, who ran it, why it ended, and the traceback."""

DIED = "its process died"

JOURNAL_SUFFIXES = (".journal", ".log")
SQLITE_SUFFIXES = (".db", ".sqlite", ".sqlite3")

SQLITE_TIMEOUT = 60
"""Seconds that SQLite waits for another process's write."""

TABLE_TRIES = 6
"""How often a process tries to make the tables of a database, which others make at the same time."""

HEARTBEAT, GRACE = 15, 60
"""Seconds between a trial's signs of life in a database, and without one until it is run again."""

MOST_RETRIES = 3
"""How often the trial of a process that died is run again."""


class Plan:
    """A study as the checked config of `zoo tune` describes it, as plain data. Raises `ZooError`."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = dict(config)
        training = {"algo", "callbacks", "logger", *SECTIONS, *(f.name for f in fields(TrainSettings))}
        self.base: Config = {key: value for key, value in config.items() if key in training}
        self.algo = str(config["algo"].get("preset") or config["algo"]["name"])
        self.env = str(config["env"]["id"])
        self.name, self.objective = str(config["study"]), str(config["objective"])
        self.full_name = f"{self.algo}/{self.env}/{self.name}"
        self.folder = Path(config["runs_dir"], "tune", self.algo, folder_name(self.env), self.name)
        self.space = Space(config.get("space") or {}, config["fixed"])
        self.n_seeds, self.n_timesteps = int(config["n_seeds"]), int(config["n_timesteps"])
        self.timeout = _seconds(config["timeout"])
        """Seconds after which no trial starts; None: no limit."""
        every: int | None = self.base["callbacks"].get("eval") and self.base["callbacks"]["eval"]["every"]
        self.interval = every or max(1, self.n_timesteps // int(config["n_evaluations"]))
        """Environment steps between the evaluations of a training."""

    def check(self) -> None:
        """Raise `ZooError` for settings that would fail in every trial."""
        if not re.fullmatch(r"\w[\w.-]{0,99}", self.name):
            raise ZooError(f"`study={self.name}` is not a name; expected letters, digits, dots and dashes")
        for key in ("resume", "job"):
            if self.config[key] is not None:
                raise ZooError(f"`{key}` can't be set: zoo tune goes on with a study by the same command")
        if self.config["n_jobs"] == 0:
            raise ZooError("`n_jobs=0` is neither -1 (one a core) nor at least 1")
        if self.base["callbacks"].get("eval") is None:
            raise ZooError("`callbacks.eval` is switched off: without evaluations no trial has a score")
        self.space.check(self.base)

    def settings(self) -> dict[str, Any]:
        """Return the settings that two commands on one study must share, as JSON stores them."""
        base = {
            path: value
            for path, value in flat(as_written(self.base))
            if path not in self.space.dimensions
            and not any(f"{path}.".startswith(f"{free}.") for free in FREE)
        }
        space = {f"space.{path}": repr(dimension) for path, dimension in self.space.dimensions.items()}
        others = {"objective": self.objective, "n_seeds": self.n_seeds, "callbacks.eval.every": self.interval}
        plain: dict[str, Any] = json.loads(json.dumps({**base, **others, **space}, default=str))
        return plain

    def config_of_trial(self, values: Mapping[str, Any], seed: int, runs_dir: Path) -> Config:
        """Return the config of one training. Raises `ZooError` for values that don't go together."""
        config = self.space.config_with(self.base, dict(values))
        callbacks = {**config["callbacks"], "eval": {**config["callbacks"]["eval"], "every": self.interval}}
        quiet = {"progress_bar": False, "verbose": 0}
        return {**config, **quiet, "callbacks": callbacks, "seed": seed, "runs_dir": str(runs_dir)}


def _seconds(time: int | str | None) -> float | None:
    if not isinstance(time, str):
        return time
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?(s|sec|min|m|h)", time.strip())
    if match is None or not float(match[1]):
        raise ZooError(f"`timeout={time}` is not a time; expected seconds, 30min or 2h")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2][0]]


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


@dataclass
class Storage:
    """An open storage of Optuna's."""

    optuna: BaseStorage
    name: str
    """Its path, or its URL without the password."""
    locks: Path
    """Folder of the lock files of the processes that share it."""
    is_file: bool = True

    def lock(self) -> FileLock:
        """Return the lock that one of the processes which share the folder holds at a time."""
        return FileLock(self.locks / "turn.lock")

    def process_lock(self, process: str) -> Path:
        """Return the file that a process holds locked while it works on a study."""
        return self.locks / f"{process}.lock"


@quiet_optuna()
def open_storage(plan: Plan) -> Storage:
    """Open the storage that the setting ``storage`` names. Raises `ZooError`."""
    setting = plan.config["storage"]
    is_file = setting is None or "://" not in (setting := setting.removeprefix("sqlite:///"))
    try:
        file = _file(setting, plan.folder) if is_file else Path()
        name = shown(file) if is_file else without_password(setting)
        locks = file.with_name(f"{file.name}.workers") if is_file else plan.folder / "workers"
        locks.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ZooError(f"can't write into {error.filename}: {error.strerror or error}") from error
    with FileLock(locks / "turn.lock"):  # SQLite fails if two processes make the tables at once
        if not is_file:
            stale = RetryHeartbeatStaleTrialCallback(max_retry=MOST_RETRIES)
            beats: dict[str, Any] = {"heartbeat_interval": HEARTBEAT, "grace_period": GRACE}
            beats |= {"heartbeat_stale_trial_callback": stale, "engine_kwargs": {"pool_pre_ping": True}}
            return Storage(_rdb(setting, name, **beats), name, locks, is_file=False)
        if file.suffix in JOURNAL_SUFFIXES:
            # Optuna's own lock stays behind when its holder is killed.
            lock: Any = FileLock(locks / "journal.lock")
            return Storage(JournalStorage(JournalFileBackend(str(file), lock)), name, locks)
        patience = {"connect_args": {"timeout": SQLITE_TIMEOUT}}
        return Storage(_rdb(f"sqlite:///{file}", name, engine_kwargs=patience), name, locks)


def _file(setting: str | None, folder: Path) -> Path:
    if setting in (None, "journal"):
        return (folder / f"study.{setting or 'db'}").absolute()
    path = Path(str(setting)).expanduser().absolute()
    if path.suffix not in (*JOURNAL_SUFFIXES, *SQLITE_SUFFIXES) or path.is_dir() or not path.parent.is_dir():
        endings = ", ".join((*SQLITE_SUFFIXES, *JOURNAL_SUFFIXES))
        raise ZooError(
            f"`storage={setting}` is neither a file ({endings}) in a folder that is there, nor journal, nor a"
            " database's URL (postgresql+psycopg://user:password@host/name)"
        )
    return path


def _rdb(url: str, name: str, **options: Any) -> RDBStorage:
    try:
        for _ in range(TABLE_TRIES):
            # Of several processes that make the tables of a new database at once, one succeeds.
            with contextlib.suppress(sqlalchemy.exc.IntegrityError, sqlalchemy.exc.ProgrammingError):
                return RDBStorage(url, **options)
            time.sleep(0.5)
        return RDBStorage(url, **options)
    except ImportError as error:
        reason = one_line(error.__cause__ or error)
        needs = "pip install 'psycopg[binary]' for PostgreSQL"
        raise ZooError(f"the storage {name} needs a database driver ({reason}): {needs}") from error
    except (sqlalchemy.exc.SQLAlchemyError, StorageInternalError, RuntimeError, ValueError) as error:
        cause = error.__cause__ or error
        reason = without_password(one_line(getattr(cause, "orig", None) or cause)).rstrip(".")
        raise ZooError(f"can't reach the storage {name}: {reason}") from error


def open_study(plan: Plan) -> tuple[SharedStudy, list[str]]:
    """Begin the study, or go on with it; return it, and remarks for the user. Raises `ZooError`."""
    storage = open_storage(plan)
    with quiet_optuna(), storage.lock():
        study = existing_study(plan.full_name, storage)
        for _ in range(TABLE_TRIES):  # another machine may be about to write down the settings
            if study is not None and SETTINGS not in study.user_attrs:
                time.sleep(0.5)
        if study is not None and not counted(study.get_trials()) and _differences(plan, study):
            # No trial was run yet, so nothing is lost with the old settings.
            optuna.delete_study(study_name=plan.full_name, storage=storage.optuna)
            study = None
        if study is None:
            try:
                study, remarks = _begin(plan, storage)
            except optuna.exceptions.DuplicatedStudyError:  # another machine has begun it meanwhile
                return open_study(plan)
        else:
            check_settings(plan, study)
            remarks = [f"goes on: {n_ended(study)} of {plan.config['n_trials']} trials are done"]
        return SharedStudy(study, storage, plan.config["n_trials"]), remarks


def existing_study(name: str, storage: Storage) -> Study | None:
    """Return a study by its name, None if there is none."""
    with contextlib.suppress(KeyError):
        return optuna.load_study(study_name=name, storage=storage.optuna)
    return None


def seed_of(study: Study) -> int:
    """Return the seed from which all seeds of a study's trials come."""
    return int(study.user_attrs[SEED])


def _begin(plan: Plan, storage: Storage) -> tuple[Study, list[str]]:
    """Create the study; its first trial has the values of the tuned file, if there is one."""
    study = optuna.create_study(study_name=plan.full_name, storage=storage.optuna, direction="maximize")
    seed, tuned = plan.base["seed"], plan.base["tuned"]
    study.set_user_attr(SEED, random_seed(seed))
    study.set_user_attr(SETTINGS, plan.settings())
    study.set_metric_names([plan.objective])
    if not plan.config["warm_start"] or tuned in (None, "none"):
        return study, []
    parameters, outside = plan.space.parameters_of(plan.base)
    study.enqueue_trial(parameters, user_attrs={ORIGIN: str(tuned)})
    drawn = f"; those of {', '.join(outside)} lie outside the space and are drawn" if outside else ""
    return study, [f"first trial with the values of {tuned}{drawn}"]


def _differences(plan: Plan, study: Study) -> str:
    """Return the settings that differ from the stored study's as text, "" for none."""
    now, saved = plan.settings(), study.user_attrs[SETTINGS]
    seed = plan.base["seed"]
    now["seed"], saved["seed"] = (seed_of(study) if seed is None else seed), seed_of(study)
    keys = [key for key in sorted(now.keys() | saved.keys()) if now.get(key) != saved.get(key)]
    texts = [f"`{key}` is {now.get(key, 'not set')} (the study has {saved.get(key, 'none')})" for key in keys]
    return one_line("; ".join(texts), 800)


def check_settings(plan: Plan, study: Study) -> None:
    """Raise `ZooError` for a study that was begun with other settings."""
    changes = _differences(plan, study)
    if changes:
        raise ZooError(
            f"the study '{plan.name}' of {plan.algo} on {plan.env} was begun with other settings: {changes}."
            " Another study: study=NAME"
        )


class SharedStudy:
    """An Optuna study that several processes work on; ``process`` is the name of this process."""

    def __init__(self, study: Study, storage: Storage, n_trials: int, process: str = "") -> None:
        self.study, self.storage, self.n_trials, self.process = study, storage, n_trials, process

    def trials(self) -> list[FrozenTrial]:
        """Return all trials in the order of their numbers."""
        return self.study.get_trials(deepcopy=False)

    def run_next(self, objective: Callable[[Trial], float], on_end: Callable[[FrozenTrial], None]) -> bool:
        """Run a trial, queued or new; return False if ``n_trials`` are claimed already.

        ``on_end`` is called with it when it is complete, pruned or failed. An interrupted one is queued again
        and the interruption is raised, as is what ``on_end`` raises.
        """
        with contextlib.ExitStack() as lock:
            lock.enter_context(self.storage.lock())
            self._requeue_dead()
            if len(counted(self.trials())) >= self.n_trials:
                return False

            def run(trial: Trial) -> float:
                trial.set_user_attr(PROCESS, self.process)
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
                    trial.set_user_attr(DIVERGED, isinstance(error, NotFiniteError))
                    trial.set_user_attr(TRACEBACK, "".join(traceback.format_exception(error))[-4000:])
                    raise

            self.study.optimize(
                run, n_trials=1, catch=(Exception,), callbacks=[lambda study, trial: on_end(trial)]
            )
        return True

    def _requeue_dead(self) -> None:
        """Queue the trials of dead processes again; the lock is held.

        In a database a dead process is known by its heartbeat, in a file by its lock, which nobody holds.
        """
        optuna.storages.fail_stale_trials(self.study)
        if not self.storage.is_file:
            return
        for trial in self.trials():
            process = str(trial.user_attrs.get(PROCESS, ""))
            if trial.state != TrialState.RUNNING or process == self.process:  # closing our own lock frees it
                continue
            if not is_locked(self.storage.process_lock(process)):
                self._requeue(trial.number, RetryHeartbeatStaleTrialCallback(max_retry=MOST_RETRIES))
                self.study.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)

    def _requeue(self, number: int, retry: RetryHeartbeatStaleTrialCallback) -> None:
        """Queue a trial's values again, unless they are queued already."""
        trials = self.trials()
        if number not in _retried(trials):
            retry(self.study, next(trial for trial in trials if trial.number == number))

    def is_over(self) -> bool:
        """Tell whether ``n_trials`` have ended."""
        return n_ended(self.study) >= self.n_trials

    def is_anyone_running(self) -> bool:
        """Tell whether a living process runs a trial."""
        with self.storage.lock():
            self._requeue_dead()
            return any(trial.state == TrialState.RUNNING for trial in self.trials())


def counted(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """Return the trials that count towards ``n_trials``: neither waiting nor queued again."""
    retried = _retried(trials)
    return [trial for trial in trials if trial.state != TrialState.WAITING and trial.number not in retried]


def n_ended(study: Study) -> int:
    """Return how many of the trials that count have ended."""
    return sum(trial.state.is_finished() for trial in counted(study.get_trials(deepcopy=False)))


def retry_of(trial: FrozenTrial) -> int | None:
    """Return the number of the interrupted trial that this one repeats."""
    return next(reversed(_history(trial)), None)


def _history(trial: FrozenTrial) -> list[int]:
    # As `RetryHeartbeatStaleTrialCallback.retry_history` reads it, which warns at each call.
    return list(trial.system_attrs.get("retry_history", ()))


def _retried(trials: Sequence[FrozenTrial]) -> set[int]:
    return {number for trial in trials for number in _history(trial)}


def reason_of(error: BaseException) -> str:
    """Return an exception on one line; of a long one, such as an environment's traceback, start and end."""
    text = first_and_last(error)
    return one_line(text if isinstance(error, ZooError) else f"{type(error).__name__}: {text}", 500)
