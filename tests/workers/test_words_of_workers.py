"""Workers hear their own user only, and write where their run stands."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch.distributed as dist
from forked_workers import together
from zoo.training.signed_words import Words

from zoo.cli import status_of
from zoo.errors import ZooError
from zoo.files.file_lock import FileLock
from zoo.optim.workers import Workers
from zoo.training.checkpoint import CHECKPOINT, RESTORE
from zoo.training.job import Task, slurm_task
from zoo.training.worker_folder import LOCK, WorkerFolder
from zoo.training.worker_process import _take_orders
from zoo.training.workers import open_store

PLAIN = ["train", "algo=ppo2", "env=CartPole-v1", "workers=2", "verbose=0", "progress_bar=false"]
SHORT = [
    *("n_envs=2", "n_timesteps=128", "algo.n_steps=32", "threads=1", "compile=false", "callbacks.eval=null"),
    *(
        "logger=csv",
        "tuned=none",
        "callbacks.checkpoint.every=64",
        "callbacks.checkpoint.keep=true",
        "seed=1",
    ),
]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def job(rank: int, port: int) -> dict[str, str]:
    """What Slurm would tell a task."""
    told = {"STEP_NUM_TASKS": "2", "JOB_ID": "7", "STEP_ID": "0", "PROCID": str(rank), "LOCALID": str(rank)}
    told |= {"STEP_TASKS_PER_NODE": "2", "STEP_NODELIST": "here", "STEP_NUM_NODES": "1"}
    return {**{f"SLURM_{name}": value for name, value in told.items()}, "MASTER_PORT": str(port)}


def new_key(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder))


def test_words_of_this_user_for_this_step_are_heard_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_key(tmp_path / "own", monkeypatch)
    store = dist.HashStore()
    words = Words(store, "step 1")
    assert not words.has("config")
    words.write("config", "größe\n")
    assert words.has("config")
    assert Words(store, "step 1").read("config") == "größe\n"
    assert (tmp_path / "own" / "zoo" / "key").is_file()
    signed = store.get("config")
    with pytest.raises(
        ZooError, match="`config` where the workers of this job meet is not signed by your key"
    ):
        Words(store, "step 2").read("config")
    store.set("failed/1", signed)
    changed = signed.decode().replace("gr", "kr").encode()
    hostile = [changed, b"", b"null", b"[1, 2]", b'["x"]', b'{"a": 1, "b": 2}', b"\xff", b"[" * 5000]
    for index, content in enumerate(hostile):
        store.set(f"{index}", content)
    for name in ("failed/1", *map(str, range(len(hostile)))):
        with pytest.raises(ZooError, match="not signed by your key") as caught:
            words.read(name)
        assert "\n" not in str(caught.value)
    new_key(tmp_path / "somebody", monkeypatch)
    with pytest.raises(ZooError, match="not signed by your key"):
        Words(store, "step 1").read("config")


def test_words_in_a_folder_of_ones_own_need_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new_key(tmp_path, monkeypatch)
    words = Words(dist.HashStore(), None)
    words.write("config", "x")
    assert words.read("config") == "x"
    assert not list(tmp_path.iterdir())


def test_job_without_a_key_is_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    new_key(tmp_path / "file", monkeypatch)
    with pytest.raises(ZooError, match="know each other by your key, and there is none"):
        Words(dist.HashStore(), "step")


def test_process_without_the_key_is_no_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new_key(tmp_path / "own", monkeypatch)

    def work(workers: Workers) -> str | None:
        if workers.rank == stranger_rank:
            new_key(tmp_path / "somebody", monkeypatch)
        try:
            Words(dist.HashStore(), "step").check_members(workers)
        except ZooError as error:
            return str(error)
        finally:
            new_key(tmp_path / "own", monkeypatch)
        return None

    stranger_rank = -1
    assert together(work) == [None, None]
    for stranger_rank in (0, 1):  # noqa: B007 - the work reads it
        problems = together(work)
        assert problems == [
            f"worker {rank} of this job has not your key: it is somebody else's process" for rank in (1, 0)
        ]


def test_worker_takes_no_config_of_somebody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Somebody sits at the port before the first task does, and names an environment whose module runs."""
    (tmp_path / "evil.py").write_text("open('ran', 'w')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    store = dist.TCPStore("127.0.0.1", 0, 2, True, wait_for_workers=False)
    config = {"env": {"id": "evil:X-v0"}, "device": "cpu", "compile": False, "algo": {"name": "ppo2"}}
    store.set("config", json.dumps([config, str(tmp_path)]))
    for name, value in job(1, store.port).items():
        monkeypatch.setenv(name, value)
    assert status_of([*PLAIN, *SHORT]) == 2
    message = capsys.readouterr().err
    assert "`config` where the workers of this job meet is not signed" in message
    assert message.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["evil.py"]


def test_first_of_tasks_on_one_node_listens_to_that_node_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in job(0, free_port()).items():
        monkeypatch.setenv(name, value)
    task = slurm_task()
    assert task is not None
    store = open_store(task)
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    everywhere = [line.split() for line in Path("/proc/net/tcp6").read_text().splitlines()[1:]]
    listening = [line[1] for line in lines + everywhere if line[3] == "0A"]
    assert [place for place in listening if place.endswith(f":{task.port:04X}")] == [
        f"0100007F:{task.port:04X}"
    ]
    other = open_store(dataclasses.replace(task, rank=1))
    other.set("a", "b")
    assert store.get("a") == b"b"
    with pytest.raises(ZooError, match="worker 0 can't listen at"):
        open_store(task)


def test_steps_of_jobs_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = []
    for changes in ({}, {"JOB_ID": "8"}, {"STEP_ID": "1"}, {"RESTART_COUNT": "1"}, {"CLUSTER_NAME": "c"}):
        for name, value in {**job(1, 5), **{f"SLURM_{name}": v for name, v in changes.items()}}.items():
            monkeypatch.setenv(name, value)
        task = slurm_task()
        assert isinstance(task, Task)
        steps.append(task.step)
    assert len(set(steps)) == len(steps)


@pytest.mark.parametrize("order", [CHECKPOINT, RESTORE])
def test_worker_writes_and_reads_in_its_own_run_only(order: str, tmp_path: Path) -> None:
    def work(workers: Workers) -> str | None:
        if workers.is_first:
            workers.order(order, folder=str(tmp_path / "elsewhere"))
            return None
        algorithm: Any = SimpleNamespace(team=SimpleNamespace(orders={}))
        try:
            _take_orders(algorithm, workers, tmp_path / "checkpoint")
        except ZooError as error:
            return str(error)
        return None

    problem = together(work)[1]
    assert (
        problem == f"it is told of a checkpoint in {tmp_path}/elsewhere; the run's is {tmp_path}/checkpoint"
    )
    assert not list(tmp_path.iterdir())


@pytest.fixture
def tasks(tmp_path: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The two tasks of a job that run the same command."""
    port = free_port()
    code = [sys.executable, "-c", "from zoo.cli import main; main()"]
    started = [
        subprocess.Popen(
            [*code, *PLAIN, *SHORT],
            cwd=tmp_path,
            env={**os.environ, **job(rank, port), "XDG_CONFIG_HOME": str(tmp_path / "home")},
            stderr=subprocess.PIPE,
        )
        for rank in (0, 1)
    ]
    yield started
    for process in started:
        process.kill()
        process.communicate()


def test_tasks_of_a_job_learn_together(tasks: list[subprocess.Popen[bytes]], tmp_path: Path) -> None:
    for task in tasks:
        _, errors = task.communicate(timeout=300)
        assert task.returncode == 0, errors.decode()
    (run,) = tmp_path.glob("runs/*/*/*")
    record = json.loads((run / "checkpoint" / "checkpoint.json").read_text())
    assert record["timesteps"] == 128
    assert json.loads((run / "run.json").read_text())["status"] == "finished"


def test_folder_whose_processes_are_gone_is_removed_by_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    long_ago = time.time() - 1000
    for name in ("abandoned", "alive", "young", "link"):
        folder = tmp_path / f"zoo-workers-{name}"
        if name == "link":
            (tmp_path / "target").mkdir()
            folder.symlink_to(tmp_path / "target")
            continue
        folder.mkdir()
        (folder / "store").touch()
        (folder / LOCK).touch()
        if name != "young":
            os.utime(folder, (long_ago, long_ago))
    lock = "import sys; from zoo.files.file_lock import FileLock; from pathlib import Path;"
    lock += (
        f"FileLock(Path({str(tmp_path / 'zoo-workers-alive' / LOCK)!r})).acquire(); print(); sys.stdin.read()"
    )
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", lock], **pipes) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        own = WorkerFolder()
        left = {path.name.removeprefix("zoo-workers-") for path in tmp_path.iterdir()} - {"target"}
        assert left == {"alive", "young", "link", own.path.name.removeprefix("zoo-workers-")}
        assert (own.path / LOCK).exists()
        own.remove()
        assert not own.path.exists()
        assert isinstance(own._lock, FileLock)
        holder.kill()
