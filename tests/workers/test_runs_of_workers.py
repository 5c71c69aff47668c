"""Runs of several workers: one folder, one end for all, and exact resume."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from forked import Forked
from safetensors.numpy import load_file

import zoo
from zoo.cli import status_of
from zoo.errors import ZooError
from zoo.experiment.checkpoint import (
    read_checkpoint,
    read_share,
    write_checkpoint,
)
from zoo.experiment.workers import Task, rank_config, slurm_task

COMMON = [
    *("workers=2", "tuned=none", "seed=3", "threads=1", "compile=false", "verbose=0", "logger=csv"),
    *("callbacks.eval.n_episodes=2", "policy.net_arch=[16]", "callbacks.checkpoint.keep=true"),
    "env.reseed_every=100",
]
RUNS = {
    "ppo2": [
        *("algo=ppo2", "env=CartPole-v1", "n_envs=2", "n_timesteps=2500", "algo.n_steps=32"),
        *("env.normalize=true", "algo.target_kl=0.01", "callbacks.eval.every=800"),
        "callbacks.checkpoint.every=300",
    ],
    "sac": [
        *("algo=sac", "env=Pendulum-v1", "n_timesteps=700", "algo.batch_size=16", "algo.learning_starts=50"),
        *("algo.train_freq=8", "algo.gradient_steps=2", "callbacks.eval.every=300"),
        *("callbacks.checkpoint.every=150", "env.max_episode_steps=50"),
    ],
}


def started(arguments: list[str], folder: Path, **variables: str) -> Forked:
    folder.mkdir(exist_ok=True)
    return Forked(lambda: status_of(["train", *arguments]), folder, **variables)


def wait_for(process: Forked, folder: Path, name: str) -> None:
    """Wait until a run that is going on has this file among its checkpoints."""
    deadline = time.monotonic() + 300
    while not list(folder.glob(f"runs/*/*/*/checkpoint/{name}")):
        assert process.poll() is None, "it has ended"
        assert time.monotonic() < deadline, "it hangs"
        time.sleep(0.01)


def run_in(folder: Path) -> Path:
    (found,) = folder.glob("runs/*/*/*")
    return found


def weights(run: Path) -> dict[str, np.ndarray]:
    return load_file(run / "agent" / "policy.safetensors")


def assert_equal(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        assert np.array_equal(array, theirs[name]), name


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in text.split()]


@pytest.mark.parametrize("algo", ["ppo2", pytest.param("sac", marks=pytest.mark.slow)])
def test_killed_workers_go_on_exactly(algo: str, tmp_path: Path) -> None:
    """All are killed at once, in the middle; the whole run shows that the same seed gives the same again."""
    whole = started([*RUNS[algo], *COMMON], tmp_path / "whole")
    _, errors = whole.communicate(timeout=300)
    assert whole.returncode == 0, errors
    killed = started([*RUNS[algo], *COMMON], tmp_path / "killed")
    wait_for(killed, tmp_path / "killed", "checkpoint.json")
    time.sleep(random.Random(algo).uniform(0.0, 0.3))
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    run = run_in(tmp_path / "killed")
    resumed = started([f"resume={run}", "verbose=0"], tmp_path / "killed")
    _, errors = resumed.communicate(timeout=300)
    assert resumed.returncode == 0, errors
    assert_equal(weights(run), weights(run_in(tmp_path / "whole")))
    _all_stands_in_one_folder(run_in(tmp_path / "whole"), run, n_envs=2 * (2 if algo == "ppo2" else 1))


def _all_stands_in_one_folder(whole: Path, resumed: Path, n_envs: int) -> None:
    """Both have the same episodes of all environments, and each worker's share holds equal weights."""
    names = sorted(path.name for path in (whole / "monitor").iterdir())
    assert names == sorted(f"{index}.monitor.csv" for index in range(n_envs))
    n_episodes = 0
    for name in names:
        rows, others = ((run / "monitor" / name).read_text().splitlines() for run in (whole, resumed))
        assert [row.split(",")[:2] for row in rows[1:]] == [row.split(",")[:2] for row in others[1:]]
        assert len(rows) > 2, "no episode of this environment was written down"
        n_episodes += len(rows) - 2
    steps = [json.loads((run / "run.json").read_text())["timesteps"] for run in (whole, resumed)]
    assert steps[0] == steps[1] >= 700
    for run in (whole, resumed):
        checkpoint = read_checkpoint(run / "checkpoint")
        state = checkpoint.algorithm
        share = read_share(run / "checkpoint", 1)
        assert state["counts"]["n_episodes"] <= n_episodes
        assert share["counts"]["num_timesteps"] == checkpoint.timesteps
        assert_equal(state["tensors"], share["tensors"])
        generators = state["generators"]["rng"], share["generators"]["rng"]
        assert generators[0] != generators[1], "workers draw the same numbers"


