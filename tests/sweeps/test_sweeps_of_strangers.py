"""Sweep folders of somebody else: no code of theirs is run, nothing blocks, no line harms a terminal."""

from __future__ import annotations

import csv
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from zoo.cli import status_of
from zoo.config.application import run_command
from zoo.config.sweeps.folder import SweepFolder, made
from zoo.config.sweeps.states import DONE, KILLED
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


def edit_job(folder: SweepFolder, job: int = 1, **values: object) -> None:
    file = folder.states.path / f"{job}.json"
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


RUN = "ppo2/CartPole-v1/20260101-120000_s7"


def make_run(folder: SweepFolder, path: str | Path, progress: str = "") -> Path:
    """Write the run of the second job."""
    run = folder.path / path
    run.mkdir(parents=True)
    atomic.write_json(run / "run.json", {"job": folder.job_name(1), "seed": 7})
    if progress:
        (run / "progress.csv").write_text(progress)
    return run


PROGRESS = "time/total_timesteps,rollout/ep_rew_mean\n1234,98.75\n"


def test_progress_is_shown_from_a_file_in_the_run_alone(
    mine: SweepFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(mine, RUN, PROGRESS)
    assert status_of(["status"]) == 0
    assert "1,234" in capsys.readouterr().out
    (run / "progress.csv").rename("elsewhere.csv")
    (run / "progress.csv").symlink_to(Path("elsewhere.csv").absolute())
    assert status_of(["status"]) == 0
    assert "1,234" not in capsys.readouterr().out


def test_status_does_not_wait_for_a_named_pipe(mine: SweepFolder) -> None:
    os.mkfifo(make_run(mine, RUN) / "progress.csv")
    code = "import sys; from zoo.cli import main; main()"
    command = [sys.executable, "-c", code, "status", str(mine.path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run(command, env=environment, timeout=60, check=False).returncode == 0


def test_run_behind_a_link_out_of_the_sweep_is_not_its_own(mine: SweepFolder) -> None:
    make_run(mine, Path("elsewhere").absolute(), PROGRESS)
    link = mine.path / RUN
    link.parent.mkdir(parents=True)
    link.symlink_to(Path("elsewhere").absolute())
    assert [row.run for row in mine.rows()] == [None, None]


def test_run_elsewhere_is_only_that_of_a_sweep_of_ones_own(mine: SweepFolder) -> None:
    make_run(mine, Path("elsewhere").absolute(), PROGRESS)
    resumed = made(Path("resumed"), [0], [["resume=elsewhere"]], command="train")
    (row,) = SweepFolder(resumed.path).rows()
    assert row.run is not None
    assert row.run.steps == 1234
    edit_job(resumed, 0, overrides=["resume=./elsewhere"])
    (row,) = SweepFolder(resumed.path).rows()
    assert row.run is None


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"number": 0}, "it is of job 0"),
        ({"status": "do\x1b[2Jne"}, "there is no status do[2Jne"),
        ({"slurm_job": "1 --all"}, "is no job of Slurm"),
        ({"seconds": math.inf}, "its times are no times"),
        ({"started": 1e300}, "its times are no times"),
        ({"\x1b]0;x": 1}, "unknown key"),
        ({"reason": 2**20 * "x"}, "bytes"),
    ],
)
def test_job_whose_file_is_none_of_ours_is_shown_as_killed_with_the_reason(
    mine: SweepFolder, values: dict[str, object], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    edit_job(mine, **values)
    assert status_of(["status"]) == 1
    assert "\x1b" not in capsys.readouterr().out
    first, second = mine.rows()
    assert first.status == DONE
    assert (second.status, second.state.overrides) == (KILLED, ["env=CartPole-v1", "seed=7"])
    assert second.reason.startswith("1.json was damaged: ")
    assert reason in second.reason


def test_job_whose_file_is_damaged_is_run_again_and_the_file_kept(mine: SweepFolder) -> None:
    file = mine.states.path / "1.json"
    file.write_bytes(b"\0" * 300)
    assert resume(mine.path) == 0
    assert [row.status for row in mine.rows()] == [DONE, DONE]
    assert Path("starts-7").read_text() == "x"
    assert not Path("starts-0").exists()
    assert (mine.states.path / "1.json.damaged").read_bytes() == b"\0" * 300


def test_damaged_file_of_a_job_that_the_sweep_does_not_know_is_a_mistake(
    mine: SweepFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    (mine.states.path / "2.json").write_text("{")
    assert status_of(["status"]) == 2
    assert "2.json" in capsys.readouterr().err


def test_numbers_of_a_run_that_make_no_sense_are_left_out(
    mine: SweepFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(mine, RUN, "time/total_timesteps,time/fps\n1234,1e-320\n")
    (run / "config.yaml").write_text("n_timesteps: 0")
    (run / "best_agent").mkdir()
    (run / "best_agent" / "card.json").write_text('{"mean_return": 1' + 400 * "0" + "}")
    assert status_of(["status"]) == 0
    assert "1,234" in capsys.readouterr().out
    (run / "config.yaml").write_text("n_timesteps: 1e300")
    assert status_of(["status"]) == 0


def test_table_holds_nothing_that_a_spreadsheet_computes(mine: SweepFolder) -> None:
    edit_job(mine, overrides=["=1+1"], status="failed", reason="@SUM(1)")
    mine.write_table()
    _, row = csv.DictReader(mine.table.open())
    assert (row["overrides"], row["reason"]) == ("'=1+1", "'@SUM(1)")


def test_sweep_of_megabytes_is_not_read(mine: SweepFolder) -> None:
    with open(mine.record, "a") as file:
        file.write(f"more: [{2**22 * ' '}]\n")
    with pytest.raises(ZooError, match=r"can't read .*sweep\.yaml: .* bytes"):
        SweepFolder(mine.path).read_record()


def test_table_behind_a_link_is_not_read_and_not_written(mine: SweepFolder) -> None:
    text = mine.table.read_bytes()
    Path("own.txt").write_text("mine")
    mine.table.unlink()
    mine.table.symlink_to(Path("own.txt").absolute())
    mine.write_table()
    assert Path("own.txt").read_text() == "mine"
    assert mine.table.read_bytes() == text
    assert not mine.table.is_symlink()


def test_log_behind_a_link_is_not_written(mine: SweepFolder) -> None:
    shutil.copytree(mine.path, "theirs")
    Path("own.txt").write_text("mine")
    Path("theirs/1.log").symlink_to(Path("own.txt").absolute())
    with pytest.raises(ZooError, match=r"1\.log is a link"):
        resume(Path("theirs"), "sweep.trust=true")
    assert Path("own.txt").read_text() == "mine"


def test_states_behind_a_link_are_not_written(mine: SweepFolder) -> None:
    shutil.copytree(mine.path, "theirs")
    shutil.move("theirs/jobs", "elsewhere")
    Path("theirs/jobs").symlink_to(Path("elsewhere").absolute())
    before = Path("elsewhere/1.json").read_bytes()
    with pytest.raises(ZooError, match="jobs is a link"):
        resume(Path("theirs"), "sweep.trust=true")
    assert Path("elsewhere/1.json").read_bytes() == before
