"""What a power cut, a full disk or a lost server does to a study: told in one line, and nothing is lost."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from small_studies import config_of

from zoo.errors import ZooError
from zoo.tuning.study import quiet_optuna
from zoo.tuning.tune import Search, search

JOURNAL = Path("runs/tune/a2c/CartPole-v1/default/study.journal")


Limit = Callable[[int], contextlib.AbstractContextManager[None]]


def claimed(found: Search) -> int:
    with quiet_optuna(), found.shared.joined("somebody-1"):
        trial = found.shared.claim()
        assert trial is not None
        found.shared.finish(trial, [1.0])
        return trial.number


def whole_lines() -> int:
    text = JOURNAL.read_text()
    assert not text or text.endswith("\n")
    return len([json.loads(line) for line in text.splitlines()])


def test_half_a_line_at_the_end_of_a_journal_loses_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    config = config_of("storage=journal", "n_trials=5")
    first = search(config)
    assert claimed(first) == 0
    n_lines = whole_lines()
    with JOURNAL.open("a") as file:
        file.write('{"op_code":6,"worker_id":"')
    found = search(config)
    assert found.remarks == ["goes on: 1 of 5 trials are done"]
    assert whole_lines() == n_lines + 1, "that another command takes part"
    with JOURNAL.open("a") as file:
        file.write('{"op')
    assert [claimed(first), claimed(found)] == [1, 2]
    assert whole_lines() > n_lines
    told = capfd.readouterr().err.splitlines()
    assert told == [f"zoo: {JOURNAL}: its last entry was not written to its end, and is left out"] * 2


def test_journal_on_a_full_disk_is_told_in_one_line_and_stays_whole(no_larger_files: Limit) -> None:
    config = config_of("storage=journal", "n_trials=5")
    with no_larger_files(10), pytest.raises(ZooError, match=r"study\.journal: File too large"):
        search(config)
    found = search(config)
    n_lines = whole_lines()
    too_large = pytest.raises(ZooError, match="File too large")
    with no_larger_files(JOURNAL.stat().st_size + 10), too_large, found.shared.storage.mistakes_told():
        claimed(found)
    assert whole_lines() == n_lines
    assert claimed(search(config)) == 0


def test_database_on_a_full_disk_is_told_in_one_line(no_larger_files: Limit) -> None:
    found = search(config_of("n_trials=1"))
    told = found.shared.storage.mistakes_told()
    with (
        no_larger_files(10),
        pytest.raises(ZooError, match=r"can't go on .*study\.db: ") as raised,
        told,
    ):
        claimed(found)
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize("content", [b"a log\nand half a line", b"x" * 70000, bytes(100), b'{"op":1}\n'])
def test_file_that_is_no_journal_is_refused_and_stays_as_it_is(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "server.log"
    file.write_bytes(content)
    with pytest.raises(ZooError, match=r"server\.log: it is another file, which stays as it is"):
        search(config_of(f"storage={file}", "n_trials=1"))
    assert file.read_bytes() == content
    assert os.listdir(tmp_path) == ["server.log"]


def test_file_that_took_the_place_of_a_journal_is_not_written() -> None:
    found = search(config_of("storage=journal", "n_trials=1"))
    JOURNAL.write_text("notes, without an end of line")
    with pytest.raises(ZooError, match="another file"), found.shared.storage.mistakes_told():
        claimed(found)
    assert JOURNAL.read_text() == "notes, without an end of line"


def test_empty_file_becomes_a_journal(tmp_path: Path) -> None:
    file = tmp_path / "study.log"
    file.touch()
    search(config_of(f"storage={file}", "n_trials=1"))
    assert file.read_text().startswith('{"op_code":')
