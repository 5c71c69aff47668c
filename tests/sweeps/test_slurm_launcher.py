"""What the launcher for Slurm does with a sweep's folder, without a Slurm."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from zoo.config.sweeps import slurm_launcher
from zoo.config.sweeps.folder import SweepFolder, made
from zoo.config.sweeps.slurm_launcher import SlurmLauncher
from zoo.config.sweeps.states import DONE, QUEUED
from zoo.errors import ZooError


def launcher_of(folder: SweepFolder) -> SlurmLauncher:
    launcher: Any = SlurmLauncher()
    launcher.config = None
    launcher.sweep = SimpleNamespace(
        folder=folder,
        settings=SimpleNamespace(wait=True),
        is_left_to_slurm=False,
        add_jobs=lambda *given: [0, 1],
    )
    return launcher


def two_jobs() -> SweepFolder:
    names = {"command": "train", "launcher": "slurm", "working_folder": str(Path.cwd())}
    return made(
        Path("sweep"), [0, 1], [["seed=0"], ["seed=1"]], overrides=[], hydra_overrides=[], config={}, **names
    )


def test_moment_in_which_a_job_cant_be_read_takes_no_sweep_away(
    working_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = two_jobs()
    launcher = launcher_of(folder)

    def submit(folder: SweepFolder, numbers: list[int]) -> str:
        for number in numbers:
            folder.states.change(number, status=QUEUED, slurm_job=f"77_{number}")
        return "77"

    monkeypatch.setattr(launcher, "_submit", submit)
    monkeypatch.setattr(slurm_launcher, "SECONDS_BETWEEN_LOOKS", (0.01, 0.01))
    rows, looks = SweepFolder.rows, []

    def rows_of_a_bad_disk(self: SweepFolder) -> Any:
        looks.append(1)
        if len(looks) < 4:
            raise ZooError("can't read sweep/jobs/0.json: Stale file handle")
        for number in (0, 1):
            self.states.change(number, status=DONE, exit_status=0)
        return rows(self)

    monkeypatch.setattr(SweepFolder, "rows", rows_of_a_bad_disk)
    assert len(launcher.launch([["seed=0"], ["seed=1"]], 0)) == 2
    assert len(looks) >= 4
    assert [row.status for row in folder.rows()] == [DONE, DONE]


def test_sweep_that_slurm_does_not_take_is_gone(
    working_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = launcher_of(two_jobs())

    def refuse(folder: SweepFolder, numbers: list[int]) -> str:
        raise ZooError("Slurm did not take the jobs: no such partition")

    monkeypatch.setattr(launcher, "_submit", refuse)
    with pytest.raises(ZooError, match="no such partition"):
        launcher.launch([["seed=0"], ["seed=1"]], 0)
    assert not Path("sweep").exists()
