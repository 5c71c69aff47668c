"""`zoo agents` lists, chooses and sorts agents, and shows their cards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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


CARDS: dict[str, dict[str, Any]] = {
    "runs/ppo2/CartPole-v1/20260101-120000_s0/agent": {
        "mean_return": 400.0,
        "timesteps": 10,
        "seed": 0,
        "created": "2026-01-01T12:00:00+00:00",
    },
    "runs/ppo2/CartPole-v1/20260102-120000_s1/agent": {
        "mean_return": None,
        "timesteps": 30,
        "seed": 1,
        "created": "2026-01-02T12:00:00+00:00",
    },
    "trained_agents/a2c/CartPole-v1": {
        "mean_return": 450.0,
        "timesteps": 20,
        "seed": 1,
        "created": "2026-01-03T12:00:00+00:00",
    },
}
FIRST, SECOND, THIRD = CARDS


@pytest.fixture
def listed(working_folder: Path) -> None:
    for path, card in CARDS.items():
        save_agent(path, path.split("/")[1])
        file = Path(path, "card.json")
        file.write_text(json.dumps({**json.loads(file.read_text()), **card}))


def found(capsys: pytest.CaptureFixture[str], **config: Any) -> list[str]:
    agents.run({"format": "json", **config})
    return [each["agent"] for each in json.loads(capsys.readouterr().out)]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, [SECOND, FIRST, THIRD]),
        ({"where": "own"}, [SECOND, FIRST]),
        ({"where": "collection"}, [THIRD]),
        ({"algo": "a2c"}, [THIRD]),
        ({"env": "Pendulum-v1"}, []),
        ({"seed": 1}, [SECOND, THIRD]),
        ({"min_return": 400}, [FIRST, THIRD]),
        ({"sort": "return"}, [THIRD, FIRST, SECOND]),
        ({"sort": "steps"}, [SECOND, THIRD, FIRST]),
        ({"sort": "time"}, [THIRD, SECOND, FIRST]),
        ({"sort": "algo"}, [THIRD, SECOND, FIRST]),
        ({"sort": "return", "seed": 1}, [THIRD, SECOND]),
    ],
)
def test_agents_are_chosen_and_sorted(
    config: dict[str, Any], expected: list[str], listed: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert found(capsys, **config) == expected


def test_json_holds_what_the_card_says(listed: None, capsys: pytest.CaptureFixture[str]) -> None:
    Path(FIRST, "card.json").write_text("{")
    agents.run({"format": "json"})
    second, first, third = json.loads(capsys.readouterr().out)
    assert first["damaged"]
    assert first["mean_return"] is None
    assert second["mean_return"] is None
    assert (third["mean_return"], third["timesteps"], third["where"]) == (450.0, 20, "collection")
