"""`zoo evaluate` ends with one line of JSON, a saved agent predicts as it did, `zoo agents` lists agents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from playing_agents import MINIGRID, save_agent

import zoo
from zoo.agents import find
from zoo.agents.agent_folder import read_card
from zoo.algorithms.registry import ALGORITHMS, algorithm_class
from zoo.cli import status_of
from zoo.commands import evaluate
from zoo.config.compose import ConfigLoader
from zoo.core.printing import decimal
from zoo.envs.config import EnvConfig
from zoo.errors import ZooError
from zoo.experiment.evaluation import evaluate as evaluate_agent
from zoo.experiment.expert_recording import record_expert


def measure(capsys: pytest.CaptureFixture[str], *overrides: str) -> tuple[dict[str, Any], str]:
    evaluate.run(ConfigLoader("evaluate").settings(["seed=1", *overrides]))
    out = capsys.readouterr().out
    result: dict[str, Any] = json.loads(out.splitlines()[-1])
    return result, out


def test_last_line_is_the_promised_json(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result, out = measure(capsys, "algo=ppo2", "env=CartPole-v1", "n_episodes=12")
    agent = algorithm_class("ppo2").load(run_folder / "best_agent")
    expected = evaluate_agent(agent, "CartPole-v1", 12, seed=1)
    scores = {"mean_return": expected.mean, "std_return": expected.std, "iqm_return": expected.iqm}
    scores |= {"ci95": list(expected.ci95()), "mean_length": expected.mean_length, "n_episodes": 12}
    played = {"deterministic": True, "seed": 1}
    assert result == {"algo": "ppo2", "env": "CartPole-v1", **scores, **played}
    assert result["ci95"][0] <= result["mean_return"] <= result["ci95"][1]
    assert f"{decimal(expected.mean)} ± {decimal(expected.std)}" in out
    assert f"agent  {run_folder}/best_agent" in out


def test_environment_decides_how_actions_are_taken(capsys: pytest.CaptureFixture[str]) -> None:
    agent = algorithm_class("ppo2").load(save_agent("agent", env=MINIGRID))
    for choice, is_greedy in (("null", False), ("true", True)):
        result, _ = measure(capsys, "agent=agent", f"deterministic={choice}", "n_episodes=8")
        expected = evaluate_agent(agent, MINIGRID, 8, deterministic=is_greedy, seed=1)
        assert (result["deterministic"], result["mean_return"]) == (is_greedy, expected.mean)


def test_evaluate_uses_raw_returns_and_own_statistics(capsys: pytest.CaptureFixture[str]) -> None:
    env = EnvConfig(id="Pendulum-v1", normalize=True)
    agent = algorithm_class("ppo2")("MlpPolicy", env, seed=0, compile=False, n_steps=64)
    agent.learn(128)
    path = agent.save("agent")
    files_before = {file.name: file.read_bytes() for file in path.iterdir()}
    result, _ = measure(capsys, "agent=agent", "n_episodes=3")
    assert -2000 < result["mean_return"] < -300  # of 200 steps; normalised rewards would be a hundredth
    again, _ = measure(capsys, "agent=agent", "n_episodes=3")
    assert again == result
    assert {file.name: file.read_bytes() for file in path.iterdir()} == files_before
    without = algorithm_class("ppo2").load(path)
    without.normalizer = None
    assert evaluate_agent(without, "Pendulum-v1", 3, seed=1).mean != result["mean_return"]


def test_spaces_that_differ_are_one_message(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZooError, match=r"can't act in Pendulum-v1: its observations"):
        measure(capsys, f"agent={run_folder}", "env=Pendulum-v1")


def test_path_of_an_agent_may_have_spaces(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("my agents").mkdir()
    run_folder.rename("my agents/run")
    _, out = measure(capsys, "agent='my agents/run'", "n_episodes=3")
    assert "agent  my agents/run/best_agent" in out


REPLAY = {"learning_starts": 20, "batch_size": 16}
SMALL: dict[str, dict[str, Any]] = {
    "ppo2": {"n_steps": 16},
    "acer": {"n_steps": 16, "replay_start": 20},
    "gail": {"n_steps": 64, "batch_size": 32},
    **{algo: {**REPLAY} for algo in ("dqn", "qrdqn", "iqn", "sac", "tqc")},
    **{algo: {**REPLAY, "train_freq": 10, "gradient_steps": 2} for algo in ("ddpg", "td3")},
}
ENVS = {spaces.Discrete: "CartPole-v1", spaces.Box: "Pendulum-v1"}
CASES = [
    (algo, env)
    for algo in ALGORITHMS
    for kind, env in ENVS.items()
    if kind in algorithm_class(algo).supported_actions
]


@pytest.mark.parametrize(("algo", "env"), CASES)
def test_loaded_agent_predicts_identically(tmp_path: Path, algo: str, env: str) -> None:
    options = dict(SMALL.get(algo, {}))
    if algo in ("bc", "gail"):
        options["dataset"] = record_expert(lambda _: 1, env, 1, seed=0)
    config = EnvConfig(id=env, normalize=env == "Pendulum-v1")
    agent = algorithm_class(algo)("MlpPolicy", config, seed=0, compile=False, **options).learn(64)
    loaded = zoo.load(agent.save(tmp_path / ("agent.zip" if algo in ("ppo2", "sac") else "agent")))
    assert type(loaded) is type(agent)
    assert loaded.num_timesteps == agent.num_timesteps
    generator = np.random.default_rng(0)
    shape = agent.observation_space.shape
    observations = generator.standard_normal((200, *shape)).astype(np.float32)
    np.testing.assert_array_equal(loaded.predict(observations)[0], agent.predict(observations)[0])
    np.testing.assert_array_equal(loaded.predict(observations[0])[0], agent.predict(observations[0])[0])
    for parameter, value in agent.get_parameters().items():
        np.testing.assert_array_equal(loaded.get_parameters()[parameter], value)


def test_class_loads_its_own_agents_only(tmp_path: Path) -> None:
    path = save_agent(tmp_path / "agent", "a2c")
    with pytest.raises(ZooError, match="a2c"):
        algorithm_class("ppo2").load(path)


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find, "data_folder", lambda name: None)


def listed(capsys: pytest.CaptureFixture[str], **config: str) -> str:
    assert status_of(["agents", *(f"{key}={value}" for key, value in config.items())]) == 0
    return capsys.readouterr().out


@pytest.mark.usefixtures("nothing_installed")
def test_table_has_a_row_an_agent(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_agent("trained_agents/sac/Pendulum-v1", "sac", "Pendulum-v1")
    header, first, second = listed(capsys).splitlines()
    assert header.split() == ["algo", "env", "return", "steps", "seed", "agent"]
    assert first.split() == (
        f"ppo2 CartPole-v1 312.5 ± 8.00 over 20 episodes 40,000 0 {run_folder}/best_agent".split()
    )
    assert second.endswith("trained_agents/sac/Pendulum-v1")
    assert "sac" not in listed(capsys, algo="ppo2")
    assert "ppo2" not in listed(capsys, env="Pendulum-v1")
    for name, mean_return in (("2_s1", -7.0), ("3_s2", 400.0)):
        agent = save_agent(f"runs/a2c/CartPole-v1/{name}/best_agent", "a2c")
        card = read_card(agent) | {"mean_return": mean_return}
        (agent / "card.json").write_text(json.dumps(card))
    _, *of_env = listed(capsys, env="CartPole-v1").splitlines()
    assert [line.split()[2] for line in of_env] == ["400.0", "312.5", "-7.00"]


@pytest.mark.usefixtures("nothing_installed")
def test_card_tells_scores_and_settings(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    card = listed(capsys, agent=str(run_folder))
    for expected in (f"{run_folder}/best_agent", "# ppo2 on CartPole-v1", "312.5 ± 8.00", "clip_range: 0.2"):
        assert expected in card
    assert "Careful" not in card


def found(capsys: pytest.CaptureFixture[str], **config: str) -> list[dict[str, Any]]:
    return list(json.loads(listed(capsys, format="json", **config)))


@pytest.mark.usefixtures("nothing_installed")
def test_own_runs_come_first_and_the_newest_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    paths = [f"runs/ppo2/CartPole-v1/{name}/agent" for name in ("20260102-120000_s1", "20260101-120000_s0")]
    paths.append("trained_agents/a2c/CartPole-v1")
    for path in paths:
        save_agent(path, path.split("/")[1])
    Path(paths[1], "card.json").write_text("{")
    first, second, third = found(capsys)
    assert [each["agent"] for each in (first, second, third)] == paths
    assert (second["damaged"], second["mean_return"]) == (True, None)
    assert (third["mean_return"], third["timesteps"], third["where"]) == (312.5, 40_000, "collection")
    assert [each["agent"] for each in found(capsys, algo="a2c")] == paths[2:]
    assert found(capsys, env="Pendulum-v1") == []
