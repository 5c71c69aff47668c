"""What Weights & Biases gets of a run: by a stand-in for its client, and by the real one offline."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf

from zoo.config.compose import compose
from zoo.experiment.experiment import Result, train
from zoo.experiment.loggers import LogEntry
from zoo.experiment.trackers import WandbLogger, group_of, seed_group

SHORT = [
    *("algo=ppo2", "env=CartPole-v1", "tuned=none", "n_timesteps=512", "algo.n_steps=64"),
    *("algo.batch_size=64", "compile=false", "threads=1", "logger=wandb", "logger.wandb.mode=offline"),
    *("logger.every=64", "logger.console=false", "verbose=0", "progress_bar=false"),
    *("callbacks.eval.every=128", "callbacks.eval.n_episodes=2", "callbacks.checkpoint.every=192"),
]
CLOCK = ("time/fps", "time/time_elapsed")

STAND_IN = """
import json
from pathlib import Path
from types import SimpleNamespace

errors = SimpleNamespace(Error=RuntimeError)
Settings = dict
CALLS = None

def tell(kind, **values):
    with open(CALLS, "a") as file:
        file.write(json.dumps([kind, values]) + chr(10))

def Video(path, caption, format):
    return {"video": Path(path).name, "caption": caption}

class Artifact:
    def __init__(self, name, type, metadata):
        self.values = {"name": name, "type": type, "metadata": metadata}

    def add_dir(self, path):
        self.values["files"] = sorted(each.name for each in Path(path).iterdir())

class Run:
    offline, url, starting_step = True, None, 0

    def __init__(self, id):
        self.id = id
        self.summary = SimpleNamespace(update=lambda values: tell("summary", **values))

    def define_metric(self, name, step_metric):
        tell("metric", name=name, step_metric=step_metric)

    def log(self, row, step, commit):
        tell("row", row=row, step=step)

    def log_artifact(self, artifact):
        tell("artifact", **artifact.values)

    def mark_preempting(self):
        tell("preempting")

    def finish(self, exit_code):
        tell("finish", exit_code=exit_code)

def init(*, dir, id, settings, **options):
    global CALLS
    CALLS = Path(dir, "calls.jsonl")
    tell("init", id=id, **options)
    return Run(id)
"""
"""A client with W&B's public names that writes what it is told into the run's folder."""

pytest.importorskip("wandb")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_SILENT", "true")
    for name in ("DATA", "CACHE", "CONFIG"):
        monkeypatch.setenv(f"WANDB_{name}_DIR", str(tmp_path / name.lower()))
    for name in ("WANDB_MODE", "WANDB_API_KEY", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Put the stand-in in the place of W&B's client; return the folder to import it from."""
    folder = tmp_path / "stand_in"
    folder.mkdir()
    (folder / "wandb.py").write_text(STAND_IN)
    monkeypatch.syspath_prepend(folder)
    for name in [name for name in sys.modules if name.partition(".")[0] == "wandb"]:
        monkeypatch.delitem(sys.modules, name)
    yield folder
    sys.modules.pop("wandb", None)


def trained(*overrides: str) -> Result:
    return train(compose("train", [*SHORT, *overrides]))


def run_id(run: Path) -> str:
    return str(json.loads((run / "wandb.json").read_text())["id"])


def told(run: Path, kind: str) -> list[dict[str, Any]]:
    """Return what the stand-in was told of one kind."""
    lines = (run / "calls.jsonl").read_text().splitlines()
    return [values for name, values in map(json.loads, lines) if name == kind]


def rows_of(run: Path) -> list[dict[str, Any]]:
    return [each["row"] for each in told(run, "row")]


def steps_of(run: Path) -> list[int]:
    return [each["step"] for each in told(run, "row")]


def progress(run: Path) -> list[dict[str, float]]:
    """Return the rows of progress.csv without what was not logged in them."""
    with open(run / "progress.csv") as file:
        return [
            {name: float(value) for name, value in row.items() if value != ""} for row in csv.DictReader(file)
        ]


@pytest.mark.usefixtures("stand_in")
def test_every_evaluation_is_a_row_at_its_own_step() -> None:
    run = trained("seed=1", "n_timesteps=576", "logger.every=256").run.path
    with np.load(run / "evaluations.npz") as file:
        evaluations = list(zip(file["timesteps"].tolist(), file["results"].mean(axis=1), strict=True))
    assert [steps for steps, _ in evaluations] == [128, 256, 384, 512, 576]
    rows, written = rows_of(run), progress(run)
    assert rows == [*written[:4], {**written[4], **written[5]}]  # an evaluation after the last report
    assert [row["time/total_timesteps"] for row in rows] == steps_of(run) == [128, 256, 384, 512, 576]
    evaluated = [row for row in rows if "eval/mean_reward" in row]
    assert [(row["time/total_timesteps"], row["eval/mean_reward"]) for row in evaluated] == evaluations
    assert [row["time/total_timesteps"] for row in rows if "train/loss" in row] == [256, 512, 576]


