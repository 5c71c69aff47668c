"""Goals on the command line: presets choose hindsight, and successes are told wherever returns are."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf

import zoo
from zoo.commands import enjoy, evaluate

HINDSIGHT = {"goal_selection_strategy": "future", "n_sampled_goal": 4, "copy_info_dict": False}


@pytest.mark.parametrize("algo", ["dqn", "sac", "td3", "tqc"])
def test_presets_are_the_algorithm_with_hindsight(algo: str) -> None:
    config: Any = OmegaConf.to_container(
        zoo.compose("train", [f"algo=her_{algo}", "env=MyGoals-v0", "replay.n_step=2"])
    )
    assert (config["algo"]["name"], config["algo"]["preset"]) == (algo, f"her_{algo}")
    assert config["replay"] == {"n_step": 2, "prioritized": None, "hindsight": HINDSIGHT}
    without = zoo.compose("train", [f"algo=her_{algo}", "env=MyGoals-v0", "replay=uniform"])
    assert without.replay.hindsight is None


def test_successes_are_told_wherever_returns_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    overrides = [
        "algo=her_dqn",
        "env=Zoo/BitFlipping-v0",
        "env.kwargs.n_bits=2",
        "n_timesteps=200",
        "n_envs=2",
    ]
    small = ["policy.net_arch=[8]", "algo.learning_starts=50", "algo.batch_size=10", "compile=false"]
    quiet = ["progress_bar=false", "logger=csv", "callbacks.eval.every=100", "seed=0"]
    result = zoo.train(zoo.compose("train", [*overrides, *small, *quiet]))
    assert result.evaluation is not None
    rate = result.evaluation.success_rate
    assert rate is not None

    (run,) = Path("runs/her_dqn/Zoo-BitFlipping-v0").iterdir()
    with open(run / "monitor" / "0.monitor.csv") as file:
        _, header, *rows = list(csv.reader(file))
    assert header == ["r", "l", "t", "is_success"]
    assert {(float(row[0]) == -2.0, row[3]) for row in rows} == {(True, "False"), (False, "True")}
    with np.load(run / "evaluations.npz") as file:
        assert file["successes"].shape == (2, 10)
        assert file["successes"][-1].mean() == rate
    scalars = (run / "progress.csv").read_text().splitlines()[0]
    assert "rollout/success_rate" in scalars
    assert "eval/success_rate" in scalars
    assert json.loads((run / "agent" / "card.json").read_text())["success_rate"] == rate
    assert f"over 10 episodes, success {rate:.0%}" in (run / "agent" / "README.md").read_text()

    capsys.readouterr()
    evaluate.run(zoo.compose("evaluate", [f"agent={run}", "n_episodes=5", "seed=1"]))
    out = capsys.readouterr().out
    measured = json.loads(out.splitlines()[-1])
    assert f"successes                  {measured['success_rate']:.0%}" in out
    enjoy.run(zoo.compose("enjoy", [f"agent={run}", "n_episodes=5", "seed=1", "render=false"]))
    assert capsys.readouterr().out.endswith(f"5 episodes, success {measured['success_rate']:.0%}\n")
