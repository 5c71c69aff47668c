"""What Weights & Biases gets of a run: the real client, offline or without a server, its files read back."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf

from zoo.config.composing import compose
from zoo.training import wandb_files
from zoo.training.experiment import Result
from zoo.training.loggers import Ending, Report
from zoo.training.train import train
from zoo.training.wandb_files import history, parts, records
from zoo.training.wandb_logger import WandbLogger, group_of, seed_group

SHORT = [
    *("algo=ppo2", "env=CartPole-v1", "tuned=none", "n_timesteps=512", "algo.n_steps=64"),
    *("algo.batch_size=64", "compile=false", "threads=1", "logger=wandb", "logger.wandb.mode=offline"),
    *("logger.every=64", "logger.console=false", "verbose=0", "progress_bar=false"),
    *("callbacks.eval.every=128", "callbacks.eval.n_episodes=2", "callbacks.checkpoint.every=192"),
]
CLOCK = ("time/fps", "time/time_elapsed")

pytest.importorskip("wandb")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_SILENT", "true")
    for name in ("DATA", "CACHE", "CONFIG"):
        monkeypatch.setenv(f"WANDB_{name}_DIR", str(tmp_path / name.lower()))
    for name in ("WANDB_MODE", "WANDB_API_KEY", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


def trained(*overrides: str) -> Result:
    return train(compose("train", [*SHORT, *overrides]))


def run_id(run: Path) -> str:
    return str(json.loads((run / "wandb.json").read_text())["id"])


def tracked(run: Path, kind: str) -> list[Any]:
    """Return the messages of one kind in all files of the run."""
    files = whole_parts(run)
    return [getattr(each, kind) for file in files for each in records(file) if each.HasField(kind)]


def rows_of(run: Path) -> list[dict[str, Any]]:
    """Return the run's history."""
    return history(whole_parts(run))


def whole_parts(run: Path) -> list[Path]:
    """Return the files of the run, once W&B's own process has written the last of them to its end."""
    files = parts(run, run_id(run))
    deadline = time.monotonic() + 20
    while not any(each.HasField("exit") for each in records(files[-1])) and time.monotonic() < deadline:
        time.sleep(0.05)
    return files


def progress(run: Path) -> list[dict[str, float]]:
    """Return the rows of progress.csv without what was not logged in them."""
    with open(run / "progress.csv") as file:
        return [
            {name: float(value) for name, value in row.items() if value != ""} for row in csv.DictReader(file)
        ]


def scalars(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not name.startswith(("_", "eval/video"))}


def test_history_is_progress_csv() -> None:
    run = trained("seed=1").run.path
    rows = rows_of(run)
    assert [scalars(row) for row in rows] == progress(run)
    assert [row["_step"] for row in rows] == list(range(64, 513, 64))


def test_every_evaluation_is_a_row_at_its_own_step() -> None:
    run = trained("seed=1", "n_timesteps=576", "logger.every=256").run.path
    with np.load(run / "evaluations.npz") as file:
        evaluations = list(zip(file["timesteps"].tolist(), file["results"].mean(axis=1), strict=True))
    assert [steps for steps, _ in evaluations] == [128, 256, 384, 512, 576]
    rows = [scalars(row) for row in rows_of(run)]
    assert rows == progress(run)
    assert [row["time/total_timesteps"] for row in rows] == [128, 256, 384, 512, 576, 576]
    evaluated = [row for row in rows if "eval/mean_reward" in row]
    assert [(row["time/total_timesteps"], row["eval/mean_reward"]) for row in evaluated] == evaluations
    assert [row["time/total_timesteps"] for row in rows if "train/loss" in row] == [256, 512, 576]


