"""The script that starts a Slurm of one machine."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "local_slurm.sh"


def call(action: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = ["bash", str(SCRIPT), action, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_folder_with_files_of_others_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
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


@pytest.mark.usefixtures("slurm")
def test_slurm_is_started_again_over_what_a_killed_one_left_and_harms_no_other(tmp_path: Path) -> None:
    folder = tmp_path / "second slurm"
    started = call("start", folder)
    try:
        assert started.returncode == 0, started.stderr
        os.kill(int((folder / "slurmctld.pid").read_text()), signal.SIGKILL)
        os.kill(int((folder / "slurmd.pid").read_text()), signal.SIGKILL)
        assert call("start", folder).stdout == started.stdout
        assert call("status", folder).returncode == 0
    finally:
        assert call("stop", folder).returncode == 0
    assert call("status", folder).returncode == 1
    others = subprocess.run(
        ["sinfo", "--noheader", "--format=%t"], capture_output=True, text=True, check=True
    )
    assert set(others.stdout.split()) <= {"idle", "mix", "alloc"}
