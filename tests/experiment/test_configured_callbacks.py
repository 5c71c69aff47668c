"""From a config to the callbacks of a run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from zoo.algorithms.callback import Callback
from zoo.envs.config import EnvConfig
from zoo.errors import ZooError
from zoo.experiment.callbacks import EvalCallback
from zoo.experiment.checkpoint import CheckpointCallback
from zoo.experiment.factories import make_callbacks
from zoo.experiment.loggers import LoggingCallback
from zoo.experiment.run_folder import RunFolder


def names(callbacks: list[Callback]) -> list[str]:
    return [type(callback).__name__ for callback in callbacks]


def test_callbacks_come_in_the_order_in_which_they_need_each_other(
    config: dict[str, Any], run: RunFolder
) -> None:
    config["callbacks"] |= {
        "stop_on_reward": {"threshold": 475.0},
        "stop_on_no_improvement": {"max_evaluations": 5, "min_evaluations": 0},
        "stop_on_episodes": {"max_episodes": 100},
        "own": {"_target_": "zoo.experiment.callbacks.StopTrainingOnMaxEpisodes", "max_episodes": 7},
    }
    config["progress_bar"] = True
    callbacks = make_callbacks(config, run, EnvConfig("CartPole-v1"))
    assert names(callbacks) == [
        "EvalCallback",
        "StopTrainingOnRewardThreshold",
        "StopTrainingOnNoModelImprovement",
        "StopTrainingOnMaxEpisodes",
        "StopTrainingOnMaxEpisodes",
        "LoggingCallback",
        "ProgressBarCallback",
        "CheckpointCallback",
    ]
    checkpoint = callbacks[-1]
    assert isinstance(checkpoint, CheckpointCallback)
    assert list(checkpoint.callbacks) == callbacks[:-1]


def test_run_is_divided_where_no_interval_is_set(config: dict[str, Any], run: RunFolder) -> None:
    config["n_timesteps"] = 50_000
    config["callbacks"]["eval"]["every"] = config["callbacks"]["checkpoint"]["every"] = None
    config["logger"]["every"] = None
    callbacks = make_callbacks(config, run, EnvConfig("CartPole-v1"))
    assert {type(callback): callback.every for callback in callbacks} == {
        EvalCallback: 2_500,
        LoggingCallback: 500,
        CheckpointCallback: 5_000,
    }


def test_stopping_by_evaluations_without_any_is_refused(config: dict[str, Any], run: RunFolder) -> None:
    config["callbacks"] |= {"eval": None, "stop_on_reward": {"threshold": 475.0}}
    with pytest.raises(ZooError, match=r"`callbacks\.stop_on_reward` needs `callbacks\.eval`"):
        make_callbacks(config, run, EnvConfig("CartPole-v1"))


OWN_CALLBACKS = """
from zoo.algorithms.callback import Callback


class Plain(Callback):
    def on_steps(self, algorithm):
        pass


class WithArguments(Plain):
    def __init__(self, size=1):
        self.size = size


class WatchesEpisodes(Callback):
    def on_episode(self, algorithm, episode):
        pass
"""


@pytest.fixture
def own_callbacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "own_callbacks.py").write_text(OWN_CALLBACKS)
    monkeypatch.syspath_prepend(tmp_path)
    yield "own_callbacks"
    sys.modules.pop("own_callbacks", None)


@pytest.mark.parametrize(("name", "arguments"), [("Plain", {}), ("WithArguments", {"size": 3})])
def test_callback_that_takes_no_interval_gets_one(
    config: dict[str, Any],
    run: RunFolder,
    own_callbacks: str,
    name: str,
    arguments: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    config["callbacks"]["mine"] = {"_target_": f"{own_callbacks}.{name}", "every": 1e3, **arguments}
    (mine,) = [
        each for each in make_callbacks(config, run, EnvConfig("CartPole-v1")) if type(each).__name__ == name
    ]
    assert (mine.every, type(mine.every)) == (1000, int)
    assert {key: getattr(mine, key) for key in arguments} == arguments
    assert capsys.readouterr().err == ""


def test_callback_that_would_never_be_called_is_told(
    config: dict[str, Any], run: RunFolder, own_callbacks: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config["callbacks"]["mine"] = {"_target_": f"{own_callbacks}.Plain"}
    make_callbacks(config, run, EnvConfig("CartPole-v1"))
    assert capsys.readouterr().err == (
        "zoo: callbacks.mine: on_steps of own_callbacks.Plain is never called, for want of an interval;"
        " give it one in environment steps: callbacks.mine.every=1000\n"
    )
    config["callbacks"]["mine"] = {"_target_": f"{own_callbacks}.WatchesEpisodes"}
    make_callbacks(config, run, EnvConfig("CartPole-v1"))
    assert capsys.readouterr().err == ""
