"""Runs on a disk whose power is cut, resumed from what had reached it, and compared bit for bit."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from test_killed_runs import EVERY, WORKERS, ZOO, assert_same_end, command, run_folder, train_whole

from zoo.core import atomic


def require(*arguments: str | Path) -> None:
    """Run a command that only root, on some systems, can run; skip the test with what it says."""
    try:
        done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip(f"there is no {arguments[0]} here")
    if done.returncode != 0:
        pytest.skip(f"{arguments[0]}: {done.stderr.strip()}")


def empty_disk(folder: Path) -> Path:
    image = folder / "disk.img"
    with open(image, "wb") as file:
        file.truncate(64 * 2**20)
    require("mkfs.ext4", "-q", "-F", image)
    return image


@contextmanager
def mounted(image: Path, options: str) -> Iterator[Path]:
    """Mount a disk image at a folder beside it."""
    folder = image.with_suffix("")
    folder.mkdir()
    require("mount", "-o", options, image, folder)
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def train_until_the_power_is_cut(what: str, disk: Path, image: Path, steps: int, *overrides: str) -> None:
    """Train on a mounted image; after a checkpoint at ``steps`` copy what has reached it, and kill all."""
    process = subprocess.Popen(command(what, *overrides), cwd=disk, start_new_session=True)
    try:
        while process.poll() is None and newest_checkpoint(disk) < steps:
            time.sleep(0.005)
        os.killpg(process.pid, signal.SIGSTOP)
        shutil.copy(disk.with_suffix(".img"), image)
        assert process.poll() is None, "the run has finished"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def newest_checkpoint(disk: Path) -> int:
    for path in disk.glob("runs/*/*/*/checkpoint/checkpoint.json"):
        return int(json.loads(path.read_text())["timesteps"])
    return 0


SLOWER = [
    *(("sac", []), ("a2c", []), ("dqn", []), ("ddpg", []), ("walker", []), ("prioritized", [])),
    *(("hindsight", []), ("ppo2", WORKERS), ("sac", WORKERS), ("dqn", WORKERS)),
]


@pytest.mark.parametrize(
    ("what", "overrides"),
    [("ppo2", []), *(pytest.param(*each, marks=pytest.mark.slow) for each in SLOWER)],
)
def test_run_whose_power_was_cut_ends_as_if_it_had_never_stopped(
    what: str, overrides: list[str], tmp_path: Path
) -> None:
    """Whatever is not forced to this disk stays off it for ten minutes."""
    image, cut = empty_disk(tmp_path), tmp_path / "cut.img"
    with mounted(image, "loop,commit=600") as disk:
        train_until_the_power_is_cut(what, disk, cut, 2 * EVERY.get(what, 2000), *overrides)
    whole, _ = train_whole(what, tmp_path / "whole", *overrides)
    with mounted(cut, "loop") as disk:
        run = run_folder(disk)
        resume = [ZOO, "train", f"resume={run}", "progress_bar=false"]
        resumed = subprocess.run(resume, cwd=disk, capture_output=True, text=True, timeout=300, check=False)
        assert (resumed.returncode, resumed.stderr) == (0, ""), "nothing is lost"
        assert_same_end(run, whole)


LOGS = ["progress.csv", "evaluations.npz", "monitor/0.monitor.csv", "monitor/3.monitor.csv"]


def test_run_that_was_recorded_as_finished_has_all_its_logs_after_a_power_cut(tmp_path: Path) -> None:
    """Its checkpoint, from which they could be made again, is gone."""
    image, cut = empty_disk(tmp_path), tmp_path / "cut.img"
    with mounted(image, "loop,commit=600") as disk:
        overrides = ["logger=[csv,tensorboard]", "callbacks.checkpoint.every=7000"]  # none at the end
        overrides.append("callbacks.checkpoint.keep=false")
        subprocess.run(command("ppo2", *overrides), cwd=disk, check=True)
        run = run_folder(disk)
        atomic.sync(run)  # that the checkpoint is gone reaches the disk, as it may at any time
        shutil.copy(image, cut)
        logs = [*LOGS, *(f"tb/{path.name}" for path in run.glob("tb/*"))]
        whole = {log: (run / log).read_bytes() for log in logs}
    with mounted(cut, "loop") as disk:
        run = run_folder(disk)
        assert json.loads((run / "run.json").read_text())["status"] == "finished"
        assert not (run / "checkpoint").exists()
        for log in logs:
            assert (run / log).read_bytes() == whole[log], f"{log} lacks rows"
