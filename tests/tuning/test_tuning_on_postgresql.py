"""A study on a PostgreSQL server of its own: four processes, one of which dies, and a server that is gone."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import optuna
import pytest
import sqlalchemy
import waiting_env
from small_studies import overrides

from zoo.tuning.study import counted, retry_of

pytest.importorskip("psycopg")

PASSWORD = "not to be told"
SECONDS = 400

BINARIES = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not BINARIES, reason="PostgreSQL is not installed"),
]


@dataclass
class Server:
    folder: Path
    port: int

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://tuner:{PASSWORD.replace(' ', '%20')}@127.0.0.1:{self.port}/postgres"

    def run(self, program: str, *arguments: str) -> None:
        """Run one of PostgreSQL's programs, as its own user where we are root: it refuses to be."""
        command = [str(BINARIES[-1] / program), *arguments]
        if os.geteuid() == 0:
            command = ["runuser", "-u", "postgres", "--", *command]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=self.folder)


@pytest.fixture
def server() -> Iterator[Server]:
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


def command(url: str, *arguments: str) -> list[str]:
    code = "from zoo.cli import main; main()"
    return [sys.executable, "-c", code, "tune", *overrides(*arguments, f"storage='{url}'")]


def trials(url: str) -> list[optuna.trial.FrozenTrial]:
    try:
        return optuna.load_study(study_name=waiting_env.NAME, storage=url).trials
    except (KeyError, optuna.exceptions.OptunaError, sqlalchemy.exc.SQLAlchemyError):  # not there yet
        return []


def test_four_workers_lose_and_repeat_no_trial_though_one_dies(server: Server) -> None:
    settings = ("n_trials=12", "sampler=random", "pruner=none", "verbose=1", "heartbeat=1")
    folders = [Path(f"machine-{index}") for index in range(3)]
    processes = []
    for folder, n_jobs in zip(folders, (1, 2, 1), strict=True):  # none sees the others' files
        folder.mkdir()
        waiting_env.write_module(folder, hold=folder == folders[0])
        processes.append(
            subprocess.Popen(
                command(server.url, *settings, *waiting_env.SETTINGS, f"n_jobs={n_jobs}"),
                cwd=folder,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    workers = folders[0] / waiting_env.STUDY / "workers"

    def held() -> list[optuna.trial.FrozenTrial]:
        return [
            trial
            for trial in trials(server.url)
            if trial.state.name == "RUNNING"
            and (workers / f"{trial.user_attrs.get('worker')}.lock").exists()
            and "values" in trial.user_attrs
        ]

    waiting_env.wait_until(held, SECONDS)
    [dead] = held()
    waiting_env.kill_all(processes[0].pid)
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


def test_wrong_password_is_told_in_one_line_without_it(server: Server) -> None:
    url = server.url.replace("not%20to", "never%20to")
    done = subprocess.run(command(url), capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "can't reach the storage" in done.stderr
    assert "be%20told" not in done.stderr
