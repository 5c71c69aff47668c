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


@pytest.mark.parametrize("kind", ["a folder", "a link of somebody else"])
def test_what_stands_where_the_link_belongs_is_refused(tmp_path: Path, kind: str) -> None:
    folder, elsewhere = tmp_path / "slurm", tmp_path / "elsewhere"
    elsewhere.mkdir()
    sum_of_name = subprocess.run(["cksum"], input=bytes(folder), capture_output=True, check=True)
    link = Path(f"/tmp/zoo-slurm-{os.getuid()}-{sum_of_name.stdout.split()[0].decode()}")
    try:
        if kind == "a folder":
            link.mkdir()
        elif os.getuid() != 0:
            pytest.skip("it takes root to make a link of somebody else")
        else:
            link.symlink_to(elsewhere)
            os.chown(link, 12345, 12345, follow_symlinks=False)
        started = call("start", folder)
        assert started.returncode == 1
        assert f"{link} is in the way" in started.stderr
        assert not folder.exists()
        assert list(link.iterdir()) == []
    finally:
        call("stop", folder)
        link.unlink() if link.is_symlink() else link.rmdir()


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
