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


def require(*arguments: str | Path) -> None:
    """Run a command that only root, on some systems, can run; skip the test with what it says."""
    try:
        done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip(f"there is no {arguments[0]} here")
    if done.returncode != 0:
        pytest.skip(f"{arguments[0]}: {done.stderr.strip()}")


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
    image = tmp_path / "disk.img"
    with open(image, "wb") as file:
        file.truncate(64 * 2**20)
    require("mkfs.ext4", "-q", "-F", image)
    cut = tmp_path / "cut.img"
    with mounted(image, "loop,commit=600") as disk:
        train_until_the_power_is_cut(what, disk, cut, 2 * EVERY.get(what, 2000), *overrides)
    whole, _ = train_whole(what, tmp_path / "whole", *overrides)
    with mounted(cut, "loop") as disk:
        run = run_folder(disk)
        resume = [ZOO, "train", f"resume={run}", "progress_bar=false"]
        resumed = subprocess.run(resume, cwd=disk, capture_output=True, text=True, timeout=300, check=False)
        assert (resumed.returncode, resumed.stderr) == (0, ""), "nothing is lost"
        assert_same_end(run, whole)
