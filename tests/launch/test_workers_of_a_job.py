"""Workers that are the tasks of a job, on a real Slurm of this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from zoo.experiment.checkpoint import read_checkpoint, read_share

pytestmark = pytest.mark.usefixtures("no_job_left_behind")

TRAINING = [
    *("algo=ppo2", "env=CartPole-v1", "n_timesteps=2000", "algo.n_steps=32", "tuned=none", "seed=1"),
    *("compile=false", "threads=1", "policy.net_arch=[16]", "logger=csv", "callbacks.eval.n_episodes=2"),
    *("callbacks.checkpoint.keep=true", "verbose=0"),
]


def srun(*arguments: str, code: str = "") -> subprocess.CompletedProcess[str]:
    code = code or "from zoo.cli import main; main()"
    command = [sys.executable, "-c", code, "train", *TRAINING, "workers=2", *arguments]
    return subprocess.run(
        ["srun", "--ntasks=2", "--cpus-per-task=1", *command],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
        env=dict(os.environ),
    )


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


def test_mistake_in_the_first_task_is_told_once_and_the_other_hangs_nowhere() -> None:
    failed = srun("policy.features_dim=7")
    assert failed.returncode == 2
    assert failed.stderr.count("policy.features_dim") == 1
