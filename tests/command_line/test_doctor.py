"""`zoo doctor` says what a bug report needs, whatever is broken, and nothing secret."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from zoo.commands import doctor
from zoo.training import diagnosis

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def no_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what takes seconds."""
    monkeypatch.setattr(diagnosis, "_TRIES", {"torch": ["pass"], "extras": ["pass"]})


def findings(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    doctor.run({"format": "json"})
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_all_is_said_within_a_minute(tmp_path: Path) -> None:
    code = "from zoo.cli import main; main()"
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code, "doctor", "format=json"], capture_output=True, text=True, check=False
    )
    assert time.monotonic() - started < 60 + sum(os.getloadavg())  # a busy machine takes longer
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {"zoo", "python", "torch", "gymnasium", "numpy", "hydra-core", "optuna"} <= found[
        "versions"
    ].keys()
    assert found["machine"]["cores"] >= 1
    assert {
        "compiler",
        "displays",
        "ffmpeg",
        "folders",
        "torch",
        "GPU",
        "compiling",
        "extras",
    } <= found.keys()
    assert found["extras"].keys() == diagnosis.EXTRAS.keys()
    assert found["extras"]["atari"] == "works" or "busy" in found["extras"]["atari"]
    assert "can be written" in found["folders"]["working folder"]
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("no_trials")
def test_secrets_are_not_shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "hidden-1")
    monkeypatch.setenv("ZOO_SECRET_TOKEN", "hidden-2")
    monkeypatch.setenv("HTTPS_PROXY", "http://me:hidden-3@proxy:8080")
    monkeypatch.setenv("ALL_PROXY", "http://me:p@hidden-5@proxy:1")
    monkeypatch.setenv("NO_PROXY", "me:hidden-6@proxy:3128")
    monkeypatch.setenv("DATABASE_URL", "hidden-4")
    monkeypatch.setenv("WANDB_MODE", "offline")
    for choice in ("text", "json"):
        doctor.run({"format": choice})
        out = capsys.readouterr().out
        assert "hidden" not in out
        assert "http://…@proxy:8080" in out
        assert "offline" in out


def test_trial_that_hangs_or_dies_is_given_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    says = 'import os, time; print(\'["atari", "works"]\', flush=True); '
    tries = {"torch": ["import os; os.abort()"], "extras": [says + "os.fork(); time.sleep(60)"]}
    monkeypatch.setattr(diagnosis, "_TRIES", tries)
    monkeypatch.setattr(diagnosis, "SECONDS", 1.0)
    found = findings(capsys)
    assert found["compiling"] == "not found out: the process that tried it ended with status -6"
    assert found["extras"]["atari"] == "works"
    assert found["extras"]["wandb"].startswith("not found out: it takes longer")


def test_busy_machine_is_said_where_something_took_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    compiler = tmp_path / "slow-compiler"
    compiler.write_text("#!/bin/sh\nexec sleep 60\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setattr(diagnosis, "LOOK_SECONDS", 0.2)
    monkeypatch.setattr(diagnosis, "SECONDS", 0.2)
    slow = ["import time; time.sleep(60)"]
    monkeypatch.setattr(diagnosis, "_TRIES", {"torch": slow, "extras": slow})
    for load, busy in ((999.0, "this machine is busy: load 999.0"), (0.0, "")):
        monkeypatch.setattr(os, "getloadavg", lambda load=load: (load, 1.0, 1.0))
        found = findings(capsys)
        told = [found["compiler"], found["compiling"], found["extras"]["atari"]]
        assert all(each.startswith("not found out: it takes longer") for each in told)
        assert all((busy if busy else "busy") in each for each in told) == bool(busy)
        assert ("is busy" in found["machine"]["load"]) == bool(busy)


def test_import_that_fails_says_why(tmp_path: Path) -> None:
    (tmp_path / "broken_package.py").write_text("import no_such_dependency")
    (tmp_path / "raising_package.py").write_text("raise RuntimeError('libfoo.so is missing')")
    extras = {
        "a": ["broken_package"],
        "b": ["raising_package"],
        "c": ["absent_package"],
        "d": ["json", "absent_package"],
    }
    done = subprocess.run(
        [sys.executable, "-c", diagnosis._IMPORTS, json.dumps(extras)],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert dict(json.loads(line) for line in done.stdout.splitlines()) == {
        "a": "broken_package fails: No module named 'no_such_dependency'",
        "b": "raising_package fails: RuntimeError: libfoo.so is missing",
        "c": "not installed",
        "d": "not installed: absent_package is missing",
    }


@pytest.mark.usefixtures("no_trials")
def test_what_cannot_be_looked_at_says_so_and_the_rest_is_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails() -> Any:
        raise OSError("no such device")

    monkeypatch.setitem(diagnosis._LOOKS, "machine", fails)
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setitem(sys.modules, "moviepy", None)
    found = findings(capsys)
    assert found["machine"] == "not found out: OSError: no such device"
    assert found["compiler"].startswith("none: there is no no-such-compiler")
    assert found["ffmpeg"] == "writing a video needs: pip install moviepy pillow pygame-ce"
    assert "zoo" in found["versions"]


def test_every_extra_is_tried() -> None:
    declared = (REPOSITORY / "pyproject.toml").read_text().partition("[project.optional-dependencies]")[2]
    names = re.findall(r"^(\w+) = \[", declared.partition("\n\n")[0], re.MULTILINE)
    assert set(names) - {"all", "test", "bench"} == diagnosis.EXTRAS.keys()


@pytest.mark.slow
def test_a_tiny_graph_is_compiled() -> None:
    done = subprocess.run(
        [sys.executable, "-c", diagnosis._TORCH], capture_output=True, text=True, check=True, env=os.environ
    )
    said = dict(json.loads(line) for line in done.stdout.splitlines())
    assert said["compiling"].startswith("works (")
