"""Sweeps on this machine: what is written down of them, trying again, ending early, and going on."""

from __future__ import annotations

import csv
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from zoo.agents.find import find_agent, list_agents
from zoo.cli import status_of
from zoo.errors import ZooError
from zoo.launch.command import run_command
from zoo.launch.sweep_folder import SweepFolder

TRAINING = [
    *("algo=ppo2", "env=CartPole-v1", "n_timesteps=3000", "compile=false", "threads=1"),
    *("callbacks.eval.n_episodes=2", "callbacks.eval.every=1500", "logger=csv", "logger.every=300"),
    *("progress_bar=false", "callbacks.checkpoint.every=500"),
]
KEEPS_NONE = "callbacks.checkpoint.keep=false"
"""So that only the run that is under way has a checkpoint."""


def sweep(seeds: str, *arguments: str) -> int:
    """Run jobs that take no time."""
    return run_command("check", "quick_jobs:run", ["-m", "env=CartPole-v1", f"seed={seeds}", *arguments])


def the_sweep() -> SweepFolder:
    return SweepFolder.newest("runs")


def table() -> list[dict[str, str]]:
    with open(the_sweep().table, newline="") as file:
        return list(csv.DictReader(file))


def starts(seed: int) -> int:
    path = Path(f"starts-{seed}")
    return path.stat().st_size if path.exists() else 0


