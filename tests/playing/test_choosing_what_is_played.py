"""`checkpoint=`, `env.*` and `device` of the commands in which a saved agent plays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from playing_agents import save_agent

from zoo.commands import enjoy, evaluate
from zoo.config.compose import compose
from zoo.envs.config import EnvConfig
from zoo.errors import ZooError


def measured(capsys: pytest.CaptureFixture[str], *overrides: str) -> tuple[dict[str, Any], str]:
    evaluate.run(compose("evaluate", ["seed=1", "n_episodes=2", *overrides]))
    out = capsys.readouterr().out
    return json.loads(out.splitlines()[-1]), out


@pytest.fixture
def kept(run_folder: Path) -> Path:
    """A run that has kept agents of two steps."""
    for steps in (1000, 25000):
        save_agent(run_folder / "agents" / f"step-{steps:09}")
    return run_folder


@pytest.mark.parametrize("choice", ["agent={run}", "agent={run}/best_agent", "algo=ppo2 env=CartPole-v1"])
def test_kept_agent_is_played_by_its_steps(
    choice: str, kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out = measured(capsys, *choice.format(run=kept).split(), "checkpoint=25000")
    assert out.startswith(f"agent  {kept}/agents/step-000025000\n")
    enjoy.run(compose("enjoy", [*choice.format(run=kept).split(), "checkpoint=1e3", "n_episodes=1"]))
    assert capsys.readouterr().out.startswith(f"agent  {kept}/agents/step-000001000\n")


def test_steps_that_were_not_kept_are_answered_with_those_that_were(
    kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ZooError, match=r"has kept no agent of step 2000; it has: 1000, 25000$"):
        measured(capsys, f"agent={kept}", "checkpoint=2000")
    (kept / "agents").rename("others")
    with pytest.raises(ZooError, match=r"has kept no agents as it went: callbacks.agents.every=STEPS"):
        measured(capsys, f"agent={kept}", "checkpoint=2000")
    save_agent("alone")
    with pytest.raises(ZooError, match=r"checkpoint=2000 is an agent that a run kept, and alone is no run's"):
        measured(capsys, "agent=alone", "checkpoint=2000")


def test_settings_of_the_environment_are_laid_over_those_of_the_training(
    capsys: pytest.CaptureFixture[str],
) -> None:
    save_agent("agent", env=EnvConfig(id="Pendulum-v1", kwargs={"g": 3.0}, max_episode_steps=50))
    result, out = measured(capsys, "agent=agent")
    assert result["mean_length"] == 50
    assert "plays with" not in out
    other, out = measured(capsys, "agent=agent", "env.max_episode_steps=7", "env.kwargs.g=9.5")
    assert other["mean_length"] == 7
    assert "plays with env.max_episode_steps=7, env.kwargs.g=9.5\n" in out
    same_g, _ = measured(capsys, "agent=agent", "env.max_episode_steps=7", "env.kwargs.g=3.0")
    only_shorter, _ = measured(capsys, "agent=agent", "env.max_episode_steps=7")
    assert same_g == only_shorter  # what is not set stays
    assert other["mean_return"] != same_g["mean_return"]
    both, _ = measured(capsys, "agent=agent", "env.max_episode_steps=7", "env=Pendulum-v1")
    assert both == only_shorter  # in whatever order
