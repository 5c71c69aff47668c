"""An agent is found by algorithm and environment: the user's newest run first, then the collections."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from zoo.agents import find
from zoo.agents.agent_folder import AgentFiles, read_agent, write_agent
from zoo.agents.find import find_agent, resolve_agent
from zoo.errors import ZooError


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder and an installed Zoo, both without agents."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr(find, "data_folder", lambda name: tmp_path / "package" / name)
    return tmp_path / "work"


def add(agent: AgentFiles, *paths: str) -> None:
    for path in paths:
        write_agent(path, agent)


def test_newest_own_run_comes_before_the_collections(agent: AgentFiles, tmp_path: Path) -> None:
    add(agent, str(tmp_path / "package/trained_agents/ppo2/CartPole-v1"))
    assert find_agent("ppo2", "CartPole-v1") == tmp_path / "package/trained_agents/ppo2/CartPole-v1"

    add(agent, "trained_agents/ppo2/CartPole-v1")
    assert find_agent("ppo2", "CartPole-v1") == Path("trained_agents/ppo2/CartPole-v1")

    for run in ("20260101-000000_s7", "20260102-000000_s1", "20251231-235959_s9"):
        add(agent, f"runs/ppo2/CartPole-v1/{run}/agent")
    newest = Path("runs/ppo2/CartPole-v1/20260102-000000_s1")
    assert find_agent("ppo2", "CartPole-v1") == newest / "agent"

    add(agent, f"{newest}/best_agent")
    assert find_agent("ppo2", "CartPole-v1") == newest / "best_agent"


def test_run_without_a_whole_agent_is_passed_over(agent: AgentFiles) -> None:
    add(agent, "runs/ppo2/CartPole-v1/20260101-000000_s7/agent")
    Path("runs/ppo2/CartPole-v1/20260102-000000_s1/best_agent").mkdir(parents=True)
    add(agent, "runs/ppo2/CartPole-v1/20260103-000000_s1/.best_agent.ab12.partial")
    assert find_agent("ppo2", "CartPole-v1").parts[3] == "20260101-000000_s7"


def test_id_with_a_namespace_or_module_has_a_folder_too(agent: AgentFiles) -> None:
    add(agent, "runs/ppo2/ALE-Pong-v5/20260101-000000_s7/agent", "trained_agents/ppo2/mine-Id-v0")
    assert "ALE-Pong-v5" in find_agent("ppo2", "ALE/Pong-v5").parts
    assert "mine-Id-v0" in find_agent("ppo2", "mine:Id-v0").parts


def test_what_there_is_instead_is_named(agent: AgentFiles) -> None:
    add(agent, "trained_agents/ppo2/CartPole-v1", "trained_agents/a2c/Acrobot-v1")
    with pytest.raises(ZooError) as caught:
        find_agent("ppo2", "Acrobot-v1")
    for named in (
        "ppo2 has: CartPole-v1",
        "on Acrobot-v1 there is: a2c",
        "zoo train algo=ppo2 env=Acrobot-v1",
    ):
        assert named in str(caught.value)
    with pytest.raises(ZooError, match=r"did you mean 'CartPole-v1'\?"):
        find_agent("ppo2", "CartPol-v1")
    with pytest.raises(ZooError, match=r"zoo train algo=sac env=Pendulum-v1"):
        find_agent("sac", "Pendulum-v1")


def test_environments_are_named_as_they_are_typed(agent: AgentFiles) -> None:
    agent.card["env"] = "ALE/Pong-v5"
    add(agent, "trained_agents/ppo2/ALE-Pong-v5")
    agent.card["env"] = "my_envs:Mine-v0"
    add(agent, "runs/ppo2/my_envs-Mine-v0/20260101-000000_s7/agent")
    with pytest.raises(
        ZooError, match=r"ppo2 has: ALE/Pong-v5, my_envs:Mine-v0; did you mean 'ALE/Pong-v5'\?"
    ):
        find_agent("ppo2", "ALE/Pon-v5")
    agent.card["env"] = "something else"
    add(agent, "trained_agents/ppo2/ALE-Pong-v5")
    with pytest.raises(ZooError, match=r"ppo2 has: ALE-Pong-v5, my_envs:Mine-v0; did"):
        find_agent("ppo2", "ALE/Pon-v5")


def test_path_of_a_run_means_its_best_agent(agent: AgentFiles) -> None:
    add(agent, "run/agent")
    assert resolve_agent("run") == Path("run/agent")
    agent.card["timesteps"] = 40_000
    add(agent, "run/best_agent")
    Path("run/config.yaml").write_text("algo: {name: ppo2}")
    assert resolve_agent("run") == Path("run/best_agent")
    assert resolve_agent("run/agent") == Path("run/agent")
    assert read_agent("run").card["timesteps"] == 40_000


def test_missing_path_names_its_neighbour(agent: AgentFiles) -> None:
    add(agent, "trained/cartpole")
    with pytest.raises(
        ZooError, match=re.escape("there is no agent at trained/cartpol; did you mean 'cartpole'?")
    ):
        resolve_agent("trained/cartpol")
    with pytest.raises(ZooError, match="there is no agent at nowhere/at/all; `zoo agents` lists"):
        resolve_agent("nowhere/at/all")