FALLING = [
    *("algo=ppo2", "env=falling_envs:Falling-v0", "n_envs=2", "n_timesteps=100000", "algo.n_steps=16"),
    *("callbacks.eval=null", "callbacks.checkpoint.every=100", "env.check=false"),
]


@pytest.mark.parametrize(
    ("fall", "told"),
    [
        ("raise", ["rank 1: env ", "ValueError", "the pole is broken", "in fall"]),
        pytest.param(
            "lose",
            ["rank 1: env ", "RuntimeError", "Connection to the simulator is lost", "in fall"],
            marks=pytest.mark.slow,
        ),
        pytest.param("exit", ["rank 1 of 2", "exit status 7"], marks=pytest.mark.slow),
        ("kill", ["rank 1 of 2", "SIGKILL"]),
    ],
)
def test_dead_rank_ends_run_and_checkpoint_stays(
    fall: str, told: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.setenv("FALL", fall)
    monkeypatch.setenv("FIRST", str(os.getpid()))
    config = zoo.compose("train", [*FALLING, *COMMON, "progress_bar=false"])
    started = time.monotonic()
    with pytest.raises(ZooError) as raised:
        zoo.train(config)
    assert time.monotonic() - started < 300, "it did not end by itself"
    assert all(part in str(raised.value) for part in told), str(raised.value)
    run = run_in(tmp_path)
    record = json.loads((run / "run.json").read_text())
    assert record["status"] == "failed"
    assert told[0] in record["error"]
    checkpoint = read_checkpoint(run / "checkpoint")
    assert checkpoint.timesteps == read_share(run / "checkpoint", 1)["counts"]["num_timesteps"]


def test_killed_rank_0_leaves_nothing_behind(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    endless = [*RUNS["ppo2"], *COMMON, "n_timesteps=10000000"]
    first = started(endless, tmp_path / "killed", TMPDIR=str(scratch))
    wait_for(first, tmp_path / "killed", "checkpoint.json")
    others = children(first.pid)
    assert len(others) == 1
    first.kill()
    first.communicate()
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{pid}/stat").exists() and _is_alive(pid) for pid in others):
        assert time.monotonic() < deadline, "a worker goes on without the first one"
        time.sleep(0.05)
    assert not list(scratch.glob("zoo-ranks*"))


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("to_all", [pytest.param(True, marks=pytest.mark.slow), False])
def test_signal_ends_all_workers_after_the_same_update(to_all: bool, tmp_path: Path) -> None:
    """Ctrl-C reaches the whole group; SIGTERM may come to the other worker alone. Both leave a checkpoint."""
    first = started([*RUNS["ppo2"], *COMMON, "n_timesteps=10000000"], tmp_path / "preempted")
    wait_for(first, tmp_path / "preempted", "checkpoint.json")
    if to_all:
        os.killpg(first.pid, signal.SIGINT)
    else:
        os.kill(children(first.pid)[0], signal.SIGTERM)
    _, errors = first.communicate(timeout=200)
    assert first.returncode == 130, errors
    run = run_in(tmp_path / "preempted")
    record = json.loads((run / "run.json").read_text())
    assert record["status"] == "preempted"
    checkpoint = read_checkpoint(run / "checkpoint")
    assert checkpoint.timesteps == record["timesteps"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU, which this test asks for in vain")
def test_what_workers_cannot_do_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    plain = ["train", "algo=ppo2", "env=CartPole-v1", "workers=2"]
    assert status_of([*plain, "device=cuda:0"]) == 2
    assert "device=cuda:0" in capsys.readouterr().err
    assert status_of([*plain, "device=cuda"]) == 2
    assert "each rank needs a GPU: there are 2 ranks here, and 0" in capsys.readouterr().err
    assert status_of([*plain[:-1], "workers=0"]) == 2
    assert "workers" in capsys.readouterr().err
    assert status_of(["train", "algo=acer", *plain[2:]]) == 2
    assert "acer can't learn as several processes" in capsys.readouterr().err
    for name, value in {"STEP_NUM_TASKS": "3", "JOB_ID": "5", "PROCID": "0", "LOCALID": "0"}.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    monkeypatch.setenv("SLURM_STEP_TASKS_PER_NODE", "3")
    assert status_of(plain) == 2
    assert "Slurm has started 3 tasks" in capsys.readouterr().err
    assert not list(tmp_path.glob("runs/*/*/*"))


def test_places_of_workers_come_from_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    assert slurm_task() is None
    job = {"JOB_ID": "41000", "STEP_ID": "2", "STEP_NUM_TASKS": "5", "STEP_NUM_NODES": "2", "PROCID": "4"}
    job |= {"NODEID": "1", "LOCALID": "1", "STEP_TASKS_PER_NODE": "3,2", "STEP_NODELIST": "gpu[07-08]"}
    for name, value in job.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    task = slurm_task()
    assert task is not None
    assert (task.rank, task.size, task.local_rank, task.local_size) == (4, 5, 1, 2)
    assert (task.address, task.port) == ("gpu07", 15_000 + (41_000 + 62) % 16_000)
    monkeypatch.setenv("SLURM_STEP_NODELIST", "rack1n[3,5-9]x,rack2")
    monkeypatch.setenv("SLURM_STEP_TASKS_PER_NODE", "1,2(x3)")
    task = slurm_task()
    assert task is not None
    assert (task.address, task.local_size) == ("rack1n3x", 2)
    monkeypatch.setenv("MASTER_ADDR", "login")
    monkeypatch.setenv("MASTER_PORT", "4711")
    task = slurm_task()
    assert task is not None
    assert (task.address, task.port) == ("login", 4711)


HERE, OF_JOB = Task(1, 2, 1, 2), Task(1, 4, 1, 2, "127.0.0.1", 15_000)


@pytest.mark.parametrize(
    ("asked", "n_gpus", "of", "device"),
    [
        ("auto", 2, HERE, "cuda:1"),
        ("cuda", 2, HERE, "cuda:1"),
        ("auto", 0, HERE, "cpu"),
        ("auto", 2, OF_JOB, "cuda:1"),
        ("auto", 1, OF_JOB, "cuda:0"),
        ("cuda", 1, OF_JOB, "cuda:0"),
        ("auto", 0, OF_JOB, "cpu"),
        ("cpu", 2, OF_JOB, "cpu"),
    ],
)
@pytest.mark.parametrize("gpus_on_node", ["", "2"])
def test_each_rank_has_a_gpu_of_its_own(
    asked: str, n_gpus: int, of: Task, device: str, gpus_on_node: str, monkeypatch: Any, capsys: Any
) -> None:
    """A task of a job may see its own alone, which is the first one that it sees."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: n_gpus)
    monkeypatch.setenv("SLURM_GPUS_ON_NODE", gpus_on_node)
    config = rank_config({"device": asked, "compile": "auto"}, of)
    assert config == {"device": device, "compile": "auto" if device == "cpu" else False}
    assert capsys.readouterr().err == ""


def test_ranks_do_not_share_a_gpu(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setenv("SLURM_GPUS_ON_NODE", "1")
    assert rank_config({"device": "auto", "compile": "auto"}, OF_JOB)["device"] == "cpu"
    assert "each needs a GPU" in capsys.readouterr().err
    with pytest.raises(ZooError, match="2 ranks here, and 1"):
        rank_config({"device": "cuda", "compile": "auto"}, OF_JOB)


def test_checkpoint_of_other_workers_is_refused(tmp_path: Path) -> None:
    """A config that somebody has edited does not make another run of this one, with a part of its state."""
    share = {"tensors": "8-0123abcd.safetensors", "tensors_checksum": 0, "parts": {}, "algorithm": {}}
    workers: Any = SimpleNamespace(order=lambda *_, **__: None, gather=lambda own: [own, share])
    distributed = SimpleNamespace(workers=workers)
    algorithm: Any = SimpleNamespace(num_timesteps=8, state=dict, envs=None, distributed=distributed)
    write_checkpoint(tmp_path, algorithm)
    for n_workers in (1, 3):
        with pytest.raises(ZooError, match=rf"of workers=2, and can't go on with workers={n_workers}"):
            read_checkpoint(tmp_path, n_workers)
    with pytest.raises(ZooError, match="is missing"):  # what it holds was never written
        read_checkpoint(tmp_path, 2)
