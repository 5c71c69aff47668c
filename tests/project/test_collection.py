"""The collection's agents load and act; played for longer, they reach the score on their card."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

import zoo
from zoo.agents.agent_folder import read_agent
from zoo.config.fields import build
from zoo.envs.config import EnvConfig
from zoo.envs.vec_env import make_vec_env
from zoo.experiment.evaluation import evaluate

COLLECTION = Path(__file__).resolve().parents[2] / "trained_agents"
AGENTS = sorted(card.parent for card in COLLECTION.glob("*/*/card.json"))

every_agent = pytest.mark.parametrize("folder", AGENTS, ids=lambda path: f"{path.parent.name}-{path.name}")


def env_of(folder: Path) -> EnvConfig:
    """Return the environment of an agent's training; the agent normalises by itself."""
    return build(EnvConfig, {**read_agent(folder).config["env"], "normalize": False}, "env")


def test_the_collection_is_there() -> None:
    assert len(AGENTS) >= 71


@every_agent
def test_agent_plays_ten_steps(folder: Path) -> None:
    model = zoo.load(folder)
    envs = make_vec_env(env_of(folder), 1, training=False)
    try:
        observations, _ = envs.reset(seed=0)
        state, episode_start = None, None
        for _ in range(10):
            actions, state = model.predict(observations, state, episode_start)
            assert envs.action_space.contains(actions)
            observations, _, terminated, truncated, _ = envs.step(actions)
            episode_start = terminated | truncated
    finally:
        envs.close()


@pytest.mark.slow
@every_agent
def test_agent_reaches_the_score_on_its_card(folder: Path) -> None:
    card = json.loads((folder / "card.json").read_text())
    model = zoo.load(folder)
    played = evaluate(model, env_of(folder), 50, seed=0, n_envs=5)
    spread = math.hypot(card["std_return"] / math.sqrt(card["n_eval_episodes"]), played.std / math.sqrt(50))
    allowed = 4 * spread + 0.01 * abs(card["mean_return"])
    assert played.mean == pytest.approx(card["mean_return"], abs=allowed)
