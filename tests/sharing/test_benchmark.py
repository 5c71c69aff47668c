"""`zoo benchmark` measures what there is, goes on where it ended, and no agent ends it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from forked import Forked

from zoo.algorithms.ppo import PPO2
from zoo.algorithms.registry import algorithm_class
from zoo.cli import status_of
from zoo.core.file_lock import FileLock
from zoo.core.printing import decimal
from zoo.envs.config import EnvConfig


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def save(algo: str, path: str, seed: int = 1) -> Path:
    return algorithm_class(algo)("MlpPolicy", "CartPole-v1", seed=seed, compile=False).save(path)


def benchmark(*overrides: str) -> dict[str, dict[str, Any]]:
    """Run the command and return the results by agent."""
    assert status_of(["benchmark", "n_episodes=2", "n_envs=2", "out=out", *overrides]) == 0
    results = json.loads(Path("out/benchmark.json").read_text())["results"]
    return {row["agent"]: row for row in results}


def test_table_tells_scores_and_problems_and_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    """Two agents that act, one that is damaged, and one whose environment a stranger would import."""
    for algo in ("a2c", "dqn"):
        save(algo, f"agents/{algo}/CartPole-v1")
    foreign = save("a2c", "agents/foreign") / "config.yaml"
    foreign.write_text(foreign.read_text().replace("id: CartPole-v1", "id: evil:CartPole-v1"))
    (save("a2c", "agents/damaged") / "config.yaml").write_text("format: [")

    rows = benchmark("agents=agents", "n_jobs=2")
    assert len(rows) == 4
    assert "trust=true" in rows["agents/foreign"]["problem"]
    assert "config.yaml" in rows["agents/damaged"]["problem"]
    scored = rows["agents/a2c/CartPole-v1"]
    spread = f"{decimal(scored['mean_return'])} ± {decimal(scored['std_return'])}"
    table = Path("out/benchmark.md").read_text()
    assert f"| a2c | CartPole-v1 | {spread} |" in table
    assert "500.0 ± 0.00 (rl-baselines3-zoo (SB3))" in table
    assert "not measured: the agent in" in table

    save("dqn", "agents/dqn/CartPole-v1", seed=2)
    capsys.readouterr()
    again = benchmark("agents=agents/dqn")
    assert "1, of which 1 to measure" in capsys.readouterr().out
    assert again["agents/a2c/CartPole-v1"] == scored
    assert again["agents/dqn/CartPole-v1"]["fingerprint"] != rows["agents/dqn/CartPole-v1"]["fingerprint"]
    benchmark("agents=agents/a2c")
    assert "1, of which 0 to measure" in capsys.readouterr().out


def test_environment_decides_how_actions_are_taken() -> None:
    env = EnvConfig(id="MiniGrid-Empty-5x5-v0", wrappers=["minigrid.wrappers.FlatObsWrapper"])
    PPO2("MlpPolicy", env, seed=1, compile=False).save("agents/ppo2/drawn")
    save("ppo2", "agents/ppo2/greedy")
    played = {Path(path).name: row["play"] for path, row in benchmark("agents=agents").items()}
    assert (played["drawn"]["deterministic"], played["greedy"]["deterministic"]) == (False, True)


def test_one_benchmark_at_a_time_writes_into_a_folder() -> None:
    save("a2c", "agents/a2c/CartPole-v1")
    Path("out").mkdir()
    with FileLock(Path("out/.lock")):
        second = Forked(lambda: status_of(["benchmark", "agents=agents", "out=out"]))
        _, errors = second.communicate()
    assert second.returncode == 2
    assert "another zoo benchmark writes there" in errors


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (["agents=agents", "env=Pendulum-v1"], "no agent to measure among the 1 found"),
        (["agents=nowhere"], "no such folder"),
        (["agents=agents", "out=file"], "out=file: can't write there"),
        (["agents=agents", "out=file/x"], "out=file/x: can't write there"),
    ],
)
def test_nothing_to_measure(wanted: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    (save("a2c", "agents/damaged") / "config.yaml").write_text("format: [")
    Path("file").touch()
    assert status_of(["benchmark", *wanted]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_benchmark_uses_best_agent_and_finds_preset() -> None:
    run = "runs/ppo/CartPole-v1/1"
    model = PPO2("MlpPolicy", "CartPole-v1", seed=1, compile=False)
    model.preset = "ppo"
    for name in ("agent", "best_agent"):
        model.save(f"{run}/{name}")
    Path(run, "run.json").write_text("{}")
    for algo in ("ppo2", "ppo"):
        rows = benchmark("agents=runs", f"algo={algo}")
        assert list(rows) == [f"{run}/best_agent"]
    assert "500.0 ± 0.00" in Path("out/benchmark.md").read_text()
