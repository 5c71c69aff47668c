"""NaN is never learned from, and never written where JSON is read."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import zoo
from zoo.agents.agent_folder import read_agent, write_agent
from zoo.cli import status_of

TRAIN = (
    *("train", "algo=ppo2", "env=Pendulum-v1", "n_timesteps=20", "policy.net_arch=[4]", "tuned=none"),
    *("callbacks.eval=null", "compile=false", "verbose=0", "algo.n_steps=10", "algo.batch_size=10"),
)


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    model = zoo.PPO2("MlpPolicy", "Pendulum-v1", compile=False, device="cpu")
    return model.save("agent")


def test_run_does_not_begin_with_weights_that_are_none(
    agent: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    files = read_agent(agent)
    name = next(iter(files.tensors))
    files.tensors[name].flat[0] = np.nan
    write_agent(agent, files)
    assert status_of([*TRAIN, "init_from=agent"]) == 2
    told = capfd.readouterr().err
    assert "not finite" in told
    assert name in told
    assert not Path("runs").exists()


def test_card_and_last_line_have_null(agent: Path, capfd: pytest.CaptureFixture[str]) -> None:
    files = read_agent(agent)
    files.card["mean_return"] = float("nan")
    write_agent(agent, files)
    assert json.loads((agent / "card.json").read_text())["mean_return"] is None
    assert status_of(["evaluate", "agent=agent", "n_episodes=1"]) == 0
    assert json.loads(capfd.readouterr().out.splitlines()[-1], parse_constant=pytest.fail)
