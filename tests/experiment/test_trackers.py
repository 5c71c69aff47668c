"""Runs are tracked by Weights & Biases, TensorBoard and loggers of one's own."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from forked import Forked
from PIL import Image
from tensorboard.backend.event_processing import data_provider
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.context import RequestContext
from tensorboard.plugins.base_plugin import TBContext
from tensorboard.plugins.hparams import api_pb2
from tensorboard.plugins.hparams.backend_context import Context
from tensorboard.plugins.hparams.list_session_groups import Handler

from zoo.cli import status_of
from zoo.config.compose import compose
from zoo.envs.video import filming
from zoo.errors import ZooError
from zoo.experiment.experiment import Result, train
from zoo.experiment.loggers import CsvLogger, LogEntry, Logger, LoggerGroup, RunSummary
from zoo.experiment.trackers import TensorBoardLogger, WandbLogger

SHORT = [
    *("algo=ppo2", "env=CartPole-v1", "tuned=none", "n_timesteps=512", "algo.n_steps=64"),
    *("algo.batch_size=64", "compile=false", "threads=1", "logger=wandb", "logger.wandb.mode=offline"),
    *("logger.every=64", "logger.console=false", "verbose=0", "progress_bar=false"),
    *("callbacks.eval.every=128", "callbacks.eval.n_episodes=2", "callbacks.checkpoint.every=192"),
]

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

def Video(path, format):
    return {"video": Path(path).name}

class Artifact:
    def __init__(self, name, type, metadata):
        self.values = {"name": name, "type": type, "metadata": metadata}

    def add_dir(self, path):
        self.values["files"] = sorted(each.name for each in Path(path).iterdir())

class Run:
    url = None

    def __init__(self, id):
        self.id = id
        self.summary = SimpleNamespace(update=lambda values: tell("summary", **values))

    def define_metric(self, name, step_metric):
        tell("metric", name=name, step_metric=step_metric)

    def log(self, row, step):
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
    for name in ("MODE", "API_KEY", "BASE_URL", "PROJECT", "NAME", "TAGS", "JOB_TYPE", "RUN_GROUP", "RUN_ID"):
        monkeypatch.delenv(f"WANDB_{name}", raising=False)


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


def calls(run: Path, kind: str) -> list[dict[str, Any]]:
    """Return what the stand-in was told of one kind."""
    lines = (run / "calls.jsonl").read_text().splitlines()
    return [values for name, values in map(json.loads, lines) if name == kind]


def progress(run: Path) -> list[dict[str, float]]:
    """Return the rows of progress.csv without what was not logged in them."""
    with open(run / "progress.csv") as file:
        return [
            {name: float(value) for name, value in row.items() if value != ""} for row in csv.DictReader(file)
        ]


@pytest.mark.usefixtures("stand_in")
def test_rows_are_those_of_progress_csv_at_their_steps() -> None:
    run = trained("seed=1", "n_timesteps=576", "logger.every=256").run.path
    rows = calls(run, "row")
    assert [each["row"] for each in rows] == progress(run)
    steps = [128, 256, 384, 512, 576, 576]  # an evaluation after the last report
    assert [each["step"] for each in rows] == steps
    assert [each["row"]["time/total_timesteps"] for each in rows] == steps


@pytest.mark.usefixtures("stand_in")
def test_config_scores_agent_and_videos_are_sent() -> None:
    result = trained("seed=1", "callbacks.video.every=256", "callbacks.video.length=5")
    run = result.run.path
    (started,) = calls(run, "init")
    assert started["config"]["seed"] == 1
    assert started["config"]["algo"]["gamma"] == result.algorithm.config.gamma
    assert (started["project"], started["name"], started["job_type"]) == ("zoo", run.name, "train")
    (summary,) = calls(run, "summary")
    assert result.evaluation is not None
    assert summary["final/mean_return"] == result.evaluation.mean
    assert summary["final/best_mean_return"] == result.best_mean
    assert summary["status"] == "finished"
    (artifact,) = calls(run, "artifact")
    assert artifact["type"] == "model"
    assert {"policy.safetensors", "config.yaml", "card.json"} <= set(artifact["files"])
    filmed = [each["step"] for each in calls(run, "row") if "eval/video" in each["row"]]
    assert filmed == [256, 512]


def test_variables_of_wandb_decide_what_nobody_chose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import wandb

    folder = tmp_path / "runs" / "first"
    folder.mkdir(parents=True)
    (tmp_path / "runs" / "sweep.yaml").touch()
    variables = {"PROJECT": "mine", "NAME": "named", "TAGS": "a,b", "JOB_TYPE": "eval", "RUN_GROUP": "group"}
    for chosen in ([], ["logger.wandb.name=chosen", "logger.wandb.tags=[c]"]):
        for variable, value in {**variables, "DIR": str(tmp_path), "RUN_ID": f"id{len(chosen)}"}.items():
            monkeypatch.setenv(f"WANDB_{variable}", value)
        config = compose("train", [*SHORT, *chosen])["logger"]["wandb"]
        logger = WandbLogger(**{key: value for key, value in config.items() if value is not None})
        logger.start(folder, {"runs_dir": str(folder.parent)})
        logger.write(LogEntry(1, {"a": 1.0}))
        run = wandb.run
        assert run is not None
        assert (run.project, run.job_type, run.group, run.id) == ("mine", "eval", "group", f"id{len(chosen)}")
        assert (run.name, run.tags) == (("chosen", ("c",)) if chosen else ("named", ("a", "b")))
        assert Path(run.dir).is_relative_to(tmp_path / "wandb")
        logger.close()
        (folder / "wandb.json").unlink()


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
def test_run_that_was_killed_goes_on_under_one_id(tmp_path: Path, stand_in: Path, client: str) -> None:
    """The checkpoint is at step 192; the rows of 256 were logged, and are computed once more."""
    (tmp_path / "dying.py").write_text(DYING)

    def status(*arguments: str) -> int:
        if client == "stand-in":
            return Forked(lambda: status_of(["train", *arguments])).wait()
        # W&B's process of these tests is not shared with those that die.
        alone = {name: value for name, value in os.environ.items() if name != "WANDB_SERVICE"}
        alone["PYTHONPATH"] = os.pathsep.join(each for each in sys.path if each != str(stand_in))
        command = [sys.executable, "-m", "zoo", "train", *arguments]
        return subprocess.run(command, env=alone, check=False).returncode

    assert status(*SHORT, "+callbacks.dies._target_=dying.Dies", "seed=1") == -signal.SIGKILL
    (run,) = Path("runs").glob("*/*/*")
    before = run_id(run)
    assert status(f"resume={run}") == 0
    assert run_id(run) == before
    if client == "real":
        assert len(list(run.glob(f"wandb/offline-run-*-{before}"))) == 2
        return
    assert [each["id"] for each in calls(run, "init")] == [before, before]
    assert [each["step"] for each in calls(run, "row")] == [*range(64, 257, 64), *range(256, 513, 64)]
    assert [row["time/total_timesteps"] for row in progress(run)] == list(range(64, 513, 64))


@pytest.mark.usefixtures("stand_in")
def test_runs_of_multirun_share_tracker_group(tmp_path: Path) -> None:
    (tmp_path / "night").mkdir()
    (tmp_path / "night" / "sweep.yaml").touch()
    first = trained("seed=1", "n_timesteps=128", "runs_dir=night").run.path
    (started,) = calls(first, "init")
    assert started["group"] == "multirun-night"


@pytest.mark.slow
def test_run_finishes_with_unreachable_tracker_server(tmp_path: Path) -> None:
    environment = {**os.environ, "WANDB_MODE": "online", "WANDB_API_KEY": "0" * 40}
    environment |= {"WANDB_BASE_URL": "http://localhost:9", "WANDB_INIT_TIMEOUT": "2"}
    code = "from zoo.cli import main; main()"
    online = [each for each in SHORT if each != "logger.wandb.mode=offline"]
    command = [sys.executable, "-c", code, "train", *online, "seed=1"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("zoo: ")]
    assert len(lines) == 1
    assert lines[0].startswith("zoo: WandbLogger: Weights & Biases: ")
    assert lines[0].endswith("it is switched off, and the run goes on")
    (run,) = Path("runs").glob("*/*/*")
    assert json.loads((run / "run.json").read_text())["status"] == "finished"
    assert len(progress(run)) == 8


SHORT_TENSORBOARD = [
    *("algo=ppo2", "env=CartPole-v1", "tuned=none", "n_timesteps=256", "algo.n_steps=64"),
    *("algo.batch_size=64", "compile=false", "threads=1", "logger=tensorboard", "progress_bar=false"),
    *("verbose=0", "callbacks.eval.every=128", "callbacks.eval.n_episodes=2"),
]


def trained_tensorboard(*overrides: str, alone: bool = False) -> Result:
    quiet = ["verbose=0", "progress_bar=false"]
    return train(compose("train", [*(quiet if alone else SHORT_TENSORBOARD), *overrides]))


def events(folder: Path) -> EventAccumulator:
    found = EventAccumulator(str(folder), size_guidance={"images": 0, "scalars": 0})
    found.Reload()
    return found


def sessions(folder: Path) -> list[Any]:
    """Return what the tab HParams lists of the runs below a folder."""
    runs = EventMultiplexer()
    runs.AddRunsFromDirectory(str(folder))
    runs.Reload()
    context = Context(TBContext(data_provider=data_provider.MultiplexerDataProvider(runs, str(folder))))
    statuses = [api_pb2.STATUS_SUCCESS, api_pb2.STATUS_UNKNOWN, api_pb2.STATUS_RUNNING]
    metrics = [
        api_pb2.ColParams(metric=api_pb2.MetricName(tag=tag))
        for tag in ("final/mean_return", "final/best_mean_return")
    ]
    request = api_pb2.ListSessionGroupsRequest(
        start_index=0, slice_size=100, allowed_statuses=statuses, col_params=metrics
    )
    return list(Handler(RequestContext(), context, "", request).run().session_groups)


def test_hparams_tab_has_settings_and_scores_of_runs() -> None:
    results = [trained_tensorboard("seed=1"), trained_tensorboard("seed=2", "algo.learning_rate=0.01")]
    groups = sessions(Path("runs"))
    assert len(groups) == 2
    for result in results:
        (group,) = [each for each in groups if each.hparams["seed"].number_value == result.algorithm.seed]
        assert group.hparams["algo.learning_rate"].number_value == result.algorithm.config.learning_rate
        assert group.hparams["env.id"].string_value == "CartPole-v1"
        assert group.hparams["algo.normalize_advantage"].string_value == "true"
        assert not [name for name in group.hparams if name.startswith("logger")]
        metrics = {each.name.tag: each.value for each in group.metric_values}
        assert result.evaluation is not None
        assert metrics["final/mean_return"] == pytest.approx(result.evaluation.mean)
        assert metrics["final/best_mean_return"] == pytest.approx(result.best_mean)
        assert group.sessions[0].status == api_pb2.STATUS_SUCCESS


def test_config_is_shown_as_text_once() -> None:
    result = trained_tensorboard("seed=1")
    found = events(result.run.tensorboard)
    (text,) = found.Tensors("config/text_summary")
    assert text.step == 0
    shown = text.tensor_proto.string_val[0].decode()
    assert shown.startswith("```yaml\n")
    assert shown.endswith("\n```")
    expected = result.run.read_config()
    assert yaml.safe_load(shown[len("```yaml\n") : -3]) == {
        key: value
        for key, value in expected.items()
        if key not in ("resume", "job", "verbose", "progress_bar")
    }
    assert found.SummaryMetadata("config/text_summary").plugin_data.plugin_name == "text"


def test_videos_are_shown_as_moving_images() -> None:
    result = trained_tensorboard("seed=1", "callbacks.video.every=128", "callbacks.video.length=9")
    images = events(result.run.tensorboard).Images("eval/video")
    assert [image.step for image in images] == [128, 256]
    with Image.open(io.BytesIO(images[0].encoded_image_string)) as gif:
        assert gif.format == "GIF"
        assert gif.n_frames >= 2
        assert gif.size == (images[0].width, images[0].height) == (320, 214)


def test_resumed_run_has_each_step_once_and_in_order(tmp_path: Path) -> None:
    """What was filmed before the checkpoint stays, though the last report is older; what came after goes."""
    with filming(tmp_path / "film.mp4", 10) as film:
        for _ in range(3):
            film.add(np.zeros((32, 32, 3), np.uint8))
    logger = TensorBoardLogger(tmp_path / "tb")
    logger.start(tmp_path, {"seed": 1})
    logger.write(LogEntry(100, {"train/loss": 1.0}))
    logger.video("eval/video", tmp_path / "film.mp4", 150)
    state = logger.state()
    logger.write(LogEntry(200, {"train/loss": 9.0}))
    logger.video("eval/video", tmp_path / "film.mp4", 210)
    logger.close()
    time.sleep(1.1)  # files are named after the second, and read in the order of their names
    resumed = TensorBoardLogger(tmp_path / "tb")
    resumed.start(tmp_path, {"seed": 1})
    resumed.load_state(state)
    for steps in (200, 300):
        resumed.write(LogEntry(steps, {"train/loss": 2.0}))
    resumed.video("eval/video", tmp_path / "film.mp4", 310)
    resumed.conclude(RunSummary("finished", 320, {"mean_return": 7.0}, best_mean=8.0))
    resumed.close()
    found = events(tmp_path / "tb")
    assert [(each.step, each.value) for each in found.Scalars("train/loss")] == [(100, 1), (200, 2), (300, 2)]
    assert [each.step for each in found.Images("eval/video")] == [150, 310]
    assert [(each.step, each.value) for each in found.Scalars("final/mean_return")] == [(320, 7.0)]


SHORT_OWN = [
    *("algo=ppo2", "env=CartPole-v1", "tuned=none", "seed=1", "n_timesteps=256", "algo.n_steps=64"),
    *("algo.batch_size=64", "compile=false", "threads=1", "logger=csv", "logger.every=64", "verbose=0"),
    *("progress_bar=false", "callbacks.eval.every=128", "callbacks.eval.n_episodes=2"),
]


class Raising(Logger):
    """Raises in one of its methods."""

    def __init__(self, method: str, error: Exception) -> None:
        self.calls = 0

        def fail(*arguments: Any) -> None:
            self.calls += 1
            raise error

        setattr(self, method, fail)


@pytest.mark.parametrize("error", [RuntimeError("the server\nis gone"), ConnectionError("refused")])
@pytest.mark.parametrize("method", ["start", "write", "conclude", "close", "state", "load_state"])
def test_raising_tracker_is_reported_and_switched_off(
    method: str, error: Exception, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raising, csv = Raising(method, error), CsvLogger(tmp_path / "progress.csv")
    loggers = LoggerGroup([raising, csv], tmp_path, {})
    loggers.load_state({"Raising": {}})
    for steps in (1, 2):
        loggers.call("write", LogEntry(steps, {"time/total_timesteps": steps}))
        loggers.call("state")
    loggers.call("flush")
    loggers.call("conclude", RunSummary("finished", 2))
    if method != "close":
        assert "CsvLogger" in loggers.call("state")
    loggers.call("close")
    assert raising.calls == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("zoo: Raising: ")
    assert line.endswith("it is switched off, and the run goes on")
    assert (tmp_path / "progress.csv").read_text().splitlines()[1:] == ["1", "2"]


MODULE = """
from zoo.experiment.loggers import Logger


