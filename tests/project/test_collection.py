"""The collection and the tuned files."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf

import zoo
from zoo.agents.agent_folder import read_agent, read_card
from zoo.algorithms.registry import algorithm_class
from zoo.config.fields import build
from zoo.envs.config import EnvConfig
from zoo.envs.make_env import make_vec_env
from zoo.envs.registry import folder_name, is_atari_game
from zoo.experiment.evaluation import evaluate

COLLECTION = Path(__file__).resolve().parents[2] / "trained_agents"
AGENTS = sorted(card.parent for card in COLLECTION.glob("*/*/card.json"))

every_agent = pytest.mark.parametrize("folder", AGENTS, ids=lambda path: f"{path.parent.name}-{path.name}")


def env_of(folder: Path) -> EnvConfig:
    """Return the environment of an agent's training; the agent normalises by itself."""
    return build(EnvConfig, {**read_agent(folder).config["env"], "normalize": False}, "env")


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
    n_episodes = 4 if is_atari_game(folder.name) else 10
    played = evaluate(
        zoo.load(folder),
        env_of(folder),
        n_episodes,
        n_envs=n_episodes,
        deterministic=card.get("deterministic", True),
        seed=0,
    )
    spread = max(card["std_return"], played.std) * math.sqrt(1 / card["n_eval_episodes"] + 1 / n_episodes)
    allowed = 4 * spread + 0.01 * abs(card["mean_return"])
    assert played.mean == pytest.approx(card["mean_return"], abs=allowed)


MEASURED = COLLECTION.parent / "docs/measured"


@every_agent
def test_collection_agent_has_best_scored_seed(folder: Path) -> None:
    algo, env = folder.parent.name, folder.name
    scores = {
        row["seed"]: float(row["mean_return"])
        for row in rows_of(MEASURED / "scores.csv")
        if (row["algo"], folder_name(row["env"])) == (algo, env)
    }
    assert str(read_card(folder)["seed"]) == max(scores, key=lambda seed: scores[seed])
    assert {row["seed"] for row in rows_of(MEASURED / f"curves/{algo}/{env}.csv")} == scores.keys()


def test_collection_is_small_and_remarks_have_scores() -> None:
    assert sum(path.stat().st_size for path in COLLECTION.rglob("*") if path.is_file()) < 60e6
    films = (MEASURED.parent / "images/collection").glob("*.gif")
    assert all(film.stat().st_size <= 300_000 for film in films)
    scored = {f"{row['algo']}/{row['env']}" for row in rows_of(MEASURED / "scores.csv")}
    assert yaml.safe_load((MEASURED / "remarks.yaml").read_text()).keys() <= scored


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


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
    agents = [path.parent for path in (HYPERPARAMS.parent / "trained_agents").glob("*/*/config.yaml")]
    names = [f"{each.parent.name}/{'atari' if is_atari_game(each.name) else each.name}" for each in agents]
    assert [name for name in names if not (HYPERPARAMS / f"{name}.yaml").exists()] == []
