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
