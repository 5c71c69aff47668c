"""A study's SQLite file from anybody: nothing in it computes, and it leads SQLite to no other file."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
from pathlib import Path
from typing import Any

from zoo.config.paths import shown
from zoo.errors import ZooError
from zoo.files.opening import TEXT_LIMIT, open_regular, refuse_holes
from zoo.files.printing import one_line

SECONDS_FOR_A_LOCK = 60
"""How long SQLite waits for another process that writes."""

SCHEMA_LIMIT = 1_000, 10_000
"""Tables and indices that a study may have, and characters that one may be described with."""

_NAMES_ANOTHER_FILE = bytes.fromhex("d9d505f920a163d7")
"""The end of a journal that names a super-journal (https://sqlite.org/fileformat2.html, section 3)."""

_NAME = r'(?:"[a-z_]\w*"|[a-z_]\w*)'
_NAMES = rf"\( ?{_NAME}(?:, ?{_NAME})* ?\)"
_CONSTRAINT = rf"(?:constraint {_NAME} )?"
_INDEX = re.compile(rf"create (?:unique )?index {_NAME} on {_NAME} ?{_NAMES}", re.IGNORECASE | re.ASCII)
_TABLE = re.compile(rf"create table {_NAME} ?\((.*)\)", re.IGNORECASE | re.ASCII)
_PART = re.compile(
    rf"{_CONSTRAINT}(?:primary key|unique) ?{_NAMES}"
    rf"|{_CONSTRAINT}foreign key ?{_NAMES} references {_NAME} ?{_NAMES}(?: on (?:delete|update) [a-z ]+)*"
    rf"|{_CONSTRAINT}check ?\( ?{_NAME} ?(?:= ?\d+|in \('\w*'(?:, ?'\w*')*\)) ?\)"
    rf"|{_NAME}(?: (?:[a-z]\w*(?: ?\(\d+(?:, ?\d+)?\))?|'\w*'|-?\d+))*",
    re.IGNORECASE | re.ASCII,
)
"""A column, or a constraint, that computes nothing: between brackets are only names, numbers and texts."""


class BoundedConnection(sqlite3.Connection):
    """A connection that reads no text and no row above `TEXT_LIMIT`; before Python 3.11 of any length."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if hasattr(self, "setlimit"):
            self.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, TEXT_LIMIT)


def read_only(file: Path) -> sqlite3.Connection:
    """Return a connection that writes nothing."""
    address = f"{file.absolute().as_uri()}?mode=ro"
    return sqlite3.connect(
        address, uri=True, timeout=SECONDS_FOR_A_LOCK, check_same_thread=False, factory=BoundedConnection
    )


def _read_write(file: Path) -> sqlite3.Connection:
    return sqlite3.connect(file, timeout=SECONDS_FOR_A_LOCK, factory=BoundedConnection)


def refuse_journal_of_others(file: Path) -> None:
    """Raise `ZooError` for a rollback journal beside the file that names one more file.

    To be asked before anything connects: whoever does first takes back what a killed process left half done,
    and SQLite reads and deletes the file that the end of its journal names.
    """
    journal = Path(f"{file}-journal")
    try:
        with open_regular(journal, follow_links=False) as opened:
            size = os.fstat(opened.fileno()).st_size
            end = os.pread(opened.fileno(), len(_NAMES_ANOTHER_FILE), max(0, size - len(_NAMES_ANOTHER_FILE)))
    except FileNotFoundError:
        return
    if end == _NAMES_ANOTHER_FILE:
        raise ZooError(
            f"{one_line(shown(journal), 1000)} names another file, which SQLite would delete;"
            " no study leaves such a journal"
        )


def refuse_programs(file: Path, place: str, *, writes: bool) -> None:
    """Raise `ZooError` for a database with more in it than plain tables: what computes may never end.

    Nor does one in which tables share pages: a few of them can be rows without number. With ``writes`` what a
    killed process left half done is taken back first.
    """
    try:
        with open_regular(file) as opened:
            refuse_holes(os.fstat(opened.fileno()), place)
        with contextlib.closing(_read_write(file) if writes else read_only(file)) as database:
            tables, length = SCHEMA_LIMIT
            entries = database.execute("SELECT type, name, sql FROM sqlite_master").fetchmany(tables + 1)
            if len(entries) > tables:
                raise ZooError(f"{place} is no study: it has more than {tables:,} tables")
            for kind, name, sql in entries:
                if not _is_plain(str(kind), sql, length):
                    what = f"its `{one_line(name, 60)}` is no plain table ({one_line(kind)})"
                    raise ZooError(f"{place} is no study: {what}")
            (found,) = database.execute("PRAGMA quick_check(1)").fetchone()
            if found != "ok":
                raise ZooError(f"{place} is damaged: {one_line(found)}")
    except sqlite3.Error as error:
        raise ZooError(f"can't reach the storage {place}: {one_line(error)}") from error


def _is_plain(kind: str, sql: Any, length: int) -> bool:
    if kind == "index" and sql is None:  # SQLite's own, for UNIQUE
        return True
    if kind not in ("table", "index") or not isinstance(sql, str) or len(sql) > length:
        return False
    text = " ".join(sql.split())
    if kind == "index":
        return _INDEX.fullmatch(text) is not None
    table = _TABLE.fullmatch(text)
    return table is not None and all(map(_PART.fullmatch, _parts(table[1])))


def _parts(text: str) -> list[str]:
    """Return what stands between the commas that are within no brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]
