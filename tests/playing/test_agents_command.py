"""`zoo agents` lists what there is and shows a card, whatever an agent's maker wrote into it."""

from __future__ import annotations

from pathlib import Path

import pytest
from playing_agents import save_agent

from zoo.agents import find
from zoo.commands import agents


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find, "data_folder", lambda name: None)


def shown(capsys: pytest.CaptureFixture[str], **config: str) -> str:
    agents.run(config)
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
