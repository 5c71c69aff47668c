"""Where a study's trials are kept: a SQLite file, a journal file, or a database on a server.

A storage also says where its lock is, by which the processes that share a study take turns, and how one that
died is known: on files by a lock that dies with it, on a server by its heartbeat.
"""

from __future__ import annotations

import contextlib
import fnmatch
import glob
import hashlib
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.config.paths import shown
from zoo.errors import ZooError
from zoo.files import atomic
from zoo.files.file_lock import FileLock
from zoo.files.opening import unusual
from zoo.files.printing import one_line, without_password
from zoo.tuning.sqlite_files import (
    SECONDS_FOR_A_LOCK,
    BoundedConnection,
    read_only,
    refuse_journal_of_others,
    refuse_programs,
)
from zoo.tuning.stored import DAMAGED, unreadable

if TYPE_CHECKING:
    from optuna.storages import BaseStorage, RDBStorage

JOURNAL = "journal"
JOURNAL_SUFFIXES = (".journal", ".log")
SQLITE_SUFFIXES = (".db", ".sqlite", ".sqlite3")

SECONDS_TO_CONNECT = 10
"""How long a server may take to answer."""

MISSED_HEARTBEATS = 4


@dataclass
class Storage:
    """An open storage. ``workers`` is the folder of the locks of those who share it."""

    optuna: BaseStorage
    shown: str
    """What to call it in messages: a path, or a URL without its password."""
    workers: Path
    server: RDBStorage | None = None
    """The storage itself, if processes may share it that don't see each other's files."""
    file: Path | None = None

    def close(self) -> None:
        """Close the database; what is asked of it afterwards opens it again."""
        from optuna.storages import RDBStorage

        if isinstance(self.optuna, RDBStorage):
            self.optuna.remove_session()
            self.optuna.engine.dispose()

    @contextlib.contextmanager
    def mistakes_told(self) -> Iterator[None]:
        """Raise `ZooError`, in one line, for a storage that can't be reached or written any more."""
        import sqlalchemy
        from optuna.exceptions import StorageInternalError

        try:
            yield
        except (StorageInternalError, sqlalchemy.exc.SQLAlchemyError) as error:
            reason = _reason(error.__cause__ if isinstance(error.__cause__, Exception) else error)
            raise ZooError(f"can't go on with the storage {self.shown}: {reason}") from error

    @contextlib.contextmanager
    def lock(self, study: str) -> Iterator[None]:
        """Keep all others who share the study waiting within the block."""
        if self.server is not None and self.server.engine.dialect.name == "postgresql":
            with _advisory_lock(self.server, study):
                yield
            return
        with FileLock(self.workers / "turn.lock"):
            yield


def open_storage(setting: str | None, folder: Path, heartbeat: int) -> Storage:
    """Open the storage that the setting ``storage`` names; ``folder`` is the study's.

    Raises `ZooError` in one line, without any password, for one that can't be reached.
    """
    try:
        _refuse_unusual(folder, "*")
        if setting is not None and "://" in setting:
            return _database(setting, folder, heartbeat)
        return _on_file(_file(setting, folder))
    except OSError as error:
        raise ZooError(f"can't write into {error.filename}: {error.strerror or error}") from error


def _refuse_unusual(folder: Path, names: str) -> None:
    """Raise `ZooError` for a link, a pipe or a device at these names of a folder, perhaps a stranger's."""
    if not folder.is_dir():
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            what = unusual(entry.stat(follow_symlinks=False))
            if what is not None and fnmatch.fnmatch(entry.name, names):
                raise ZooError(
                    f"{one_line(shown(folder / entry.name), 1000)} is {what}; name the place itself"
                )


def _on_file(file: Path) -> Storage:
    _refuse_unusual(file.parent, f"{glob.escape(file.name)}*")
    if file.suffix in JOURNAL_SUFFIXES:
        _refuse_other_files(file)
    atomic.make_folder(file.parent)
    workers = file.with_name(f"{file.name}.workers")
    atomic.make_folder(workers)
    if file.suffix in JOURNAL_SUFFIXES:
        return Storage(_journal(file, workers, is_ours=True), shown(file), workers, file=file)
    refuse_journal_of_others(file)
    if file.exists():
        refuse_programs(file, shown(file), writes=True)
    with FileLock(workers / "turn.lock"):  # two that make its tables at once would fail
        return Storage(_rdb(f"sqlite:///{file}", shown(file)), shown(file), workers, file=file)


