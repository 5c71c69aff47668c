"""The command itself: verbs, version, help, exit statuses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from zoo.cli import VERBS, status_of

ZOO = str(Path(sys.executable).with_name("zoo"))


@pytest.mark.parametrize("arguments", [[], ["help"]])
def test_help_names_every_verb(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(arguments) == 0
    page = " ".join(capsys.readouterr().out.split())
    for verb, what in VERBS.items():
        assert f"{verb} {what}" in page


@pytest.mark.parametrize("arguments", [[], *([verb] for verb in VERBS)])
def test_help_fits_a_terminal_of_80_columns(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of([*arguments, "--help"]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if len(line) > 80] == []


@pytest.mark.parametrize("arguments", [["help", "train"], ["--help", "train"], ["train", "help"]])
def test_help_of_a_verb_may_be_asked_for_in_any_order(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of(arguments) == 0
    assert capsys.readouterr().out.startswith("Train an agent.")


def test_package_runs_as_a_module_and_takes_no_library_from_the_working_folder(tmp_path: Path) -> None:
    for library in ("hydra", "yaml", "omegaconf"):
        (tmp_path / f"{library}.py").write_text("raise SystemExit('taken from the working folder')")
    command = [sys.executable, "-m", "zoo", "train", "n_timestep=1"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "`n_timesteps`" in done.stderr


def test_help_imports_nothing_heavy() -> None:
    code = "import sys; from zoo.cli import status_of; status_of(['--help']); print(*sorted(sys.modules))"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    heavy = {"torch", "numpy", "hydra", "omegaconf", "gymnasium", "yaml"}
    assert heavy.isdisjoint(modules.splitlines()[-1].split())


def test_reader_that_has_seen_enough_ends_the_command_quietly(tmp_path: Path) -> None:
    done = subprocess.run(
        f"'{ZOO}' train --help | head -n 1",
        shell=True,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "Train an agent.\n"
    assert done.stderr == ""


@pytest.mark.parametrize(("given", "found"), [(None, "1"), ("3", "3")])
def test_openblas_gets_one_thread_unless_the_user_says_otherwise(given: str | None, found: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    if given is not None:
        environment["OPENBLAS_NUM_THREADS"] = given
    code = "import os, zoo.cli; print(os.environ['OPENBLAS_NUM_THREADS'])"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{found}\n"
