"""Every tuned file composes into a config that its algorithm accepts."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import OmegaConf

import zoo
from zoo.algorithms.registry import algorithm_class
from zoo.config.fields import build

HYPERPARAMS = Path(__file__).resolve().parents[2] / "hyperparams"
TUNED = sorted(HYPERPARAMS.glob("*/*.yaml"))


@pytest.mark.parametrize("path", TUNED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_tuned_file_builds_for_its_algorithm(path: Path) -> None:
    env = "ALE/Pong-v5" if path.stem == "atari" else path.stem
    config = OmegaConf.to_container(
        zoo.compose("train", [f"algo={path.parent.name}", f"env={env}"]), resolve=True
    )
    assert isinstance(config, dict)
    assert str(config["tuned"]).endswith(f"{path.parent.name}/{path.name}")
    hyperparameters = dict(config["algo"])
    assert hyperparameters.pop("preset", path.parent.name) == path.parent.name
    build(algorithm_class(hyperparameters.pop("name")).config_class, hyperparameters, "algo")


def test_collection_has_a_tuned_file_for_every_agent() -> None:
    agents = (HYPERPARAMS.parent / "trained_agents").glob("*/*/config.yaml")
    missing = [
        agent.parent.parent.name + "/" + agent.parent.name
        for agent in agents
        if not (HYPERPARAMS / agent.parent.parent.name / f"{agent.parent.name}.yaml").exists()
    ]
    assert missing == []
