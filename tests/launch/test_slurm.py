"""Sweeps, and workers of one run, on a real Slurm of this machine, and the script that starts it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_multiruns import Wait, starts, table, the_sweep

from zoo.cli import status_of
from zoo.errors import ZooError
from zoo.experiment.checkpoint import read_checkpoint, read_share
from zoo.launch.command import run_command
from zoo.launch.sweep_folder import DONE, QUEUED, RUNNING

pytestmark = pytest.mark.usefixtures("no_job_left_behind")

SLURM = ["hydra/launcher=slurm", "hydra.launcher.cpus_per_task=1", "hydra.launcher.mem_gb=0.5"]
TRAINING = [
    *("algo=ppo2", "env=CartPole-v1", "n_timesteps=4000", "compile=false", "threads=1"),
    *("callbacks.eval.n_episodes=2", "callbacks.eval.every=2000", "logger=csv", "logger.every=500"),
    "progress_bar=false",
]


def submit(seeds: str, *arguments: str) -> int:
    """Submit jobs that take no time."""
    jobs = ["-m", "env=CartPole-v1", f"seed={seeds}", *SLURM, *arguments]
    return run_command("check", "quick_jobs:run", jobs)


def statuses() -> list[str]:
    return [job.status for job in the_sweep().write_table()]


@contextlib.contextmanager
def signalled(number: int, name: str) -> Iterator[None]:
    """Signal a job; Slurm 22.05 signals one of an array again and again, which is ended after the block."""
    job = str(the_sweep().read_job(number).slurm_job)
    sending = subprocess.Popen(["scancel", f"--signal={name}", job], stderr=subprocess.DEVNULL)
    yield
    sending.kill()
    sending.wait()


def queued_jobs() -> set[str]:
    asked = ["squeue", "--noheader", "--array", "--format=%i"]
    return set(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split())


def test_preempted_slurm_job_resumes_exactly(wait_until: Wait, capsys: pytest.CaptureFixture[str]) -> None:
    """The first two jobs are the same; the second is preempted in mid-run."""
    jobs = ["-m", *TRAINING, "seed=1,1,2", *SLURM]
    assert run_command("train", "zoo.commands.train:run", jobs) == 0
    sweep = the_sweep()
    submitted = capsys.readouterr().out.splitlines()
    assert submitted[-2].startswith("zoo: submitted to Slurm: 3 jobs, ")
    assert submitted[-1] == f"zoo status {sweep.path}"
    assert DONE not in statuses()

    def steps(number: int) -> int:
        run = sweep.current_jobs()[number].run
        return 0 if run is None else run.steps or 0

    wait_until(lambda: steps(1) >= 1000)
    with signalled(1, "USR2"):
        wait_until(lambda: sweep.read_job(1).status == "preempted")
    assert status_of(["status", str(sweep.path)]) == 0
    assert "of 4,000" in capsys.readouterr().out
    wait_until(lambda: set(statuses()) == {DONE})
    assert "resume  from step" in (sweep.path / "1.log").read_text()
    assert sweep.read_job(1).restarts == 1
    rows = table()
    runs = [sweep.path / row["run"] for row in rows]
    assert len({*runs}) == 3
    assert all((run / "agent" / "policy.safetensors").is_file() for run in runs)
    weights = [(run / "agent" / "policy.safetensors").read_bytes() for run in runs]
    assert weights[0] == weights[1]
    assert weights[0] != weights[2]
    assert [row["seed"] for row in rows] == ["1", "1", "2"]
    assert all(float(row["final_score"]) <= float(row["best_score"]) for row in rows)


@pytest.mark.slow
def test_failed_and_killed_jobs_leave_others_complete(
    wait_until: Wait, capsys: pytest.CaptureFixture[str]
) -> None:
    """Job 4 waits until both its processes are killed, which leaves nobody to say so."""
    assert submit("0,1,2,3,6") == 0
    assert set(statuses()) <= {QUEUED, RUNNING}
    wait_until(Path("processes-6").exists)
    for process in Path("processes-6").read_text().split():
        os.kill(int(process), signal.SIGKILL)
    wait_until(lambda: not {QUEUED, RUNNING} & set(statuses()))
    assert statuses() == ["done", "failed", "failed", "killed", "killed"]
    reasons = [row["reason"] for row in table()]
    assert reasons[1:3] == ["seed 1 is unlucky", "RuntimeError: seed 2 is broken"]
    assert reasons[3].startswith("its process was killed by SIGKILL")
    assert reasons[4] == "its process is gone; Slurm says FAILED"
    capsys.readouterr()
    assert status_of(["status"]) == 1
    assert "5 jobs: 1 done, 2 failed, 2 killed" in capsys.readouterr().out

    Path("mended").touch()
    assert run_command("check", "quick_jobs:run", ["-m", f"sweep.resume={the_sweep().path}"]) == 0
    wait_until(lambda: statuses() == [DONE] * 5)
    assert [starts(seed) for seed in range(4)] == [1, 2, 2, 2]


@pytest.mark.slow
def test_early_signals_requeue_job(wait_until: Wait) -> None:
    assert submit("5") == 0
    wait_until(lambda: starts(5) == 1)
    with signalled(0, "USR2"), signalled(0, "USR2"):
        wait_until(lambda: the_sweep().read_job(0).status == "preempted")
    wait_until(lambda: statuses() == [DONE])
    assert starts(5) == 2
    assert the_sweep().read_job(0).restarts == 1


@pytest.mark.slow
def test_cancelled_job_is_not_queued_again(wait_until: Wait) -> None:
    assert submit("5") == 0
    wait_until(lambda: starts(5) == 1)
    subprocess.run(["scancel", str(the_sweep().read_job(0).slurm_job)], check=True)
    wait_until(lambda: statuses() == ["interrupted"])


def test_unknown_partition_is_told_in_slurms_words() -> None:
    with pytest.raises(ZooError, match=r"^Slurm did not take the jobs: .*invalid partition.*nowhere.*$"):
        submit("0", "hydra.launcher.partition=nowhere")
    assert not list(Path("runs").rglob("*.yaml"))


def test_unreleasable_jobs_leave_queue(working_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = queued_jobs()
    (working_folder / "bin").mkdir()
    (working_folder / "bin" / "scontrol").write_text("#!/bin/bash\nsqueue --array > queued\nexit 1\n")
    (working_folder / "bin" / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", str(working_folder / "bin"), prepend=os.pathsep)
    with pytest.raises(ZooError, match="Slurm did not take the jobs"):
        submit("0,7")
    assert len(Path("queued").read_text().splitlines()) == 1 + len(before) + 2
    assert queued_jobs() == before
    assert not list(Path("runs").rglob("*.yaml"))


def test_signal_delay_longer_than_timeout_is_refused() -> None:
    with pytest.raises(ZooError, match="signal_delay_s=40` leaves too little"):
        submit("0", "hydra.launcher.timeout_min=2", "hydra.launcher.signal_delay_s=40")
    assert not list(Path("runs").rglob("*.yaml"))


OF_WORKERS = [
    *("algo=ppo2", "env=CartPole-v1", "n_timesteps=2000", "algo.n_steps=32", "tuned=none", "seed=1"),
    *("compile=false", "threads=1", "policy.net_arch=[16]", "logger=csv", "callbacks.eval.n_episodes=2"),
    *("callbacks.checkpoint.keep=true", "verbose=0"),
]


def srun(*arguments: str, code: str = "") -> subprocess.CompletedProcess[str]:
    code = code or "from zoo.cli import main; main()"
    command = [sys.executable, "-c", code, "train", *OF_WORKERS, "workers=2", *arguments]
    tasks = ["srun", "--ntasks=2", "--cpus-per-task=1", *command]
    return subprocess.run(tasks, capture_output=True, text=True, timeout=400, check=False)


@pytest.mark.slow
def test_tasks_of_a_job_are_the_workers_of_one_run() -> None:
    """From Python only the first task comes back from the training."""
    code = (
        "import sys, zoo; result = zoo.train(zoo.compose('train', sys.argv[2:]));"
        " print('trained', result.algorithm.num_timesteps)"
    )
    done = srun(code=code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["trained 2048"]
    (run,) = Path("runs").glob("*/*/*")
    assert json.loads((run / "run.json").read_text())["status"] == "finished"
    checkpoint = read_checkpoint(run / "checkpoint")
    share = read_share(run / "checkpoint", 1)
    assert share["counts"]["num_timesteps"] == checkpoint.timesteps
    assert len(list((run / "monitor").iterdir())) == 2


@pytest.mark.slow
def test_slurm_task_error_is_printed_once_without_hang() -> None:
    failed = srun("policy=CnnPolicy")
    assert failed.returncode == 2
    assert failed.stderr.count("CnnPolicy reads images") == 1


SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "local_slurm.sh"


def call(action: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = ["bash", str(SCRIPT), action, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_foreign_folder_is_refused_and_unchanged(tmp_path: Path) -> None:
    folder = tmp_path / "a repository"
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
        (folder / name / "precious").write_text("precious")
    for name in ("train.log", "server.pid", "munge.py"):
        (folder / name).write_text("precious")
    (folder / "slurm.conf").write_text("ClusterName=somebody-elses\n")
    folder.chmod(0o755)
    before = sorted(folder.rglob("*"))
    try:
        started = call("start", folder)
    finally:
        call("stop", folder)
    assert started.returncode == 1
    assert "holds files that are not of this script" in started.stderr
    assert sorted(folder.rglob("*")) == before
    assert folder.stat().st_mode & 0o777 == 0o755


def test_submitit_plugin_runs_jobs_on_slurm(capfd: pytest.CaptureFixture[str]) -> None:
    submitit = ["hydra/launcher=submitit_slurm", "hydra.launcher.cpus_per_task=1", "hydra.launcher.mem_gb=1"]
    jobs = ["-m", "env=CartPole-v1", "seed=0,2", *submitit]
    assert run_command("check", "quick_jobs:run", jobs) == 1
    assert [row["status"] for row in table()] == ["done", "failed"]
    assert "RuntimeError: seed 2 is broken" in (the_sweep().path / "1.log").read_text()