class Lines(Logger):
    def __init__(self, path):
        self.path = path
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_trackers.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    yield "own_trackers"
    sys.modules.pop("own_trackers", None)


@pytest.mark.parametrize(
    ("own", "message"),
    [
        (["+logger.mine._target_=no_such_module.Mine"], "can't import `no_such_module`"),
        (["+logger.mine._target_=own_trackers.Line", "+logger.mine.path=a"], "did you mean 'Lines'"),
        (["+logger.mine._target_=pathlib.Path"], "is not a subclass of zoo.experiment.loggers.Logger"),
        (["+logger.mine._target_=own_trackers.Lines"], "missing 1 required positional argument: 'path'"),
        (["+logger.mine.path=a"], "unknown key `logger.mine`"),
        (["+logger.tensorbord=true"], "did you mean `logger.tensorboard`"),
    ],
)
def test_wrong_tracker_is_named_before_anything_starts(module: str, own: list[str], message: str) -> None:
    with pytest.raises(ZooError) as caught:
        train(compose("train", [*SHORT_OWN, *own]))
    assert message in str(caught.value)
    assert "logger." in str(caught.value)
    assert not list(Path("runs").glob("*/*/*"))


def test_documented_example_of_a_tracker_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "tracking-and-video.md"
    (code,) = re.findall(r"```python\n(# my_trackers.*?)```", page.read_text(), re.DOTALL)
    (command,) = re.findall(r"^zoo train (.*my_trackers.*)$", page.read_text(), re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_trackers.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    own = [each for each in command.split() if each.startswith("+")]
    result = train(
        compose("train", [*SHORT_OWN, *own, "callbacks.video.every=128", "callbacks.video.length=3"])
    )
    lines = (result.run.path / "log.txt").read_text().splitlines()
    assert "128 steps: filmed step-000000128.mp4" in lines
    assert len([line for line in lines if re.fullmatch(r"\d+ steps: [\d.]+", line)]) == 4
    assert lines[-1] == f"finished: best {result.best_mean}, agent in {result.agent}"
    sys.modules.pop("my_trackers")
