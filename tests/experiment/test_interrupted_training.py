"""A signal ends what called zoo.train, too, when all is saved."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

import zoo
from zoo.experiment.experiment import TrainingInterrupted
from zoo.experiment.loggers import CsvLogger

SHORT: dict[str, Any] = {
    "n_timesteps": 1024,
    "algo": {"n_steps": 32, "batch_size": 32, "n_epochs": 1},
    "callbacks": {"eval": None},
    "logger": {"csv": True, "every": 64},
    "n_envs": 1,
    "tuned": "none",
    "progress_bar": False,
    "compile": False,
    "threads": 1,
    "seed": 1,
}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_a_loop_of_trainings_and_says_how_to_go_on(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    write, begun = CsvLogger.write, []

    def write_and_signal(logger: CsvLogger, *arguments: Any, **options: Any) -> None:
        write(logger, *arguments, **options)
        if len(begun) == 1:
            os.kill(os.getpid(), number)

    def train_seeds() -> None:
        for seed in range(3):
            begun.append(seed)
            zoo.train("algo=ppo2", "env=CartPole-v1", **{**SHORT, "seed": seed})

    with monkeypatch.context() as patched:
        patched.setattr(CsvLogger, "write", write_and_signal)
        with pytest.raises(KeyboardInterrupt) as raised:
            train_seeds()
    assert begun == [0]
    assert isinstance(raised.value, TrainingInterrupted)
    result = raised.value.result
    run = result.run.path
    assert f"zoo.train(resume='{run}') goes on" in str(raised.value)
    assert repr(result).startswith("<Result: not complete after 64 steps")
    resumed = zoo.train(resume=str(run))
    assert repr(resumed) == f"<Result: complete after 1,024 steps, in {run}>"
