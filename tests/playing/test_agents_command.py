"""`zoo agents` lists what there is and shows a card, whatever an agent's maker wrote into it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playing_agents import save_agent

from zoo.agents import finding
from zoo.commands import agents


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "data_folder", lambda name: None)


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


def test_card_of_a_stranger_cannot_control_the_terminal(
    run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run_folder / "best_agent"
    card = json.loads((folder / "card.json").read_text())
    attack = "\x1b]0;owned\x07\x1b[2J\nalgo\u202e"
    card |= {
        "env": attack,
        "created": attack,
        "versions": {attack: attack},
        "hyperparameters": {attack: attack},
    }
    (folder / "card.json").write_text(json.dumps(card))
    (folder / "README.md").write_text(attack)
    for out in (shown(capsys), shown(capsys, agent=str(folder))):
        assert all(character == "\n" or character.isprintable() for character in out)
