"""One bad card, folder or number is named, and ends no list."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import zoo
from zoo.cli import status_of

NOBODY = 65534


@contextlib.contextmanager
def as_somebody_else() -> Iterator[None]:
    """Within the block the superuser, who may read everything, is one who may not."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder that others may enter, with two agents of runs."""
    folder = Path(tempfile.mkdtemp(prefix="zoo-lists-"))
    folder.chmod(0o755)
    monkeypatch.chdir(folder)
    model = zoo.PPO2("MlpPolicy", "CartPole-v1", compile=False, device="cpu", seed=0)
    for number in (1, 2):
        model.save(folder / f"runs/ppo2/CartPole-v1/20260101-00000{number}_s0/agent")
    assert status_of(["agents", "where=own"]) == 0  # imports what it needs while all can be read
    yield folder
    for each in folder.rglob("*"):
        if each.is_dir() and not each.is_symlink():
            each.chmod(0o755)
    shutil.rmtree(folder)


def card(**values: object) -> Callable[[Path], object]:
    return lambda run: (run / "agent" / "card.json").write_text(json.dumps(values))


SPOILED: dict[str, Callable[[Path], object]] = {
    "unreadable run": lambda run: run.chmod(0),
    "unreadable agent": lambda run: (run / "agent").chmod(0),
    "unreadable card": lambda run: (run / "agent" / "card.json").chmod(0),
    "card that is a pipe": lambda run: (
        (run / "agent" / "card.json").unlink(),
        os.mkfifo(run / "agent" / "card.json"),
    ),
    "score of 400 digits": card(mean_return=10**400),
    "seed of 400 digits": card(seed=10**400),
    "score that is none": lambda run: (run / "agent" / "card.json").write_text('{"mean_return": NaN}'),
    "infinite steps": lambda run: (run / "agent" / "card.json").write_text('{"timesteps": Infinity}'),
    "environment that is a list": card(env=[1]),
    "date that is a mapping": card(created={"a": 1}),
    "half a character": lambda run: (run / "agent" / "card.json").write_text('{"env": "\\ud800"}'),
    "escape sequences": card(env="\x1b]0;owned\x07", created="\x1b[2J"),
    "link in a circle": lambda run: (shutil.rmtree(run / "agent"), (run / "agent").symlink_to("agent")),
}


@pytest.mark.parametrize("form", ["format=json", "sort=time", "sort=return"])
@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED)
def test_other_agents_are_listed(
    work: Path, spoil: Callable[[Path], object], form: str, capfd: pytest.CaptureFixture[str]
) -> None:
    spoil(work / "runs/ppo2/CartPole-v1/20260101-000001_s0")
    with as_somebody_else():
        assert status_of(["agents", "where=own", form]) == 0
        assert status_of(["enjoy", "algo=nothing", "env=CartPole-v1"]) == 2
    told = capfd.readouterr()
    assert "20260101-000002_s0" in told.out
    assert "Traceback" not in told.err
    assert all(line.isprintable() for line in (told.out + told.err).splitlines())
    if form == "format=json":
        assert "NaN" not in told.out
        assert "Infinity" not in told.out


def test_folder_that_can_not_be_read_is_named(work: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (work / "runs/ppo2/CartPole-v1").chmod(0)
    (work / "runs/a2c").mkdir()
    with as_somebody_else():
        assert status_of(["agents"]) == 0
    told = capfd.readouterr()
    assert "runs/ppo2/CartPole-v1 is left out: Permission denied" in told.err


def test_other_runs_are_plotted(work: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (work / "runs/ppo2/CartPole-v1/20260101-000001_s0").chmod(0)
    with as_somebody_else():
        assert status_of(["plot", "runs"]) == 2
        assert status_of(["compare", "runs/ppo2", "runs/a2c"]) == 2
        assert status_of(["agents", "agent=runs/ppo2/CartPole-v1/20260101-000001_s0"]) == 2
        assert status_of(["evaluate", "agent=runs/ppo2/CartPole-v1/20260101-000001_s0"]) == 2
        assert status_of(["reproduce", "runs/ppo2/CartPole-v1/20260101-000001_s0"]) == 2
        assert status_of(["train", "resume=runs/ppo2/CartPole-v1/20260101-000001_s0"]) == 2
        assert status_of(["status"]) == 2
    assert "Traceback" not in capfd.readouterr().err