@pytest.mark.usefixtures("stand_in")
def test_config_scores_agent_and_videos_are_sent() -> None:
    result = trained("seed=1", "callbacks.video.every=256", "callbacks.video.length=5")
    run = result.run.path
    (started,) = told(run, "init")
    assert started["config"]["seed"] == 1
    assert started["config"]["algo"]["gamma"] == result.algorithm.config.gamma
    assert (started["project"], started["name"], started["job_type"]) == ("zoo", run.name, "train")
    (summary,) = told(run, "summary")
    assert result.evaluation is not None
    assert summary["final/mean_return"] == result.evaluation.mean
    assert summary["final/best_mean_return"] == result.best_mean
    assert summary["status"] == "finished"
    (artifact,) = told(run, "artifact")
    assert artifact["type"] == "model"
    assert {"policy.safetensors", "config.yaml", "card.json"} <= set(artifact["files"])
    filmed = [each["step"] for each in told(run, "row") if "eval/video" in each["row"]]
    assert filmed == [256, 512]


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


@pytest.mark.parametrize("client", ["stand-in", pytest.param("real", marks=pytest.mark.slow)])
def test_run_that_was_killed_and_resumed_has_each_step_once_under_one_id(
    tmp_path: Path, stand_in: Path, client: str
) -> None:
    """The checkpoint is at step 192; the rows of 256 were logged, and are computed once more."""
    (tmp_path / "dying.py").write_text(DYING)
    path = (
        os.pathsep.join([str(stand_in), *sys.path])
        if client == "stand-in"
        else os.pathsep.join(each for each in sys.path if each != str(stand_in))
    )
    # W&B's process of these tests is not shared with those that die.
    alone = {name: value for name, value in os.environ.items() if name != "WANDB_SERVICE"}
    alone["PYTHONPATH"] = path
    again = [sys.executable, "-m", "zoo", "train"]
    own = ["+callbacks.dies._target_=dying.Dies", "seed=1"]
    killed = subprocess.run([*again, *SHORT, *own], env=alone, check=False)
    assert killed.returncode == -signal.SIGKILL
    (run,) = Path("runs").glob("*/*/*")
    before = run_id(run)
    assert subprocess.run([*again, f"resume={run}"], env=alone, check=False).returncode == 0
    assert run_id(run) == before
    if client == "real":
        assert len(list(run.glob(f"wandb/offline-run-*-{before}"))) == 2
        return
    assert [each["id"] for each in told(run, "init")] == [before, before]
    assert steps_of(run) == list(range(64, 513, 64))
    for ours, theirs in zip(progress(run), rows_of(run), strict=True):
        assert theirs.keys() == ours.keys()
        assert all(theirs[name] == ours[name] for name in ours if name not in CLOCK)


@pytest.mark.usefixtures("stand_in")
def test_steps_that_a_killed_process_did_not_hand_on_are_taken_from_progress_csv(tmp_path: Path) -> None:
    first = WandbLogger(tmp_path, mode="offline")
    for steps in (1, 2):
        first.write(LogEntry(steps, {"time/total_timesteps": steps}))
    assert steps_of(tmp_path) == [1], "there may be more to say of step 2"
    (tmp_path / "progress.csv").write_text("time/total_timesteps,train/loss\n1,0.5\n2,0.25\n")
    later = WandbLogger(tmp_path, mode="offline")
    for steps in (3, 4):
        later.write(LogEntry(steps, {"time/total_timesteps": steps}))
    later.close()
    assert steps_of(tmp_path) == [1, 2, 3, 4]
    assert rows_of(tmp_path)[1] == {"time/total_timesteps": 2.0, "train/loss": 0.25}
    assert len({each["id"] for each in told(tmp_path, "init")}) == 1


def test_runs_that_differ_in_their_seed_alone_share_a_group() -> None:
    def config(*overrides: str) -> dict[str, Any]:
        plain: Any = OmegaConf.to_container(compose("train", [*SHORT, *overrides]))
        return dict(plain)

    one = group_of(config("seed=1"))
    assert one == seed_group(config("seed=1"))
    assert one.startswith("ppo2-CartPole-v1-")
    assert one == group_of(config("seed=2", "runs_dir=elsewhere", "logger.wandb.tags=[a]"))
    assert one != group_of(config("seed=1", "algo.gamma=0.5"))


@pytest.mark.usefixtures("stand_in")
def test_runs_of_a_multirun_share_its_folder_as_their_group(tmp_path: Path) -> None:
    first = trained("seed=1", "n_timesteps=128", "runs_dir=runs/multirun/20260131-120000").run.path
    (started,) = told(first, "init")
    assert started["group"] == "multirun-20260131-120000"
    (tmp_path / "night").mkdir()
    (tmp_path / "night" / "sweep.csv").touch()
    assert group_of({"runs_dir": str(tmp_path / "night")}) == "multirun-night"


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
