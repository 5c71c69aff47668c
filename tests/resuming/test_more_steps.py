"""A run that is given more steps ends bit for bit as one begun with as many; or says why it can't."""

from __future__ import annotations

import csv
import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zoo.cli import status_of
from zoo.config.compose import compose
from zoo.core.tensors import split
from zoo.errors import ZooError
from zoo.experiment import checkpoint
from zoo.experiment.checkpoint import NEWEST, PREVIOUS
from zoo.experiment.experiment import Result, train
from zoo.experiment.reproduce import reproduce

QUIET = ["verbose=0", "progress_bar=false"]
USUAL = [
    *("tuned=none", "compile=false", "threads=1", "logger=csv", "seed=3", "callbacks.eval.n_episodes=2"),
    *("policy.net_arch=[16]", *QUIET),
]
PPO2 = [
    *("algo=ppo2", "env=CartPole-v1", "n_envs=2", "algo.n_steps=32", "algo.batch_size=64", *USUAL),
    *("algo.n_epochs=1", "env.normalize=true"),
]
SAC = [
    *("algo=sac", "env=Pendulum-v1", "algo.learning_starts=50", "algo.batch_size=16", *USUAL),
    *("algo.buffer_size=400", "env.reseed_every=100", "env.max_episode_steps=40"),
]
CUT = [
    *("algo=td3", "env=Pendulum-v1", "algo.learning_starts=50", "algo.batch_size=16", *USUAL),
    *("algo.train_freq=70", "algo.gradient_steps=3", "callbacks.checkpoint.every=100"),
]
"""Its last collection is cut short wherever 70 does not divide the number of steps."""


@pytest.fixture(autouse=True)
def _working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def trained(*overrides: str) -> Result:
    return train(compose("train", list(overrides)))


def given_more(result: Result, n_timesteps: int, *overrides: str) -> Result:
    return trained(f"resume={result.run.path}", f"n_timesteps={n_timesteps}", *QUIET, *overrides)


def arrays_of(result: Result) -> dict[str, Any]:
    parts = {name: part.state() for name, part in result.algorithm._parts().items()}
    return {
        name: array for name, array in split(parts)[0].items() if "/segments/" not in name
    } | result.algorithm.get_parameters()


def memory_of(result: Result) -> dict[str, Any]:
    memory = result.algorithm.buffer
    return {name: np.asarray(column) for name, column in getattr(memory, "columns", {}).items()}


def episodes_of(result: Result) -> list[list[tuple[str, str]]]:
    """Return returns and lengths, without the clock."""
    tables = []
    for file in sorted(result.run.monitor.iterdir()):
        with open(file) as lines:
            next(lines)
            tables.append([(row["r"], row["l"]) for row in csv.DictReader(lines)])
    return tables


def assert_same(ours: Result, theirs: Result) -> None:
    for found, expected in ((arrays_of(ours), arrays_of(theirs)), (memory_of(ours), memory_of(theirs))):
        assert found.keys() == expected.keys()
        assert [name for name in found if not np.array_equal(found[name], expected[name])] == []
    assert episodes_of(ours) == episodes_of(theirs)


@pytest.mark.parametrize(
    "settings",
    [PPO2, SAC, pytest.param([*PPO2, "workers=2"], marks=pytest.mark.slow), [*SAC, "workers=2"]],
    ids=["ppo2", "sac", "ppo2-of-two", "sac-of-two"],
)
def test_extended_run_is_the_longer_one(settings: list[str]) -> None:
    short = trained(*settings, "n_timesteps=320")
    longer = given_more(short, 640)
    assert longer.run.path == short.run.path
    whole = trained(*settings, "n_timesteps=640", "callbacks.eval.every=16", "logger.every=3")
    assert_same(longer, whole)
    ours, theirs = (np.load(each.run.evaluations) for each in (longer, whole))
    assert all(np.array_equal(ours[name], theirs[name]) for name in theirs.files)
    assert longer.best_mean == whole.best_mean
    record = longer.run.read_record()
    assert (record["status"], record["timesteps"]) == ("finished", 640)
    assert len(record["resumed"]) == 1


def test_intervals_stay_and_the_config_says_what_was_run() -> None:
    short = trained(*PPO2, "n_timesteps=320", "job=night")
    longer = given_more(short, 640)
    config = longer.run.read_config()
    assert config["n_timesteps"] == 640
    assert (config["callbacks"]["eval"]["every"], config["logger"]["every"]) == (16, 3)
    assert config["callbacks"]["checkpoint"]["every"] == 32
    assert (config["resume"], config["job"]) == (None, "night")
    assert reproduce(longer.run.path).equal


