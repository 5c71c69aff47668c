"""Sweep folders of somebody else: no code of theirs is run, nothing blocks, no line harms a terminal."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
import yaml

from zoo.config.application import run_command
from zoo.config.sweeps.folder import SweepFolder, made
from zoo.config.sweeps.states import DONE
from zoo.errors import ZooError
from zoo.files import atomic
from zoo.files.plain_data import parse_json

EVIL = """
from pathlib import Path

from hydra.experimental.callback import Callback

Path("evil").touch()


class X(Callback):
    pass
"""

FUNCTION = "quick_jobs:run"


@pytest.fixture
def mine() -> SweepFolder:
    """A sweep of this user, whose second job is not done."""
    Path("evil_code.py").write_text(EVIL)
    jobs = [["env=CartPole-v1", "seed=0"], ["env=CartPole-v1", "seed=7"]]
    folder = made(
        Path("runs/multirun/20260101-120000"),
        (0, 1),
        jobs,
        command="check",
        working_folder=str(Path.cwd()),
        overrides=["env=CartPole-v1", "seed=0,7"],
        hydra_overrides=["hydra.mode=MULTIRUN"],
    )
    folder.change(0, status=DONE)
    return folder


def resume(folder: Path, *arguments: str) -> int:
    try:
        return run_command("check", FUNCTION, ["-m", f"sweep.resume={folder}", *arguments])
    finally:
        assert not Path("evil").exists()
        assert "evil_code" not in sys.modules


def edit(folder: SweepFolder, **values: object) -> None:
    record = yaml.safe_load(folder.record.read_text())
    folder.record.write_text(yaml.safe_dump({**record, **values}))


def edit_job(folder: SweepFolder, **values: object) -> None:
    file = folder.states.path / "1.json"
    atomic.write_json(file, {**parse_json(file.read_bytes()), **values})


def test_sweep_of_ones_own_goes_on_without_a_word_on_trust(mine: SweepFolder) -> None:
    assert resume(mine.path.absolute()) == 0


def test_jobs_that_somebody_changed_are_not_run(mine: SweepFolder) -> None:
    edit_job(mine, overrides=["env=CartPole-v1", "seed=2", "+hydra.callbacks.x._target_=evil_code.X"])
    with pytest.raises(ZooError, match=r"sweep\.trust=true"):
        resume(mine.path)


@pytest.mark.parametrize("key", ["overrides", "hydra_overrides"])
def test_overrides_that_somebody_changed_are_not_used(mine: SweepFolder, key: str) -> None:
    edit(mine, **{key: ["env=CartPole-v1", "+hydra.callbacks.x._target_=evil_code.X"]})
    with pytest.raises(ZooError, match=r"sweep\.trust=true"):
        resume(mine.path)
    with pytest.raises(ZooError, match=r"is not yours, so it can't set \+hydra\.callbacks"):
        resume(mine.path, "sweep.trust=true")


def test_copied_sweep_is_a_strangers_and_goes_on_with_trust(mine: SweepFolder) -> None:
    shutil.copytree(mine.path, "theirs")
    edit(SweepFolder("theirs"), working_folder="/nonexistent")
    with pytest.raises(ZooError, match=r"sweep\.trust=true"):
        resume(Path("theirs"))
    assert resume(Path("theirs"), "sweep.trust=true") == 0


@pytest.mark.parametrize("signature", [None, "", "0" * 64, "é", "\ud800", 1, ["x"]])
def test_invented_signature_is_none(mine: SweepFolder, signature: object) -> None:
    assert SweepFolder(mine.path).is_own()
    edit(mine, signature=signature)
    assert not SweepFolder(mine.path).is_own()


def test_new_sweep_does_not_take_over_jobs_that_lie_in_its_folder(mine: SweepFolder) -> None:
    mine.record.unlink()
    with pytest.raises(ZooError, match="jobs of another sweep"):
        run_command("check", FUNCTION, ["-m", "env=CartPole-v1", "seed=7", f"hydra.sweep.dir={mine.path}"])
