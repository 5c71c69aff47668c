"""The password of a study's database: in no message, and in no file that others read."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_studies import overrides

from zoo.cli import status_of

URL = "postgresql+psycopg://me:secret@127.0.0.1:1/none"


def written() -> bytes:
    return b"".join(path.read_bytes() for path in Path().rglob("*") if path.is_file())


def test_sweep_refuses_a_password_before_it_writes_anything(capfd: pytest.CaptureFixture[str]) -> None:
    assert status_of(["tune", "-m", *overrides("worker=range(2)", f"storage='{URL}'")]) == 2
    told = capfd.readouterr().err
    assert "'storage=${oc.env:NAME}'" in told
    assert "secret" not in told
    assert list(Path().iterdir()) == []


def test_password_of_an_environment_variable_is_written_into_no_file_of_a_sweep(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_STORAGE", URL)
    variable = "storage=${oc.env:MY_STORAGE}"
    assert status_of(["tune", "-m", *overrides("worker=range(1)", variable)]) == 2
    told = capfd.readouterr()
    assert "can't reach the storage postgresql+psycopg://me:***@127.0.0.1:1/none" in told.err
    assert "secret" not in told.out + told.err
    assert variable.encode() in written()
    assert b"secret" not in written()


def test_mistake_beside_a_password_is_told_without_it(capfd: pytest.CaptureFixture[str]) -> None:
    assert status_of(["tune", "algo=a2c", "env=CartPole-v1", f"storage={URL}?a=[b"]) == 2
    assert "secret" not in capfd.readouterr().err
