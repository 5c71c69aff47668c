"""`zoo agents` lists agents, and shows their cards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from playing_agents import save_agent

from zoo.agents import find
from zoo.cli import status_of


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find, "data_folder", lambda name: None)


def shown(capsys: pytest.CaptureFixture[str], **config: str) -> str:
    assert status_of(["agents", *(f"{key}={value}" for key, value in config.items())]) == 0
    return capsys.readouterr().out


def test_table_has_a_row_an_agent(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_agent("trained_agents/sac/Pendulum-v1", "sac", "Pendulum-v1")
    header, first, second = shown(capsys).splitlines()
    assert header.split() == ["algo", "env", "return", "steps", "seed", "agent"]
    assert first.split() == (
        f"ppo2 CartPole-v1 312.5 ± 8.00 over 20 episodes 40,000 0 {run_folder}/best_agent".split()
    )
    assert second.endswith("trained_agents/sac/Pendulum-v1")
    assert "sac" not in shown(capsys, algo="ppo2")
    assert "ppo2" not in shown(capsys, env="Pendulum-v1")


def test_card_tells_scores_and_settings(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    card = shown(capsys, agent=str(run_folder))
    for expected in (f"{run_folder}/best_agent", "# ppo2 on CartPole-v1", "312.5 ± 8.00", "clip_range: 0.2"):
        assert expected in card
    assert "Careful" not in card


def found(capsys: pytest.CaptureFixture[str], **config: str) -> list[dict[str, Any]]:
    return list(json.loads(shown(capsys, format="json", **config)))


def test_own_runs_come_first_and_the_newest_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    paths = [f"runs/ppo2/CartPole-v1/{name}/agent" for name in ("20260102-120000_s1", "20260101-120000_s0")]
    paths.append("trained_agents/a2c/CartPole-v1")
    for path in paths:
        save_agent(path, path.split("/")[1])
    Path(paths[1], "card.json").write_text("{")
    first, second, third = found(capsys)
    assert [each["agent"] for each in (first, second, third)] == paths
    assert (second["damaged"], second["mean_return"]) == (True, None)
    assert (third["mean_return"], third["timesteps"], third["where"]) == (312.5, 40_000, "collection")
    assert [each["agent"] for each in found(capsys, algo="a2c")] == paths[2:]
    assert found(capsys, env="Pendulum-v1") == []