def test_extension_that_is_killed_goes_on_by_resume_alone() -> None:
    short = trained(*SAC, "n_timesteps=200")
    script = (
        "import os, signal\n"
        "from zoo.algorithms.sac import SAC\n"
        "from zoo.cli import status_of\n"
        "update = SAC.update\n"
        "def killed(self):\n"
        "    update(self)\n"
        "    if self.num_timesteps == 333:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "SAC.update = killed\n"
        f"status_of(['train', 'resume={short.run.path}', 'n_timesteps=400', *{QUIET}])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], check=False)
    assert done.returncode == -signal.SIGKILL
    assert short.run.read_config()["n_timesteps"] == 400
    longer = trained(f"resume={short.run.path}", *QUIET)
    assert longer.algorithm.num_timesteps == 400
    assert_same(longer, trained(*SAC, "n_timesteps=400"))


def test_end_that_cut_a_collection_short_is_not_gone_on_from(capsys: pytest.CaptureFixture[str]) -> None:
    short = trained(*CUT, "n_timesteps=300")
    longer = given_more(short, 600)
    assert "is of an end that cut the collecting of steps short" in capsys.readouterr().err
    assert_same(longer, trained(*CUT, "n_timesteps=600"))


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ([*PPO2, "algo.learning_rate=lin_1e-3"], "algo.learning_rate=lin_1e-3 follows"),
        ([*PPO2, "algo.clip_range=lin_0.2"], "algo.clip_range=lin_0.2 follows"),
        (
            ["algo=dqn", "env=CartPole-v1", "algo.learning_starts=50", *USUAL],
            "algo.exploration_fraction=0.1 follows",
        ),
        (
            [*SAC, "replay=prioritized", "algo.learning_rate=cos_1e-3"],
            "algo.learning_rate=cos_1e-3 and replay.prioritized.beta_fraction=1.0 follow",
        ),
        ([*PPO2, "env.vectorization=native"], "callbacks.checkpoint.every=null (its checkpoints reset"),
    ],
    ids=["learning-rate", "clip-range", "exploration", "beta", "barriers"],
)
def test_what_follows_the_number_of_steps_is_named_and_nothing_is_touched(
    settings: list[str], named: str
) -> None:
    result = trained(*settings, "n_timesteps=256")
    files = {path: path.read_bytes() for path in result.run.path.rglob("*") if path.is_file()}
    with pytest.raises(ZooError, match=re.escape(named)) as raised:
        given_more(result, 512)
    message = str(raised.value)
    assert f"zoo train experiment={result.run.path}/config.yaml init_from={result.run.path}" in message
    assert "\n" not in message
    assert {path: path.read_bytes() for path in result.run.path.rglob("*") if path.is_file()} == files


def test_checkpoint_that_was_not_kept_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    result = trained(*PPO2, "n_timesteps=320", "callbacks.checkpoint.keep=false")
    assert not result.run.checkpoint.exists()
    before = sorted(result.run.path.rglob("*"))
    assert status_of(["train", f"resume={result.run.path}", "n_timesteps=640"]) == 2
    message = capsys.readouterr().err
    assert "its checkpoint was not kept (callbacks.checkpoint.keep=true keeps it)" in message
    assert "zoo train init_from=" in message
    assert message.count("\n") == 1
    assert sorted(result.run.path.rglob("*")) == before


def test_small_checkpoint_of_a_finished_run_is_kept_alone_and_a_large_one_is_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = trained(*SAC, "n_timesteps=200")
    assert (result.run.checkpoint / NEWEST).exists()
    assert not (result.run.checkpoint / PREVIOUS).exists()
    values = json.loads((result.run.checkpoint / NEWEST).read_text())
    assert values["timesteps"] == 200
    kept = trained(*SAC, "n_timesteps=200", "callbacks.checkpoint.keep=true").run
    assert (kept.checkpoint / PREVIOUS).exists()
    monkeypatch.setattr(checkpoint, "KEPT_BYTES", 1000)
    capsys.readouterr()
    assert status_of(["train", *SAC, "n_timesteps=200", "verbose=1"]) == 0
    assert "(callbacks.checkpoint.keep=true keeps a checkpoint)" in capsys.readouterr().out
    (large,) = set(Path("runs/sac/Pendulum-v1").iterdir()) - {result.run.path, kept.path}
    assert not (large / "checkpoint").exists()
