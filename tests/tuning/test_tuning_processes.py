"""`zoo tune` as it is typed: processes that share a study, that are killed, and what they leave behind."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest
from forked import Forked
from optuna.trial import FrozenTrial
from small_studies import (
    WAITING,
    WAITING_NAME,
    WAITING_STUDY,
    config_of,
    kill_all,
    overrides,
    wait_until,
    write_module,
)

from zoo.cli import status_of
from zoo.tuning.study import counted, retry_of
from zoo.tuning.tune import Search

STUDY = Path("runs/tune/a2c/CartPole-v1/default")
SECONDS = 240


def started(*arguments: str) -> Forked:
    return Forked(lambda: status_of(["tune", *overrides(*arguments)]))


@contextlib.contextmanager
def ended_at_last(*processes: Forked) -> Iterator[None]:
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.fixture
def database() -> Iterator[str]:
    """The URL of a new database on a PostgreSQL of this machine alone."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not programs:
        pytest.skip("PostgreSQL is not installed")
    folder = Path(tempfile.mkdtemp(prefix="zoo-postgres-"))
    user = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
    if user:  # it refuses to be run by root
        shutil.chown(folder, "postgres")

    def call(program: str, *arguments: str) -> None:
        command = [*user, str(programs[-1] / program), "-D", str(folder / "data"), *arguments]
        subprocess.run(command, cwd="/", check=True, stdout=subprocess.DEVNULL)

    call("initdb", "-A", "trust", "-U", "zoo")
    options = f"-k {folder} -c listen_addresses=''"
    call("pg_ctl", "-o", options, "-l", str(folder / "log"), "-w", "start")
    yield f"postgresql+psycopg://zoo@/postgres?host={folder}"
    call("pg_ctl", "-m", "immediate", "stop")
    shutil.rmtree(folder)


def test_processes_begin_a_study_in_a_new_database(database: str) -> None:
    at_once = time.time() + 3.0

    def begin(machine: int) -> int:
        plan = config_of(f"storage='{database}'", f"runs_dir=machine_{machine}")
        time.sleep(max(0.0, at_once - time.time()))
        Search(plan)
        return 0

    processes = [Forked(functools.partial(begin, machine)) for machine in range(8)]
    assert [process.wait() for process in processes] == [0] * 8, processes[0].communicate()


def trials(study: Path = STUDY, name: str = "a2c/CartPole-v1/default") -> list[FrozenTrial]:
    try:
        # Read only: to look must not make the tables that the study is about to make.
        storage = f"sqlite:///file:{study}/study.db?mode=ro&uri=true"
        return optuna.load_study(study_name=name, storage=storage).trials
    except Exception:  # it is not there yet
        return []


def running(*where: Any) -> list[FrozenTrial]:
    return [each for each in trials(*where) if each.state.name == "RUNNING" and "values" in each.user_attrs]


def test_two_processes_share_study_after_third_dies(working_folder: Path) -> None:
    settings = ("n_trials=4", "sampler=random", "pruner=none", "verbose=1", *WAITING)
    where = (WAITING_STUDY, WAITING_NAME)
    write_module(working_folder, hold=True)
    first = started(*settings)
    with ended_at_last(first):
        wait_until(lambda: running(*where))
        [dead] = running(*where)
        kill_all(first.pid)
        first.wait()
    (working_folder / "hold").unlink()
    two = [started(*settings), started(*settings)]
    with ended_at_last(*two):
        outputs = [process.communicate(SECONDS) for process in two]
        assert [process.returncode for process in two] == [0, 0], outputs
    found = trials(*where)
    assert [trial.state.name for trial in counted(found)] == ["COMPLETE"] * 4
    assert [trial.number for trial in found if trial.state.name == "FAIL"] == [dead.number]
    again = next(trial for trial in found if retry_of(trial) == dead.number)
    assert again.params == dead.params
    assert len({str(trial.params) for trial in counted(found)}) == 4
    assert (WAITING_STUDY / "best.yaml").is_file()
    check_page_is_self_contained(WAITING_STUDY / "report.html")


def check_page_is_self_contained(page: Path) -> None:
    text = page.read_text()
    tags = re.sub(r"(<script[^>]*>).*?</script>", r"\1", text, flags=re.DOTALL)
    assert re.findall(r"""<[^>]*\s(?:src|href)=["'](?!data:)[^>]*>""", tags) == []
    assert text.count("Plotly.newPlot(") == 5
    assert "<h2>Importance</h2>" in text


@pytest.mark.slow
def test_signalled_study_resumes_with_same_command() -> None:
    settings = ("n_trials=1", "pruner=none", "n_timesteps=10000000", "n_evaluations=1000", "algo.n_steps=16")
    process = started(*settings)
    with ended_at_last(process):
        wait_until(running)
        process.send_signal(signal.SIGTERM)
        output = "".join(process.communicate(60))
    assert process.returncode == 130, output
    assert [trial.state.name for trial in trials()] == ["FAIL", "WAITING"]
    assert not list(Path(f"{STUDY}/study.db.workers").glob("*-*.lock"))


@pytest.mark.slow
def test_replacement_of_killed_process_reruns_trial(working_folder: Path) -> None:
    where = (WAITING_STUDY, WAITING_NAME)
    write_module(working_folder, hold=True)
    process = started("n_trials=2", "pruner=none", "verbose=1", *WAITING)
    with ended_at_last(process):
        wait_until(lambda: running(*where))
        (working_folder / "hold").unlink()
        [worker] = [
            int(pid)
            for path in Path(f"/proc/{process.pid}/task").glob("*/children")
            for pid in path.read_text().split()
        ]
        os.kill(worker, signal.SIGKILL)
        output = "".join(process.communicate(SECONDS))
    assert process.returncode == 0, output
    found = trials(*where)
    assert [trial.state.name for trial in found] == ["FAIL", "COMPLETE", "COMPLETE"]
    assert retry_of(found[1]) == 0
    assert found[1].params == found[0].params
    assert "a process was killed by SIGKILL (out of memory?); another one goes on" in output


@pytest.mark.slow
def test_multirun_of_workers_runs_each_trial_once() -> None:
    many = ("-m", "worker=range(2)", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
    process = started("n_trials=6", "pruner=none", "sampler=random", *many)
    with ended_at_last(process):
        output = "".join(process.communicate(SECONDS))
    assert process.returncode == 0, output
    assert [trial.state.name for trial in trials()] == ["COMPLETE"] * 6