def test_config_scores_agent_and_videos_are_sent() -> None:
    result = trained("seed=1", "callbacks.video.every=256", "callbacks.video.length=5")
    run = result.run.path
    (started,) = tracked(run, "run")
    config = {each.key or each.nested_key[0]: each.value_json for each in started.config.update}
    assert json.loads(config["seed"]) == 1
    assert json.loads(config["algo"])["gamma"] == result.algorithm.config.gamma
    assert (started.project, started.display_name, started.job_type) == ("zoo", run.name, "train")
    summary = {
        item.key or "/".join(item.nested_key): json.loads(item.value_json)
        for each in tracked(run, "summary")
        for item in each.update
    }
    assert result.evaluation is not None
    assert summary["final/mean_return"] == result.evaluation.mean
    assert summary["final/best_mean_return"] == result.best_mean
    assert summary["status"] == "finished"
    (artifact,) = tracked(run, "artifact")
    assert artifact.type == "model"
    assert {"policy.safetensors", "config.yaml", "card.json"} <= {
        each.path for each in artifact.manifest.contents
    }
    videos = [row for row in rows_of(run) if "eval/video/path" in row]
    assert [row["_step"] for row in videos] == [256, 512]
    assert all(
        len(list(run.glob(f"wandb/offline-run-*/files/{row['eval/video/path']}"))) == 1 for row in videos
    )


def test_agent_stays_here_on_request() -> None:
    assert tracked(trained("seed=1", "logger.wandb.agent=false").run.path, "artifact") == []


DYING = """
import os, signal
from pathlib import Path
from zoo.algorithms.callback import Callback

class Dies(Callback):
    every = 320

    def on_steps(self, algorithm):
        if not Path("died").exists():
            Path("died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
"""


def test_run_that_was_killed_and_resumed_has_each_step_once_under_one_id(tmp_path: Path) -> None:
    """The checkpoint is at step 192; the rows of 256 may have arrived, and are computed once more."""
    (tmp_path / "dying.py").write_text(DYING)
    code = "from zoo.cli import main; main()"
    own = ["+callbacks.dies._target_=dying.Dies", "seed=1"]
    # W&B's process of these tests is not shared with those that die.
    alone = {name: value for name, value in os.environ.items() if name != "WANDB_SERVICE"}
    train_again = [sys.executable, "-c", code, "train"]
    killed = subprocess.run([*train_again, *SHORT, *own], env=alone, check=False)
    assert killed.returncode == -signal.SIGKILL
    (run,) = Path("runs").glob("*/*/*")
    before = run_id(run)
    assert subprocess.run([*train_again, f"resume={run}"], env=alone, check=False).returncode == 0
    assert run_id(run) == before
    assert len(list(run.glob(f"wandb/offline-run-*-{before}"))) == 2
    rows = {row["_step"]: scalars(row) for row in rows_of(run)}
    assert [row["_step"] for row in rows_of(run)] == list(range(64, 513, 64))
    for row in progress(run):
        theirs = rows[int(row["time/total_timesteps"])]
        assert theirs.keys() == row.keys()
        assert all(theirs[name] == row[name] for name in row if name not in CLOCK)


def test_files_of_earlier_processes_are_read_again_only_when_they_have_grown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content: dict[Path, list[dict[str, Any]]] = {}
    read: list[int] = []

    def counted(paths: list[Path]) -> list[dict[str, Any]]:
        read.append(1)
        return [row for path in paths for row in content[path]]

    monkeypatch.setattr(wandb_files, "history", counted)
    logger, part = WandbLogger(tmp_path), tmp_path / "part"
    logger._earlier, content[part] = [part], [{"_step": 64}]
    part.write_bytes(b"a")
    assert [logger._known_steps() for _ in range(3)] == [{64}] * 3
    assert len(read) == 1
    part.write_bytes(b"ab")
    content[part].append({"_step": 128})
    assert logger._known_steps() == {64, 128}
    assert len(read) == 2


def test_id_is_kept_without_any_checkpoint(tmp_path: Path) -> None:
    for steps in (1, 2):
        logger = WandbLogger(tmp_path, {"seed": 3}, mode="offline")
        logger.write(Report(steps, {"time/total_timesteps": steps}))
        logger.close()
    assert [row["_step"] for row in rows_of(tmp_path)] == [1, 2]


def test_video_that_waits_for_a_report_is_in_the_checkpoint(tmp_path: Path) -> None:
    logger = WandbLogger(tmp_path, mode="offline")
    logger.video("eval/video", tmp_path / "film.mp4", 5)
    assert json.loads(json.dumps(logger.state()))["videos"] == {"eval/video": [str(tmp_path / "film.mp4"), 5]}


