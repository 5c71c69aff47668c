"""Folders of runs: made once, described truly, taken up again only when that makes sense."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from zoo.algorithms.callback import PREEMPTED
from zoo.algorithms.ppo import PPO2
from zoo.errors import ZooError
from zoo.experiment.run_folder import RunFolder
from zoo.launch.job_runs import JobRuns


def test_runs_started_in_same_second_get_own_folders(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        runs = list(pool.map(lambda _: RunFolder.create(tmp_path, "ppo2", "CartPole-v1", 3), range(24)))
    paths = {run.path for run in runs}
    assert len(paths) == 24
    assert {path.parent for path in paths} == {tmp_path / "ppo2" / "CartPole-v1"}
    assert all("_s3" in path.name for path in paths)


def test_finished_run_records_command_host_and_steps(
    run: RunFolder, ppo2: Callable[..., PPO2], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ppo2(seed=3)
    monkeypatch.setattr(sys, "argv", ["zoo", "train", "env=a b"])
    with run.tracked(model):
        assert json.loads(run.record.read_text())["status"] == "running"
        model.learn(128)
    record = json.loads(run.record.read_text())
    assert record["status"] == "finished"
    assert record["command"] == "zoo train 'env=a b'"
    assert record["seed"] == 3
    assert record["timesteps"] == 128
    assert record["steps_per_second"] > 0
    assert record["started"] <= record["ended"]
    assert record["host"]
    assert {"python", "torch", "numpy", "gymnasium", "zoo"} <= record["versions"].keys()


def test_record_names_the_commit(tmp_path: Path, run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*arguments: str) -> str:
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
        return subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout.strip()

    git("init")
    monkeypatch.chdir(tmp_path)
    run.start(seed=0)
    assert run.read_record()["git_commit"] is None
    (tmp_path / "a.py").write_text("")
    git("add", "a.py")
    git("commit", "-m", "a")
    run.start(seed=0)
    assert run.read_record()["git_commit"] == git("rev-parse", "HEAD")
    assert run.read_record()["git_changed"] is False
    (tmp_path / "a.py").write_text("changed")
    run.start(seed=0)
    assert run.read_record()["git_changed"] is True


def test_raising_run_records_failure_and_error(run: RunFolder, ppo2: Callable[..., PPO2]) -> None:
    with pytest.raises(ZeroDivisionError), run.tracked(ppo2()):
        _ = 1 / 0
    record = run.read_record()
    assert record["status"] == "failed"
    assert record["error"] == "ZeroDivisionError: division by zero"


def test_record_of_an_interrupted_run_says_preempted(run: RunFolder, ppo2: Callable[..., PPO2]) -> None:
    with pytest.raises(KeyboardInterrupt), run.tracked(ppo2()):
        raise KeyboardInterrupt
    assert run.read_record()["status"] == "preempted"
    model = ppo2()
    with run.tracked(model):
        model.request_stop(PREEMPTED)
    assert run.read_record()["status"] == "preempted"


def test_reopening_without_checkpoint_empties_logs(run: RunFolder) -> None:
    run.start(seed=0)
    run.monitor.mkdir()
    (run.monitor / "0.monitor.csv").write_text("r,l,t")
    run.progress.write_text("a")
    run.evaluations.write_text("a")
    again = RunFolder.reopen(run.path)
    assert not again.has_checkpoint
    assert not any(path.exists() for path in (run.monitor, run.progress, run.evaluations))
    again.start(seed=0)
    assert len(again.read_record()["resumed"]) == 1


def test_run_killed_before_first_record_is_reopened(run: RunFolder) -> None:
    run.write_config({"seed": 3})
    run.monitor.mkdir()
    run.close()
    again = RunFolder.reopen(run.path)
    assert not again.monitor.exists()
    again.start(seed=3)
    assert again.read_record()["status"] == "running"


@pytest.mark.parametrize("damage", [b"", b"\xff\xfe"])
def test_damaged_record_is_named(run: RunFolder, damage: bytes) -> None:
    run.write_config({"seed": 3})
    run.record.write_bytes(damage)
    run.close()
    with pytest.raises(ZooError, match=r"run\.json"):
        RunFolder.reopen(run.path)


@pytest.mark.parametrize("damage", [b"5\n", b"[1, 2]\n", b"\xff\xfe\n", b'["x"]\n', b"{\n"])
def test_damaged_line_hides_no_other_job(damage: bytes, tmp_path: Path) -> None:
    (tmp_path / ".jobs").write_bytes(damage + b'["x", "ppo2/CartPole-v1/run"]\n')
    assert JobRuns(tmp_path).by_job()["x"] == [tmp_path / "ppo2/CartPole-v1/run"]
