"""Runs that start as clones: what they leave, and signals while they are pretrained."""

from __future__ import annotations

import csv
import logging
import math
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import zoo
from zoo.envs.config import EnvConfig
from zoo.experiment.experiment import TrainingInterrupted
from zoo.experiment.expert_recording import record_expert
from zoo.experiment.run_folder import RunFolder
from zoo.imitation.expert_data import ExpertData
from zoo.imitation.expert_files import write_expert

SHORT = [
    *("n_timesteps=128", "n_envs=2", "algo.n_steps=32", "algo.batch_size=64", "algo.n_epochs=1"),
    *("tuned=none", "threads=1", "compile=false", "progress_bar=false", "logger=none", "seed=3"),
    *("callbacks.eval.n_episodes=2", "env=CartPole-v1", "pretrain.dataset=expert.npz"),
]


@pytest.fixture(autouse=True)
def expert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ExpertData:
    monkeypatch.chdir(tmp_path)
    env = EnvConfig("CartPole-v1", max_episode_steps=60)
    data = record_expert(lambda seen: int(seen[2] + seen[3] > 0), env, 5, seed=0)
    write_expert("expert.npz", data)
    return data


def config_of(*overrides: str, algo: str = "ppo2") -> dict[str, Any]:
    return dict(zoo.compose("train", [f"algo={algo}", *SHORT, *overrides]))


def losses(run: RunFolder) -> list[dict[str, float]]:
    rows = csv.DictReader(run.path.joinpath("pretrain.csv").read_text().splitlines())
    return [{name: float(value) for name, value in row.items()} for row in rows]


def agreement(result: Any, data: ExpertData) -> float:
    return float((result.algorithm.predict(data.observations)[0] == data.actions).mean())


def test_run_starts_as_a_clone_and_leaves_how_the_losses_went(expert: ExpertData) -> None:
    rates = ("pretrain.learning_rate=0.01", "algo.learning_rate=0")
    result = zoo.train(config_of(*rates, "pretrain.n_epochs=20"))
    assert agreement(result, expert) > 0.9
    found = losses(result.run)
    assert list(found[0]) == ["epoch", "loss", "imitation_loss", "validation_loss"]
    assert [row["epoch"] for row in found] == list(range(1, len(found) + 1))
    assert found[-1]["validation_loss"] < found[0]["validation_loss"]
    whole = zoo.train(config_of("pretrain.validation_fraction=0", "pretrain.n_epochs=2"))
    assert all(math.isnan(row["validation_loss"]) for row in losses(whole.run))
    plain = zoo.train(config_of("pretrain=default", "pretrain.dataset=null"))
    assert not plain.run.path.joinpath("pretrain.csv").exists()


class Kill(logging.Handler):
    """Sends a signal to this process once an epoch of pretraining has been told."""

    def __init__(self, number: int, epoch: int) -> None:
        super().__init__()
        self.number, self.word = number, f"epoch {epoch}:"

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith("pretraining") and self.word in record.getMessage():
            os.kill(os.getpid(), self.number)


def train_and_kill(config: dict[str, Any], number: int, epoch: int) -> Any:
    logger, handler = logging.getLogger("zoo.experiment.pretraining"), Kill(number, epoch)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        with pytest.raises(TrainingInterrupted) as raised:
            zoo.train(config)
        return raised.value.result
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


@pytest.mark.parametrize(
    ("number", "settings"),
    [
        (signal.SIGINT, ["pretrain.patience=null", "env.normalize=true"]),
        (signal.SIGTERM, ["pretrain.patience=2", "pretrain.learning_rate=0.3"]),
        (signal.SIGTERM, ["policy=MlpLstmPolicy", "policy.lstm_hidden_size=8"]),
    ],
    ids=["interrupted", "terminated", "remembers"],
)
def test_pretraining_that_a_signal_ends_goes_on_exactly(number: signal.Signals, settings: list[str]) -> None:
    settings = [*settings, "pretrain.n_epochs=8"]
    whole = zoo.train(config_of(*settings))
    cut = train_and_kill(config_of(*settings), number, 3)
    assert not cut.is_complete
    assert cut.run.read_record()["status"] == "preempted"
    assert cut.algorithm.num_timesteps == 0
    assert len(losses(cut.run)) == 3
    resumed = zoo.compose("train", [f"resume={cut.run.path}"])
    once_more = train_and_kill(dict(resumed), number, 4)
    assert len(losses(once_more.run)) == 4
    result = zoo.train(resumed)
    assert result.is_complete
    assert losses(result.run) == losses(whole.run)
    first, second = (load_file(each.run.agent / "policy.safetensors") for each in (whole, result))
    assert first.keys() == second.keys()
    for name, array in first.items():
        np.testing.assert_array_equal(second[name], array)
    assert not result.run.pretraining.exists()