def test_runs_that_differ_in_their_seed_alone_share_a_group() -> None:
    def config(*overrides: str) -> dict[str, Any]:
        plain: Any = OmegaConf.to_container(compose("train", [*SHORT, *overrides]))
        return dict(plain)

    one = group_of(config("seed=1"))
    assert one == seed_group(config("seed=1"))
    assert one.startswith("ppo2-CartPole-v1-")
    assert one == group_of(config("seed=2", "runs_dir=elsewhere", "logger.wandb.tags=[a]"))
    assert one != group_of(config("seed=1", "algo.gamma=0.5"))


def test_runs_of_a_multirun_share_its_folder_as_their_group(tmp_path: Path) -> None:
    first = trained("seed=1", "n_timesteps=128", "runs_dir=runs/multirun/20260131-120000").run.path
    (started,) = tracked(first, "run")
    assert started.run_group == "multirun-20260131-120000"
    (tmp_path / "night").mkdir()
    (tmp_path / "night" / "sweep.csv").touch()
    assert group_of({"runs_dir": str(tmp_path / "night")}) == "multirun-night"


def test_group_that_is_asked_for_is_taken() -> None:
    run = trained("seed=1", "n_timesteps=128", "logger.wandb.group=mine", "logger.wandb.job_type=baseline")
    (started,) = tracked(run.run.path, "run")
    assert (started.run_group, started.job_type) == ("mine", "baseline")


@pytest.mark.slow
def test_server_that_cannot_be_reached_is_told_in_one_line_and_the_run_finishes(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "WANDB_MODE": "online",
        "WANDB_API_KEY": "0" * 40,
        "WANDB_BASE_URL": "http://localhost:9",
        "WANDB_INIT_TIMEOUT": "2",
    }
    code = "from zoo.cli import main; main()"
    online = [each for each in SHORT if each != "logger.wandb.mode=offline"]
    done = subprocess.run(
        [sys.executable, "-c", code, "train", *online, "seed=1"],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("zoo: ")]
    assert len(lines) == 1
    assert lines[0].startswith("zoo: Weights & Biases: ")
    assert lines[0].endswith("it is switched off, and the run goes on")
    (run,) = Path("runs").glob("*/*/*")
    assert json.loads((run / "run.json").read_text())["status"] == "finished"
    assert len(progress(run)) == 8


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a file system")
def test_full_disk_under_the_logs_stops_no_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder for TensorBoard and W&B on a file system of a few pages, which is full from the start."""
    tiny = tmp_path / "tiny"
    tiny.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", str(tiny)], check=False)
    if mounted.returncode != 0:
        pytest.skip("nothing can be mounted here")
    try:
        from zoo.algorithms.ppo2 import PPO2
        from zoo.training.logging_callback import LoggingCallback
        from zoo.training.tensorboard_logger import TensorBoardLogger

        (tiny / "filler").write_bytes(bytes(8192))
        outputs = [TensorBoardLogger(tiny / "tb"), WandbLogger(tiny / "run", mode="offline")]
        model = PPO2("MlpPolicy", "CartPole-v1", seed=0, compile=False, n_steps=32, n_epochs=1)
        model.learn(128, LoggingCallback(32, outputs))
    finally:
        subprocess.run(["umount", "-l", str(tiny)], check=True)
    assert model.num_timesteps == 128
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("zoo: ")]
    assert len(lines) == 2, lines
    assert all("the run goes on" in line for line in lines)


def test_ending_of_a_run_that_was_interrupted_sends_no_agent(tmp_path: Path) -> None:
    logger = WandbLogger(tmp_path, {"seed": 3}, mode="offline")
    logger.write(Report(1, {"time/total_timesteps": 1}))
    logger.conclude(Ending("preempted", 1, agent=tmp_path))
    logger.close()
    assert tracked(tmp_path, "artifact") == []
    assert [each.exit_code for each in tracked(tmp_path, "exit")] == [1]


def test_missing_package_is_named_with_the_command_that_installs_it(tmp_path: Path) -> None:
    program = """
import importlib.util, sys
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "wandb" else find_spec(name, *rest)
from zoo.errors import ZooError
from zoo.training.wandb_logger import WandbLogger
try:
    WandbLogger(".")
except ZooError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout.strip() == "logger.wandb needs: pip install wandb"
