"""A study's SQLite file of a stranger computes nothing, and leads SQLite to no other file."""

from __future__ import annotations

import os
import sqlite3
import struct
import sys
from pathlib import Path

import pytest
from small_studies import begun
from studies_of_others import STUDY, change, stored

from zoo.errors import ZooError


def rewritten(statement: str, *values: object) -> Path:
    """Put a study there whose description of its own tables somebody has written."""
    stored()
    with sqlite3.connect(STUDY / "study.db") as database:
        database.execute("PRAGMA writable_schema = ON")
        assert database.execute(statement, values).rowcount
    database.close()
    return STUDY / "study.db"


BLOB = "hex(zeroblob(9))"
NAME = "study_name VARCHAR(512) NOT NULL"


@pytest.mark.parametrize("setting", ["warm_start", "storage"])
@pytest.mark.parametrize(
    "column",
    [
        f"study_name TEXT AS/**/({BLOB})",
        f"study_name TEXT GENERATED ALWAYS/**/AS ({BLOB})",
        f"{NAME} CHECK(length({BLOB}) > 0)",
        f"{NAME}, CHECK(length({BLOB}) > 0)",
        f"{NAME}, CONSTRAINT a CHECK (study_name IN ('x', {BLOB}))",
        f"{NAME}, more TEXT DEFAULT ({BLOB})",
        f"{NAME} -- a remark\n",
    ],
)
def test_column_that_computes_is_refused(setting: str, column: str) -> None:
    file = rewritten("UPDATE sqlite_master SET sql = replace(sql, ?, ?) WHERE name = 'studies'", NAME, column)
    name = "study=other" if setting == "warm_start" else "study=default"
    with pytest.raises(ZooError, match=r"its `studies` is no plain table|malformed"):
        begun(f"{setting}={file}", name)


@pytest.mark.parametrize(
    "index",
    [
        "(length(hex(zeroblob(9))))",
        "(study_id, length(study_name))",
        "(study_id) WHERE study_name LIKE '%a%b'",
    ],
)
def test_index_that_computes_is_refused(index: str) -> None:
    stored()
    change(f"CREATE INDEX more ON studies {index}")
    with pytest.raises(ZooError, match="its `more` is no plain table"):
        begun(f"storage={STUDY / 'study.db'}")


def test_tables_that_earlier_releases_of_optuna_left_are_plain() -> None:
    stored()
    for each in (
        "CREATE TABLE a (d VARCHAR(8), v FLOAT(53), CONSTRAINT d CHECK (d IN ('NOT_SET', 'MINIMIZE')))",
        "CREATE TABLE b (i INTEGER NOT NULL, \"key\" TEXT DEFAULT 'FINITE' NOT NULL, UNIQUE (i))",
        "CREATE TABLE c (v NUMERIC(5, 2) DEFAULT 0, i INTEGER REFERENCES b, FOREIGN KEY(i) REFERENCES b (i)"
        " ON DELETE CASCADE)",
    ):
        with sqlite3.connect(STUDY / "study.db") as database:
            database.execute(each)
        database.close()
    assert begun("n_trials=1", "sampler=random").shared.trials()


@pytest.mark.skipif(sys.version_info < (3, 11), reason="SQLite is given no limit there")
def test_text_that_is_too_long_is_refused() -> None:
    stored()
    change("UPDATE studies SET study_name = hex(zeroblob(9000000))")
    with pytest.raises(ZooError, match="exceeding max length") as raised:
        begun(f"warm_start={STUDY / 'study.db'}", "study=second")
    assert len(str(raised.value)) < 300


def test_pages_that_belong_to_two_tables_are_refused() -> None:
    file = rewritten(
        "UPDATE sqlite_master SET rootpage = (SELECT rootpage FROM sqlite_master WHERE name = 'studies')"
        " WHERE name = 'trials'"
    )
    with pytest.raises(ZooError, match=r"study\.db is damaged: "):
        begun(f"storage={file}")


@pytest.fixture
def letter(tmp_path: Path) -> Path:
    """Somebody's own file, which a half-done transaction of `study.db` names as its super-journal."""
    stored()
    letter = tmp_path / "letter.txt"
    letter.write_text("kept")
    file = STUDY / "study.db"
    _killed_while_it_writes(file)
    name, journal = str(letter).encode(), Path(f"{file}-journal")
    content = journal.read_bytes()
    (page,) = struct.unpack(">I", content[24:28])
    record = struct.pack(">I", 2**30 // page + 1) + name
    record += struct.pack(">II", len(name), sum(name)) + bytes.fromhex("d9d505f920a163d7")
    journal.write_bytes(content + record)
    return letter


def _killed_while_it_writes(file: Path) -> None:
    child = os.fork()
    if child == 0:
        database = sqlite3.connect(file, isolation_level=None)
        database.execute("PRAGMA cache_size = 1")
        database.execute("BEGIN IMMEDIATE")
        database.execute("CREATE TABLE more (a)")
        database.executemany("INSERT INTO more VALUES (hex(randomblob(500)))", [()] * 3000)
        os._exit(0)
    os.waitpid(child, 0)
    assert Path(f"{file}-journal").stat().st_size > 0


@pytest.mark.parametrize("setting", ["warm_start={}", "storage={}", None])
def test_journal_that_names_a_file_of_the_user_deletes_nothing(letter: Path, setting: str | None) -> None:
    name = ["study=other"] if str(setting).startswith("warm") else []
    with pytest.raises(ZooError, match="names another file, which SQLite would delete"):
        begun(*([] if setting is None else [setting.format(STUDY / "study.db")]), *name)
    assert letter.read_text() == "kept"


def test_journal_of_a_killed_process_is_rolled_back() -> None:
    stored()
    _killed_while_it_writes(STUDY / "study.db")
    assert begun("n_trials=1", "sampler=random").shared.trials()
    with sqlite3.connect(STUDY / "study.db") as database:
        assert not database.execute("SELECT * FROM sqlite_master WHERE name = 'more'").fetchall()
    database.close()


@pytest.mark.parametrize("kind", ["link", "pipe"])
@pytest.mark.parametrize("name", ["study.db", "study.db-journal", "study.db-wal", "study.db-shm"])
def test_warm_start_reads_through_no_links_nor_pipes(tmp_path: Path, name: str, kind: str) -> None:
    stored()
    place = STUDY / name
    if place.exists():
        place.rename(tmp_path / "other.db")
    if kind == "pipe":
        os.mkfifo(place)
    else:
        place.symlink_to(tmp_path / "other.db")
    with pytest.raises(ZooError, match=r"is a (link|named pipe)|there is no study"):
        begun(f"warm_start={STUDY}", "study=second")