@pytest.fixture
def launched() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start `zoo` in a process of its own."""
    processes: list[subprocess.Popen[str]] = []

    def launch(command: str, function: str, *arguments: str) -> subprocess.Popen[str]:
        code = (
            f"import sys; sys.path[:] = {sys.path!r}; from zoo.launch.command import run_command;"
            f" sys.exit(run_command({command!r}, {function!r}, {list(arguments)!r}))"
        )
        started = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        processes.append(started)
        return started

    yield launch
    for process in processes:
        process.kill()
        process.communicate()


def test_table_holds_every_job_with_what_came_of_it() -> None:
    assert sweep("0,1,2,3", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2") == 2
    rows = table()
    assert [row["job"] for row in rows] == ["0", "1", "2", "3"]
    assert [row["status"] for row in rows] == ["done", "failed", "failed", "killed"]
    assert rows[2]["overrides"] == "env=CartPole-v1 seed=2"
    assert rows[2]["reason"] == "RuntimeError: seed 2 is broken"
    assert rows[3]["reason"] == "its process was killed by SIGKILL (out of memory?)"
    assert all(float(row["seconds"]) > 0 for row in rows)
    record = yaml.safe_load(the_sweep().record.read_text())
    assert record["command"] == "check"
    assert record["overrides"] == ["env=CartPole-v1", "seed=0,1,2,3"]
    assert record["launcher"] == "LocalLauncher"
    assert record["jobs"][1] == {"number": 1, "overrides": ["env=CartPole-v1", "seed=1"]}
    assert record["config"]["env"]["id"] == "CartPole-v1"


def test_job_that_is_alone_prints_to_the_terminal_and_its_log(capfd: pytest.CaptureFixture[str]) -> None:
    assert sweep("0,2") == 1
    printed = capfd.readouterr()
    assert "seed 0 at work" in printed.out
    assert "RuntimeError: seed 2 is broken" in printed.err
    assert the_sweep().log(0).read_text() == "seed 0 at work\n"
    assert "RuntimeError: seed 2 is broken" in the_sweep().log(1).read_text()


def test_job_that_failed_by_itself_is_tried_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep("1,4,2", "sweep.retries=2") == 2
    assert [row["status"] for row in table()] == ["failed", "done", "failed"]
    assert [row["retries"] for row in table()] == ["0", "2", "2"]
    assert (starts(1), starts(4), starts(2)) == (1, 3, 3)
    printed = capsys.readouterr().out
    assert "zoo: job 1: RuntimeError: not at the 1. time; it is tried again (2 left)" in printed


def test_after_the_first_failure_no_more_jobs_start() -> None:
    assert sweep("0,2,7,8", "sweep.fail_fast=true") == 1
    assert [row["status"] for row in table()] == ["done", "failed", "interrupted", "interrupted"]
    assert table()[2]["reason"] == "job 1 failed (sweep.fail_fast)"
    assert starts(7) == starts(8) == 0


def test_status_tells_counts_and_whether_a_job_failed(capsys: pytest.CaptureFixture[str]) -> None:
    sweep("0,2")
    capsys.readouterr()
    assert status_of(["status"]) == 1
    printed = capsys.readouterr().out
    assert "RuntimeError: seed 2 is broken" in printed
    assert printed.splitlines()[-1] == f"{the_sweep().path}: 2 jobs: 1 done, 1 failed"
    Path("mended").touch()
    assert run_command("check", "quick_jobs:run", ["-m", f"sweep.resume={the_sweep().path}"]) == 0
    assert (starts(0), starts(2)) == (1, 2)
    assert status_of(["status", str(the_sweep().path), "watch=true"]) == 0


def test_jobs_of_a_multirun_that_was_killed_are_told_and_run_again(
    launched: Callable[..., subprocess.Popen[str]],
    wait_until: Callable[[Callable[[], bool]], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    jobs = ("-m", "env=CartPole-v1", "seed=0,5,7")
    process = launched("check", "quick_jobs:run", *jobs)
    wait_until(lambda: starts(5) == 1)
    with pytest.raises(ZooError, match="still going on"):
        run_command("check", "quick_jobs:run", ["-m", f"sweep.resume={the_sweep().path}"])
    assert status_of(["status"]) == 0
    assert "3 jobs: 1 queued, 1 running, 1 done" in capsys.readouterr().out
    process.kill()
    process.wait()
    wait_until(lambda: [row.status for row in the_sweep().rows()] == ["done", "killed", "queued"])
    assert status_of(["status"]) == 1
    assert "its multirun is gone before it started" in capsys.readouterr().out
    assert table()[1]["reason"] == "its process is gone"
    assert run_command("check", "quick_jobs:run", [*jobs, f"sweep.resume={the_sweep().path}"]) == 0
    assert [row["status"] for row in table()] == ["done"] * 3
    assert (starts(0), starts(5), starts(7)) == (1, 2, 1)


def test_killed_training_goes_on_from_its_checkpoint_and_ends_as_if_undisturbed(
    launched: Callable[..., subprocess.Popen[str]], wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    """Both jobs are the same; the second is killed with its multirun."""
    process = launched("train", "zoo.commands.train:run", "-m", *TRAINING, "seed=1,1", KEEPS_NONE)

    def is_half_way() -> bool:
        folders = Path("runs").glob("multirun/*/ppo2/*/*/checkpoint/checkpoint.json")
        return len(list(folders)) == 1 and the_sweep().rows()[0].status == "done"

    wait_until(is_half_way)
    training = next(the_sweep().path.glob("ppo2/*/*/checkpoint")).parent
    process.send_signal(signal.SIGKILL)
    process.wait()
    resumed = ["-m", f"sweep.resume={the_sweep().path}"]
    assert run_command("train", "zoo.commands.train:run", resumed) == 0
    rows = table()
    assert [row["status"] for row in rows] == ["done", "done"]
    assert the_sweep().path / rows[1]["run"] == training
    assert "resume  from step" in the_sweep().log(1).read_text()
    agents = [the_sweep().path / row["run"] / "agent" / "policy.safetensors" for row in rows]
    assert agents[0].read_bytes() == agents[1].read_bytes()
    assert [row["steps"] for row in rows] == [rows[0]["steps"]] * 2
    assert find_agent("ppo2", "CartPole-v1").is_relative_to(the_sweep().path)
    assert len([agent for agent in list_agents() if agent.run is not None]) == 2


MISTAKES = {
    "sweep.resume=nowhere": "there is no sweep nowhere: there is no such folder",
    "sweep.resume=.": "it has no sweep.yaml",
    "sweep.retries=-1": "out of range",
    "sweep.retry=1": "did you mean `sweep.retries`",
    "sweep.retries=1,2": "one value",
    "sweep.wait=true": "is for hydra/launcher=slurm",
}


@pytest.mark.parametrize("override", MISTAKES)
def test_mistake_is_told_in_one_line(override: str) -> None:
    with pytest.raises(ZooError) as raised:
        sweep("0", override)
    assert MISTAKES[override] in str(raised.value)
    assert "\n" not in str(raised.value)


def test_status_of_what_is_no_sweep_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(["status"]) == 2
    assert status_of(["status", "."]) == 2
    assert capsys.readouterr().err.count("there is no sweep in") == 2


def test_sweep_settings_of_a_single_job_are_refused() -> None:
    with pytest.raises(ZooError, match="add -m"):
        run_command("check", "quick_jobs:run", ["env=CartPole-v1", "sweep.retries=1"])


def test_sweep_goes_on_as_it_was() -> None:
    sweep("0,2")
    resume = f"sweep.resume={the_sweep().path}"
    with pytest.raises(ZooError, match=r"can't take seed=range\(9\), env\.max_episode_steps=7;"):
        run_command("check", "quick_jobs:run", ["-m", "seed=range(9)", "env.max_episode_steps=7", resume])
    with pytest.raises(ZooError, match="is a sweep of zoo check"):
        run_command("train", "quick_jobs:run", ["-m", resume])


def test_jobs_of_a_multirun_have_no_other_name() -> None:
    with pytest.raises(ZooError, match="each has its own"):
        run_command("train", "quick_jobs:run", ["-m", *TRAINING, "seed=1,2", "job=mine"])
