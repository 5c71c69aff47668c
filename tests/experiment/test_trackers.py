"""A tracker may be anybody's, and whatever it does, the training goes on."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from zoo.config.compose import compose
from zoo.errors import ZooError
from zoo.experiment.experiment import train
from zoo.experiment.loggers import CsvLogger, LogEntry, Logger, LoggerGroup, RunSummary

SHORT = [
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


@pytest.mark.parametrize("method", ["start", "write", "flush", "conclude", "close", "state", "load_state"])
@pytest.mark.parametrize("error", [RuntimeError("the server\nis gone"), ConnectionError("refused")])
def test_tracker_that_raises_is_told_once_and_switched_off(
    method: str, error: Exception, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raising, csv = Raising(method, error), CsvLogger(tmp_path / "progress.csv")
    trackers = LoggerGroup([raising, csv], tmp_path, {})
    trackers.load_state({"Raising": {}})
    for steps in (1, 2):
        trackers.call("write", LogEntry(steps, {"time/total_timesteps": steps}))
        trackers.state()
    trackers.call("flush")
    trackers.call("conclude", RunSummary("finished", 2))
    if method != "close":
        assert "CsvLogger" in trackers.state()
    trackers.close()
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

    def start(self, folder, config):
        self.file = folder / self.path
        self.add("start", config["env"]["id"])

    def write(self, report):
        self.add("report", report.timesteps)

    def conclude(self, ending):
        self.add(ending.status, ending.evaluation["mean_return"], ending.agent.name)

    def close(self):
        self.add("closed")

    def add(self, *words):
        with open(self.file, "a") as file:
            print(*words, file=file)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_trackers.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    yield "own_trackers"
    sys.modules.pop("own_trackers", None)


def test_tracker_of_ones_own_sees_the_whole_run_beside_others(module: str) -> None:
    own = [f"+logger.mine._target_={module}.Lines", "+logger.mine.path=lines.txt"]
    result = train(compose("train", [*SHORT, *own]))
    assert result.evaluation is not None
    assert (result.run.path / "lines.txt").read_text().splitlines() == [
        "start CartPole-v1",
        *(f"report {steps}" for steps in (64, 128, 192, 256)),
        f"finished {result.evaluation.mean} best_agent",
        "closed",
    ]
    assert len(result.run.progress.read_text().splitlines()) == 5


@pytest.mark.parametrize(
    ("own", "message"),
    [
        (["+logger.mine._target_=no_such_module.Mine"], "can't import `no_such_module`"),
        (["+logger.mine._target_=own_trackers.Line", "+logger.mine.path=a"], "did you mean 'Lines'"),
        (["+logger.mine._target_=pathlib.Path"], "is not a subclass of zoo.experiment.loggers.Logger"),
        (["+logger.mine._target_=own_trackers.Lines"], "missing 1 required positional argument: 'path'"),
        (["+logger.mine.path=a"], "a tracker of your own has a `_target_`"),
        (["+logger.tensorbord=true"], "did you mean `logger.tensorboard`"),
        (["logger.tensorboard.histogram=true"], "did you mean `logger.tensorboard.histograms`"),
    ],
)
def test_wrong_tracker_is_named_before_anything_starts(module: str, own: list[str], message: str) -> None:
    with pytest.raises(ZooError) as caught:
        train(compose("train", [*SHORT, *own]))
    assert message in str(caught.value)
    assert "logger." in str(caught.value)
    assert not list(Path("runs").glob("*/*/*"))


def test_documented_example_of_a_tracker_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "tracking-and-video.md"
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    (command,) = re.findall(r"^zoo train (.*my_trackers.*)$", page.read_text(), re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_trackers.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    own = [each for each in command.split() if each.startswith("+")]
    result = train(compose("train", [*SHORT, *own, "callbacks.video.every=128", "callbacks.video.length=3"]))
    lines = (result.run.path / "log.txt").read_text().splitlines()
    assert "128 steps: filmed step-000000128.mp4" in lines
    assert len([line for line in lines if re.fullmatch(r"\d+ steps: [\d.]+", line)]) == 4
    assert lines[-1] == f"finished: best {result.best_mean}, agent in {result.agent}"
    sys.modules.pop("my_trackers")
