"""`zoo tune` as it is typed: processes that share a study, that are killed, and what they leave behind."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import optuna
import pytest
from optuna.trial import FrozenTrial
from small_studies import overrides

from zoo.tuning.shared_study import counted

TUNE = "from zoo.cli import main; main()"
STUDY = Path("runs/tune/a2c/CartPole-v1/default")
SECONDS = 240


def started(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", TUNE, "tune", *overrides(*arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


@contextlib.contextmanager
def ended_at_last(*processes: subprocess.Popen[str]) -> Iterator[None]:
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def trials(storage: str = f"sqlite:///{STUDY}/study.db") -> list[FrozenTrial]:
    return optuna.load_study(study_name="a2c/CartPole-v1/default", storage=storage).trials


def wait_for_running() -> FrozenTrial:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(Exception):
            running = [trial for trial in trials() if trial.state.name == "RUNNING" and trial.params]
            if running and running[0].user_attrs.get("values"):
                return running[0]
        time.sleep(0.1)
    raise AssertionError("no trial began")


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def killed_with_its_worker(process: subprocess.Popen[str]) -> None:
    for pid in [*children(process.pid), process.pid]:
        os.kill(pid, signal.SIGKILL)
    process.communicate()


def test_two_processes_share_a_study_of_which_a_third_was_killed() -> None:
    settings = ("n_trials=5", "sampler=random", "pruner=none", "verbose=1")
    long = ("n_timesteps=20000", "algo.n_steps=16")
    first = started(*settings, *long)
    with ended_at_last(first):
        dead = wait_for_running()
        killed_with_its_worker(first)
    two = [started(*settings, *long), started(*settings, *long)]
    with ended_at_last(*two):
        outputs = [process.communicate(timeout=SECONDS)[0] for process in two]
        assert [process.returncode for process in two] == [0, 0], outputs
    found = trials()
    assert [trial.state.name for trial in counted(found)] == ["COMPLETE"] * 5
    assert [trial.number for trial in found if trial.state.name == "FAIL"] == [dead.number]
    again = next(trial for trial in found if trial.user_attrs.get("goes_on_from") == dead.number)
    assert again.params == dead.params
    assert len({str(trial.params) for trial in counted(found)}) == 5
    assert len({trial.user_attrs["worker"] for trial in counted(found)}) == 2
    assert (STUDY / "best.yaml").is_file()
    check_page_is_self_contained(STUDY / "report.html")


class References(HTMLParser):
    """Collects what a page would load from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name in ("src", "href") and value and not value.startswith("data:"):
                self.found.append(f"{tag} {name}={value}")


def check_page_is_self_contained(page: Path) -> None:
    text = page.read_text()
    references = References()
    references.feed(text)
    assert references.found == []
    assert text.count("Plotly.newPlot(") == 5
    assert "<h2>Importance</h2>" in text


def test_signal_ends_the_study_cleanly_and_the_same_command_goes_on() -> None:
    settings = ("n_trials=1", "pruner=none", "n_timesteps=10000000", "n_evaluations=1000", "algo.n_steps=16")
    process = started(*settings)
    with ended_at_last(process):
        wait_for_running()
        process.send_signal(signal.SIGTERM)
        output = process.communicate(timeout=60)[0]
    assert process.returncode == 130, output
    assert [trial.state.name for trial in trials()] == ["FAIL", "WAITING"]
    assert not list(Path(f"{STUDY}/study.db.workers").glob("*-*.lock"))


@pytest.mark.slow
def test_process_that_is_killed_costs_its_trial_and_another_takes_its_place() -> None:
    settings = ("n_trials=3", "pruner=none", "n_timesteps=20000", "algo.n_steps=16", "verbose=1")
    process = started(*settings)
    with ended_at_last(process):
        wait_for_running()
        for pid in children(process.pid):
            os.kill(pid, signal.SIGKILL)
        output = process.communicate(timeout=SECONDS)[0]
    assert process.returncode == 0, output
    found = trials()
    assert [trial.state.name for trial in found] == ["FAIL", "COMPLETE", "COMPLETE"]
    assert found[0].user_attrs["reason"] == "its process was killed by SIGKILL (out of memory?)"


@pytest.mark.slow
def test_multirun_of_workers_runs_each_trial_once() -> None:
    many = ("-m", "worker=range(2)", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
    process = started("n_trials=6", "pruner=none", "sampler=random", *many)
    with ended_at_last(process):
        output = process.communicate(timeout=SECONDS)[0]
    assert process.returncode == 0, output
    assert [trial.state.name for trial in trials()] == ["COMPLETE"] * 6


@pytest.mark.slow
def test_bad_defaults_are_tuned_to_a_solved_environment() -> None:
    command = [
        *("algo=ppo2", "env=CartPole-v1", "tuned=none", "n_trials=30", "n_timesteps=50000", "n_envs=8"),
        *("seed=1", "algo.n_minibatches=4"),
    ]
    process = subprocess.run(
        [sys.executable, "-c", TUNE, "tune", *command], capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
    text = Path("runs/tune/ppo2/CartPole-v1/default/best.yaml").read_text()
    found = re.search(r"interquartile mean ([\d.]+)", text)
    assert found is not None
    assert float(found[1]) >= 490
    states = optuna.load_study(
        study_name="ppo2/CartPole-v1/default",
        storage="sqlite:///runs/tune/ppo2/CartPole-v1/default/study.db",
    )
    assert any(trial.state.name == "PRUNED" for trial in states.trials)
