"""Agents of format 1 load and act as they did when they were saved.

What stands in `agents/` is never written again: later versions read it. `agents.json` has the actions on
fixed observations.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from cells import CELLS, GOLDEN, actions, differences

import zoo

AGENTS = sorted(path.parent for path in (GOLDEN / "agents").glob("*/card.json"))
TOLERANCE = 1e-5


def recorded() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((GOLDEN / "agents.json").read_text())
    return found


def test_every_algorithm_and_policy_has_an_agent() -> None:
    assert {path.name for path in AGENTS} == recorded().keys()
    assert {path.name for path in AGENTS} >= {name.partition(" ")[0] for name in CELLS}
    policies = {yaml.safe_load((path / "config.yaml").read_text())["policy"]["name"] for path in AGENTS}
    assert len(policies) >= 9


@pytest.mark.parametrize("agent", AGENTS, ids=lambda path: path.name)
def test_agent_of_format_1_acts_as_it_did(agent: Path) -> None:
    config = yaml.safe_load((agent / "config.yaml").read_text())
    assert config["format"] == 1
    model = zoo.load(agent, device="cpu")
    assert not differences(recorded()[agent.name], actions(model), TOLERANCE)


@pytest.mark.parametrize("agent", AGENTS, ids=lambda path: path.name)
def test_agent_that_is_saved_again_has_the_same_weights(agent: Path, tmp_path: Path) -> None:
    zoo.load(agent, device="cpu").save(tmp_path / "again")
    before = {path.name: path.read_bytes() for path in agent.glob("*.safetensors")}
    assert before == {path.name: path.read_bytes() for path in (tmp_path / "again").glob("*.safetensors")}
