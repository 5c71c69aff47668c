"""Storages that several commands and machines share, and the passwords of databases."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import optuna
import pytest
import sqlalchemy
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback
from small_studies import (
    WAITING,
    WAITING_NAME,
    WAITING_STUDY,
    begin_study,
    kill_all,
    overrides,
    wait_until,
    worker_of,
    write_module,
)

from zoo.cli import status_of
from zoo.errors import ZooError
from zoo.tuning.study import SharedStudy, Storage, counted, quiet_optuna, retry_of


@pytest.mark.parametrize("storage", ["null", "journal"])
def test_study_that_was_begun_anew_takes_no_trial_of_the_earlier_command(storage: str) -> None:
    first = begin_study("n_trials=1", f"storage={storage}")
    second = begin_study("n_trials=1", f"storage={storage}", "n_timesteps=300")
    with pytest.raises(ZooError, match="`n_timesteps` is 200"):
        worker_of(first)
    assert second.shared.trials() == []


class Killed(BaseException):
    """As SIGKILL between two lines."""


def machine(name: str) -> SharedStudy:
    """Return the study as another machine sees it: they share a database with heartbeats, and no files."""
    folder = Path(name)
    folder.mkdir()
    server = RDBStorage(
        "sqlite:///shared.db",
        heartbeat_interval=1,
        grace_period=2,
        heartbeat_stale_trial_callback=RetryHeartbeatStaleTrialCallback(),
    )
    study = optuna.create_study(study_name="shared", storage=server, load_if_exists=True)
    return SharedStudy(study, Storage(server, "shared.db", folder, is_file=False), 1, name)


def test_trial_without_signs_of_life_in_a_database_is_run_by_another_machine() -> None:
    drawn: list[float] = []

    def killed(trial: optuna.Trial) -> list[float]:
        drawn.append(trial.suggest_float("x", 0, 1))
        raise Killed

    def run(trial: optuna.Trial) -> list[float]:
        drawn.append(trial.suggest_float("x", 0, 1))
        return [1.0]

    with quiet_optuna():
        one, other = machine("one"), machine("other")
        with pytest.raises(Killed):
            one.run_next(killed, lambda trial: None)
        assert not other.run_next(run, lambda trial: None), "it may still live"
        deadline = time.monotonic() + 30
        while not other.run_next(run, lambda trial: None):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        dead, again = other.trials()
    assert [dead.state.name, again.state.name] == ["FAIL", "COMPLETE"]
    assert retry_of(again) == dead.number
    assert drawn[0] == drawn[1]


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


PASSWORD = "not to be told"
SECONDS = 400

BINARIES = sorted(Path("/usr/lib/postgresql").glob("*/bin"))


@dataclass
class Server:
    folder: Path
    port: int

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://tuner:{PASSWORD.replace(' ', '%20')}@127.0.0.1:{self.port}/postgres"

    def run(self, program: str, *arguments: str) -> None:
        """Run one of PostgreSQL's programs, as its own user where we are root: it refuses to be."""
        tune_command = [str(BINARIES[-1] / program), *arguments]
        if os.geteuid() == 0:
            tune_command = ["runuser", "-u", "postgres", "--", *tune_command]
        subprocess.run(tune_command, check=True, stdout=subprocess.DEVNULL, cwd=self.folder)


@pytest.fixture
def server() -> Iterator[Server]:
    if not BINARIES:
        pytest.skip("PostgreSQL is not installed")
    pytest.importorskip("psycopg")
    folder = Path(tempfile.mkdtemp(prefix="zoo-postgresql-"))
    if os.geteuid() == 0:
        postgres = pwd.getpwnam("postgres")
        os.chown(folder, postgres.pw_uid, postgres.pw_gid)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        server = Server(folder, free.getsockname()[1])
    secret = folder / "password"
    secret.write_text(PASSWORD)
    secret.chmod(0o644)
    data = str(folder / "data")
    with_password = ("--auth=scram-sha-256", f"--pwfile={secret}")
    server.run("initdb", "-D", data, "-U", "tuner", *with_password, "--no-sync")
    options = f"-p {server.port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off"
    server.run("pg_ctl", "-D", data, "-w", "-l", str(folder / "log"), "-o", options, "start")
    try:
        yield server
    finally:
        server.run("pg_ctl", "-D", data, "-m", "immediate", "stop")
        shutil.rmtree(folder)


def tune_command(url: str, *arguments: str) -> list[str]:
    code = "from zoo.cli import main; main()"
    return [sys.executable, "-c", code, "tune", *overrides(*arguments, f"storage='{url}'")]


def trials(url: str) -> list[optuna.trial.FrozenTrial]:
    try:
        return optuna.load_study(study_name=WAITING_NAME, storage=url).trials
    except (KeyError, optuna.exceptions.OptunaError, sqlalchemy.exc.SQLAlchemyError):  # not there yet
        return []


@pytest.mark.slow
def test_four_workers_lose_and_repeat_no_trial_though_one_dies(server: Server) -> None:
    settings = ("n_trials=12", "sampler=random", "pruner=none", "verbose=1", "heartbeat=1")
    folders = [Path(f"machine-{index}") for index in range(3)]
    processes = []
    for folder, n_jobs in zip(folders, (1, 2, 1), strict=True):  # none sees the others' files
        folder.mkdir()
        write_module(folder, hold=folder == folders[0])
        processes.append(
            subprocess.Popen(
                tune_command(server.url, *settings, *WAITING, f"n_jobs={n_jobs}"),
                cwd=folder,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    workers = folders[0] / WAITING_STUDY / "workers"

    def held() -> list[optuna.trial.FrozenTrial]:
        return [
            trial
            for trial in trials(server.url)
            if trial.state.name == "RUNNING"
            and (workers / f"{trial.user_attrs.get('worker')}.lock").exists()
            and "values" in trial.user_attrs
        ]

    wait_until(held, SECONDS)
    [dead] = held()
    kill_all(processes[0].pid)
    processes[0].communicate()
    outputs = [process.communicate(timeout=SECONDS)[0] for process in processes[1:]]
    assert [process.returncode for process in processes[1:]] == [0, 0], outputs
    found = trials(server.url)
    assert [trial.state.name for trial in counted(found)] == ["COMPLETE"] * 12
    assert len({str(trial.params) for trial in counted(found)}) == 12
    again = [trial for trial in found if retry_of(trial) is not None]
    assert [retry_of(trial) for trial in again] == [dead.number]
    assert again[0].params == dead.params
    spelled = (PASSWORD, PASSWORD.replace(" ", "%20"))
    assert not any(secret in output for output in outputs for secret in spelled)
    written = b"".join(path.read_bytes() for path in Path().rglob("*") if path.is_file())
    assert not any(secret.encode() in written for secret in spelled)
