"""A run whose config was edited does not go on with another memory or precision than it had."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from zoo.training.edited_runs import refuse_edited

import zoo
from zoo.algorithms.callback import PREEMPTED, Callback
from zoo.errors import ZooError
from zoo.training.checkpoint import read_checkpoint
from zoo.training.experiment import Experiment
from zoo.training.run_folder import RunFolder
from zoo.training.train import train


class _StopAfter(Callback):
    every = 60

    def on_steps(self, algorithm: Any) -> None:
        algorithm.request_stop(PREEMPTED)


def config_of(*words: str) -> dict[str, Any]:
    return dict(zoo.compose("train", [*words, "progress_bar=false", "verbose=0"]))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Return a run of TD3 with priorities that a signal has ended."""
    folder = tmp_path_factory.mktemp("runs")
    words = ["algo=td3", "env=Pendulum-v1", "memory=prioritized", "memory.n_step=2", "policy.net_arch=[8]"]
    words += ["algo.learning_starts=20", "algo.batch_size=8", "algo.buffer_size=80", "tuned=none"]
    words += ["n_timesteps=120", "callbacks=checkpoint", "callbacks.checkpoint.every=30", "logger=none"]
    words += ["compile=false", "threads=1", f"runs_dir={folder}"]
    with Experiment(config_of(*words)) as experiment:
        experiment.callbacks.insert(0, _StopAfter())
        return experiment.run_through().run


def edited(run: RunFolder, **settings: Any) -> None:
    config = yaml.safe_load(run.config.read_text())
    for path, value in settings.items():
        *sections, key = path.split("__")
        section = config[sections[0]] if sections else config
        section[key] = value
    run.config.write_text(yaml.safe_dump(config))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"memory__n_step": 3}, "memory.n_step is 3, the run had 2; a run goes on as it was"),
        ({"memory__prioritized": None}, "memory.prioritized is None, the run had priorities"),
        ({"algo__buffer_size": 90}, "algo.buffer_size is 90, the run had 80"),
        ({"algo__optimize_memory_usage": True}, "algo.optimize_memory_usage is True, the run had False"),
    ],
)
def test_edited_memory_is_refused_in_clear_words(
    run: RunFolder, settings: dict[str, Any], message: str
) -> None:
    before = run.config.read_bytes()
    edited(run, **settings)
    try:
        with pytest.raises(ZooError) as raised:
            train(config_of(f"resume={run.path}"))
    finally:
        run.config.write_bytes(before)
    assert f"{run.config} has been edited: {message}" in str(raised.value)


def test_what_the_checkpoint_shows_is_told_without_an_agent(run: RunFolder) -> None:

    state = read_checkpoint(run.checkpoint).algorithm
    with Experiment(config_of(f"resume={run.path}")) as experiment:
        algorithm, nowhere = experiment.algorithm, RunFolder(Path("nowhere"))
        refuse_edited(nowhere, state, algorithm)
        other = {**state, "runtime": {**state["runtime"], "precision": "bf16"}, "memory": {"sampler": {}}}
        with pytest.raises(
            ZooError, match=r"edited: precision is float32, the run had bf16, memory\.priorit"
        ):
            refuse_edited(nowhere, other, algorithm)