def open_existing(place: str) -> Storage:
    """Open another study's storage, given by its file or the study's folder, only to read it."""
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
    _refuse_unusual(file.parent, f"{glob.escape(file.name)}*")
    if file.suffix in JOURNAL_SUFFIXES:
        return Storage(_journal(file, file.parent, is_ours=False), shown(file), file.parent)
    refuse_journal_of_others(file)
    return Storage(_rdb(f"sqlite:///{file}", shown(file), only_read=file), shown(file), file.parent)


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


def _refuse_other_files(file: Path) -> None:
    """Raise `ZooError` for a file that is no journal, before anything is written beside it."""
    from optuna.exceptions import StorageInternalError

    from zoo.tuning.journal import refuse_other_files

    try:
        with open(file, "rb") as opened:
            refuse_other_files(opened)
    except FileNotFoundError:
        return
    except StorageInternalError as error:
        raise ZooError(f"can't open the journal {shown(file)}: {error}") from error


def _journal(file: Path, workers: Path, *, is_ours: bool) -> BaseStorage:
    from optuna.exceptions import StorageInternalError
    from optuna.storages import JournalStorage

    from zoo.tuning.journal import Journal

    try:
        with _no_warnings():
            journal = Journal(file, FileLock(workers / "journal.lock"))
            if is_ours:
                journal.mend()
            return JournalStorage(journal)
    except (StorageInternalError, *DAMAGED) as error:
        raise ZooError(f"can't open the journal {shown(file)}: {unreadable(error)}") from error


def _database(url: str, folder: Path, heartbeat: int) -> Storage:
    if url.startswith("sqlite"):
        raise ZooError(f"`storage={url}`: a SQLite file is named by its path: storage=PATH.db")
    masked = without_password(url)
    storage = _rdb(url, masked, heartbeat)
    workers = folder / "workers"
    atomic.make_folder(workers)
    return Storage(storage, masked, workers, storage)


def _rdb(url: str, masked: str, heartbeat: int | None = None, only_read: Path | None = None) -> RDBStorage:
    import sqlalchemy
    from optuna.exceptions import StorageInternalError
    from optuna.storages import RDBStorage

    is_file = url.startswith("sqlite")
    options: dict[str, Any] = {} if is_file else {"pool_pre_ping": True}
    if is_file:
        options["connect_args"] = {"timeout": SECONDS_FOR_A_LOCK, "factory": BoundedConnection}
    if only_read is not None:
        refuse_programs(only_read, masked, writes=False)
        options["creator"] = lambda: read_only(only_read)
    elif url.startswith("postgresql"):
        options["connect_args"] = {"connect_timeout": SECONDS_TO_CONNECT}
    patience = None if heartbeat is None else MISSED_HEARTBEATS * heartbeat
    try:
        with _no_warnings():
            return RDBStorage(url, engine_kwargs=options, heartbeat_interval=heartbeat, grace_period=patience)
    except ImportError as error:
        reason = one_line(error.__cause__ or error)
        install = "pip install 'psycopg[binary]' for PostgreSQL"
        raise ZooError(f"the storage {masked} needs a database driver ({reason}): {install}") from error
    except sqlalchemy.exc.NoSuchModuleError as error:
        raise ZooError(f"the storage {masked} is of an unknown kind: {one_line(error)}") from error
    except (sqlalchemy.exc.SQLAlchemyError, StorageInternalError, *DAMAGED) as error:
        raise ZooError(f"can't reach the storage {masked}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """Return what a database says went wrong, on one line and without any password."""
    original = getattr(error, "orig", None) or getattr(error, "strerror", None) or error
    return without_password(one_line(original)).rstrip(".")


@contextlib.contextmanager
def _advisory_lock(server: RDBStorage, name: str) -> Iterator[None]:
    """Hold PostgreSQL's lock of that name; it is given up when the connection ends, however that comes."""
    from sqlalchemy import text

    digest = hashlib.sha256(name.encode()).digest()
    key = {"key": int.from_bytes(digest[:8], "big", signed=True)}
    with server.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("SELECT pg_advisory_lock(:key)"), key)
        try:
            yield
        finally:
            connection.execute(text("SELECT pg_advisory_unlock(:key)"), key)


@contextlib.contextmanager
def _no_warnings() -> Iterator[None]:
    """Leave out that Optuna's heartbeats are experimental."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
