"""A job's run goes on when the same command is given again, and is not begun beside itself."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import zoo
from zoo.errors import ZooError
from zoo.experiment.experiment import Experiment
from zoo.experiment.resume import one_start_per_job
from zoo.experiment.run_folder import RunFolder

HOLDING = """
import sys
from zoo.experiment.run_folder import RunFolder
run = RunFolder.reopen(sys.argv[1])
print("going on", flush=True)
sys.stdin.read()
"""
BEGINNING = """
import json, sys
from zoo.errors import ZooError
from zoo.experiment.resume import one_start_per_job
print("beginning", flush=True)
try:
    with one_start_per_job(json.loads(sys.argv[1])):
        print("begun")
except ZooError as error:
    print(error)
"""

Other = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def other() -> Iterator[Other]:
    processes: list[subprocess.Popen[str]] = []

    def started(program: str, *arguments: object) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", program, *map(str, arguments)]
        processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        assert processes[-1].stdout is not None
        processes[-1].stdout.readline()
        return processes[-1]

    yield started
    for process in processes:
        process.kill()
        process.communicate()


def config_of(folder: Path, seed: int | None) -> dict[str, Any]:
    given = ["algo=ppo2", "env=CartPole-v1", "n_timesteps=32", "algo.n_steps=32", "algo.batch_size=32"]
    quick = ["tuned=none", "threads=1", "compile=false", "callbacks=none", "logger=none", "job=night"]
    named = [f"seed={'null' if seed is None else seed}", f"runs_dir={folder}"]
    return dict(zoo.compose("train", [*given, *quick, *named]))


def made(folder: Path) -> RunFolder:
    """Make a run and leave it as if its process had been killed."""
    with Experiment(config_of(folder, 3)) as experiment:
        return experiment.run


def test_a_job_that_still_goes_on_is_not_begun_again(tmp_path: Path, other: Other) -> None:
    run = made(tmp_path)
    process = other(HOLDING, run.path)
    with pytest.raises(ZooError, match=r"^job night is still going on in .*_s3, with this config and seed"):
        made(tmp_path)
    process.kill()
    process.wait()
    assert made(tmp_path).path == run.path


def test_neighbours_with_seeds_that_are_drawn_go_on_side_by_side(tmp_path: Path, other: Other) -> None:
    run = made(tmp_path)
    other(HOLDING, run.path)
    with Experiment(config_of(tmp_path, None)) as experiment:
        assert experiment.run.path != run.path


def test_of_two_that_begin_at_once_the_second_is_refused(tmp_path: Path, other: Other) -> None:
    config = {"runs_dir": str(tmp_path), "seed": 3, "job": "night", "callbacks": {}}
    with one_start_per_job(config):
        process = other(BEGINNING, json.dumps(config))
        run = RunFolder.create(tmp_path, "ppo2", "CartPole-v1", seed=3)
        run.write_config(config)
    answer, _ = process.communicate()
    assert answer.startswith(f"job night is still going on in {run.path}")
