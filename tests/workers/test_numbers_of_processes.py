"""A run starts no more processes than the machine can hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from zoo.cli import status_of
from zoo.errors import ZooError
from zoo.training import process_limits
from zoo.training.process_limits import WORKER_BYTES, refuse_too_many_workers


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cores, and room for ten workers beside the first."""
    monkeypatch.setattr(process_limits, "usable_cores", lambda: 2)
    monkeypatch.setattr(process_limits, "free_bytes", lambda: int(10 * WORKER_BYTES / 0.9) + 9)


def test_more_workers_than_the_machine_can_hold_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_too_many_workers(11)
    with pytest.raises(ZooError, match=r"workers=12 need 2.8 GiB of memory to start, but 2.8 GiB are free; "):
        refuse_too_many_workers(12)
    with pytest.raises(ZooError, match="; workers=11 fit"):
        refuse_too_many_workers(12)
    monkeypatch.setattr(process_limits, "free_bytes", lambda: None)
    refuse_too_many_workers(16)
    with pytest.raises(ZooError, match="workers=17 are too many for 2 cores: at most 8 for each, workers=16"):
        refuse_too_many_workers(17)


def test_too_many_workers_are_told_of_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert status_of(["train", "algo=ppo2", "env=CartPole-v1", "workers=99"]) == 2
    message = capsys.readouterr().err
    assert "workers=99 are too many for 2 cores" in message
    assert message.count("\n") == 1
    assert not list(tmp_path.iterdir())
