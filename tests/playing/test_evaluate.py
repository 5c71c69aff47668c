"""`zoo evaluate` measures an agent and ends with one line of JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from zoo.algorithms.registry import algorithm_class
from zoo.commands import evaluate
from zoo.config.compose import compose
from zoo.core.printing import decimal
from zoo.envs.config import EnvConfig
from zoo.errors import ZooError
from zoo.experiment.evaluation import evaluate as evaluate_agent


def measure(capsys: pytest.CaptureFixture[str], *overrides: str) -> tuple[dict[str, Any], str]:
    evaluate.run(compose("evaluate", ["seed=1", *overrides]))
    out = capsys.readouterr().out
    result: dict[str, Any] = json.loads(out.splitlines()[-1])
    return result, out


def test_last_line_is_the_promised_json(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result, out = measure(capsys, "algo=ppo2", "env=CartPole-v1", "n_episodes=12")
    agent = algorithm_class("ppo2").load(run_folder / "best_agent")
    expected = evaluate_agent(agent, "CartPole-v1", 12, seed=1)
    assert result == {
        "algo": "ppo2",
        "env": "CartPole-v1",
        "mean_return": expected.mean,
        "std_return": expected.std,
        "iqm_return": expected.iqm,
        "ci95": list(expected.ci95()),
        "mean_length": expected.mean_length,
        "n_episodes": 12,
    }
    assert result["ci95"][0] <= result["mean_return"] <= result["ci95"][1]
    assert f"{decimal(expected.mean)} ± {decimal(expected.std)}" in out
    assert f"agent  {run_folder}/best_agent" in out


def test_returns_are_raw_and_the_statistics_the_agents_own(capsys: pytest.CaptureFixture[str]) -> None:
    env = EnvConfig(id="Pendulum-v1", normalize=True)
    agent = algorithm_class("ppo2")("MlpPolicy", env, seed=0, compile=False, n_steps=64)
    agent.learn(128)
    path = agent.save("agent")
    files_before = {file.name: file.read_bytes() for file in path.iterdir()}
    result, _ = measure(capsys, "agent=agent", "n_episodes=3")
    assert -2000 < result["mean_return"] < -300  # of 200 steps; normalised rewards would be a hundredth
    again, _ = measure(capsys, "agent=agent", "n_episodes=3")
    assert again == result
    assert {file.name: file.read_bytes() for file in path.iterdir()} == files_before
    without = algorithm_class("ppo2").load(path)
    without.normalizer = None
    assert evaluate_agent(without, "Pendulum-v1", 3, seed=1).mean != result["mean_return"]


def test_spaces_that_differ_are_one_message(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZooError, match=r"can't act in Pendulum-v1: its observations"):
        measure(capsys, f"agent={run_folder}", "env=Pendulum-v1")
