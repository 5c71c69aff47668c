"""`zoo.train` takes what the command line takes, in values of Python's, whatever ran in the process."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import zoo
from zoo.config.overrides import as_hydra_reads
from zoo.core.tensors import read_tensors

SETTINGS: dict[str, Any] = {"n_timesteps": 512, "seed": 3, "compile": False, "progress_bar": False}
SHORT = {**SETTINGS, "logger": "none", "callbacks": "none"}

TRAINED_ALONE = """
import sys, zoo
zoo.train("algo=ppo2", "env=CartPole-v1", n_timesteps=512, seed=3, compile=False, progress_bar=False,
          logger="none", callbacks="none", runs_dir="alone")
"""


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_overrides_and_python_values_make_the_config_of_the_command_line() -> None:
    result = zoo.train("algo=ppo2", "env=CartPole-v1", **SHORT, algo={"gamma": 0.9}, policy={"net_arch": [8]})
    config = result.run.read_config()
    assert config["algo"]["gamma"] == 0.9
    assert config["policy"]["net_arch"] == [8]
    assert config["tuned"].endswith("hyperparams/ppo2/CartPole-v1.yaml")
    assert config["n_envs"] == 8  # as that file says
    assert result.algorithm.num_timesteps == 512
    assert zoo.load(result.agent).num_timesteps == 512


def test_what_ran_before_in_the_process_changes_nothing(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", TRAINED_ALONE], cwd=tmp_path, check=True)
    zoo.PPO2("MlpPolicy", "CartPole-v1", seed=7, compile=False).learn(64)
    random.seed(1)
    np.random.seed(2)
    torch.manual_seed(4)
    torch.set_default_dtype(torch.float64)
    try:
        result = zoo.train("algo=ppo2", "env=CartPole-v1", **SHORT)
    finally:
        torch.set_default_dtype(torch.float32)
    (alone,) = Path("alone").glob("*/*/*/agent/policy.safetensors")
    here, there = read_tensors(result.agent / "policy.safetensors"), read_tensors(alone)
    assert here.keys() == there.keys()
    assert all(np.array_equal(here[name], there[name]) for name in here)


@pytest.mark.parametrize(
    "value",
    [
        *(1, -2, 1e-5, 0.25, True, False, None, "text", "a,b [c] {d} 'e' \"f\" \\", "", "null", "1e5"),
        *([64, 64], [], {"pi": [64], "vf": []}, {"type": "linear", "start": 3e-4, "end": 0}),
    ],
)
def test_values_come_through_as_they_are(value: Any) -> None:
    config = zoo.compose("train", ["algo=ppo2", "env=CartPole-v1", f"env.kwargs.x={as_hydra_reads(value)}"])
    assert config.env.kwargs.x == value
    assert type(config.env.kwargs.x) is type(value) or isinstance(value, list | dict)
