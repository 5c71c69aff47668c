"""`zoo benchmark` measures what there is, goes on where it ended, and no agent ends it."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from zoo.algorithms.ppo import PPO2
from zoo.algorithms.registry import algorithm_class
from zoo.commands.benchmark import (
    Benchmark,
    candidates,
    published_scores,
    table_of,
)
from zoo.config.schema import BenchmarkSettings
from zoo.core.printing import decimal
from zoo.errors import ZooError


def benchmark(out: str | Path = "out", n_jobs: int = 1) -> Benchmark:
    return Benchmark(
        BenchmarkSettings(
            agents=None,
            algo=None,
            env=None,
            n_episodes=2,
            n_envs=2,
            n_jobs=n_jobs,
            deterministic=None,
            seed=0,
            out=str(out),
            trust=False,
        )
    )


@pytest.fixture
def collection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two agents that act, one that is damaged, and one whose environment a stranger would import."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "agents"
    for algo in ("a2c", "dqn"):
        save(algo, folder / algo / "CartPole-v1")
    foreign = save("a2c", folder / "foreign")
    config = foreign / "config.yaml"
    config.write_text(config.read_text().replace("id: CartPole-v1", "id: evil:CartPole-v1"))
    damaged = save("a2c", folder / "damaged")
    (damaged / "config.yaml").write_text("format: [")
    return folder


def save(algo: str, path: Path, seed: int = 1) -> Path:
    return algorithm_class(algo)("MlpPolicy", "CartPole-v1", seed=seed, compile=False).save(path)


def measured(folder: Path, n_jobs: int = 1, **wanted: Any) -> list[dict[str, Any]]:
    """Measure and return the results that were new."""
    told: list[dict[str, Any]] = []
    options = {"algo": None, "env": None, **wanted}
    assert benchmark(n_jobs=n_jobs).measure(candidates(str(folder), **options), told.append)
    return told


def test_table_tells_scores_and_problems_and_goes_on(collection: Path) -> None:
    first = measured(collection, n_jobs=2)
    assert len(first) == 4
    problems = {row["agent"]: row["problem"] for row in first if row.get("problem")}
    assert set(problems) == {"agents/damaged", "agents/foreign"}
    assert "trust=true" in problems["agents/foreign"]
    assert "config.yaml" in problems["agents/damaged"]
    table = Path("out/benchmark.md").read_text()
    scored = next(row for row in first if row["agent"] == "agents/a2c/CartPole-v1")
    spread = f"{decimal(scored['mean_return'])} ± {decimal(scored['std_return'])}"
    assert f"| a2c | CartPole-v1 | {spread} |" in table
    assert "500.0 ± 0.00 (rl-baselines3-zoo (SB3))" in table
    assert "not measured: the agent in" in table
    with open("out/benchmark.csv", newline="") as file:
        assert {row["algo"] for row in csv.DictReader(file) if row["mean_return"]} == {"a2c", "dqn"}

    save("dqn", collection / "dqn" / "CartPole-v1", seed=2)
    again = measured(collection / "dqn")
    assert [row["agent"] for row in again] == ["agents/dqn/CartPole-v1"]
    assert not benchmark().missing(candidates(str(collection / "a2c"), None, None))
    results = json.loads(Path("out/benchmark.json").read_text())["results"]
    assert len(results) == 4


def test_filters(collection: Path) -> None:
    assert [each.algo for each in candidates(str(collection), "dqn", None)] == ["dqn"]
    with pytest.raises(ZooError, match="no agent to measure among the 4 found"):
        candidates(str(collection), "dqn", "Pendulum-v1")
    with pytest.raises(ZooError, match="no such folder"):
        candidates("nowhere", None, None)


def test_of_a_run_the_best_agent_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "runs" / "a2c" / "CartPole-v1" / "1"
    for name in ("agent", "best_agent"):
        save("a2c", run / name)
    (run / "run.json").write_text("{}")
    assert [each.path.name for each in candidates("runs", None, None)] == ["best_agent"]


def test_agent_of_a_preset_is_found_by_it_and_by_its_algorithm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = PPO2("MlpPolicy", "CartPole-v1", seed=1, compile=False)
    model.save("agents/theirs")
    model.preset = "ppo"
    PPO2.load(model.save("agents/ours"), compile=False).save("agents/saved_again")
    names = {each.path.name: each.algo for each in candidates("agents", "ppo2", None)}
    assert names == {"theirs": "ppo2", "ours": "ppo", "saved_again": "ppo"}
    assert {each.path.name for each in candidates("agents", "ppo", None)} == {"ours", "saved_again"}
    row = {"agent": "agents/ours", "algo": "ppo", "base": "ppo2", "env": "CartPole-v1", "problem": "none"}
    assert "500.0 ± 0.00" in table_of([row], published_scores()).text("md")
