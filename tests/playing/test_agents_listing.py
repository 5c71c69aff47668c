"""`zoo agents` chooses and sorts, for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from playing_agents import save_agent

from zoo.agents import find
from zoo.commands import agents

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


@pytest.fixture(autouse=True)
def listed(working_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find, "data_folder", lambda name: None)
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
    config: dict[str, Any], expected: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert found(capsys, **config) == expected


def test_json_holds_what_the_card_says(capsys: pytest.CaptureFixture[str]) -> None:
    Path(FIRST, "card.json").write_text("{")
    agents.run({"format": "json"})
    second, first, third = json.loads(capsys.readouterr().out)
    assert first["damaged"]
    assert first["mean_return"] is None
    assert second["mean_return"] is None
    assert (third["mean_return"], third["timesteps"], third["where"]) == (450.0, 20, "collection")
