"""Agents that a run keeps as it goes: named by their steps, whole, and the same after a kill."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import zoo
from zoo.agents.agent_folder import read_agent
from zoo.agents.find import kept_agents
from zoo.config.compose import compose
from zoo.experiment.experiment import Experiment, Result, train

SHORT = [
    *("algo=ppo2", "env=CartPole-v1", "tuned=none", "n_timesteps=512", "n_envs=2", "algo.n_steps=32"),
    *("algo.batch_size=64", "algo.n_epochs=1", "compile=false", "threads=1", "logger=none", "verbose=0"),
    *("progress_bar=false", "callbacks.eval.every=128", "callbacks.eval.n_episodes=2", "seed=3"),
    *("callbacks.agents.every=100", "callbacks.checkpoint.every=192"),
]


@pytest.fixture(autouse=True)
def _working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def trained(*overrides: str) -> Result:
    return train(compose("train", [*SHORT, *overrides]))


def assert_same_agents(first: Path, second: Path) -> None:
    ours, theirs = kept_agents(first), kept_agents(second)
    assert list(ours) == list(theirs)
    for steps in ours:
        ones, others = (read_agent(found[steps]).tensors for found in (ours, theirs))
        assert all(np.array_equal(ones[name], others[name]) for name in ones)


def test_agents_are_named_by_their_steps_and_carry_their_score() -> None:
    result = trained()
    agents = kept_agents(result.run.path)
    assert list(agents) == [128, 256, 320, 448, 512]
    assert [path.name for path in agents.values()][:2] == ["step-000000128", "step-000000256"]
    cards = {steps: read_agent(path).card for steps, path in agents.items()}
    assert all(card["timesteps"] == steps for steps, card in cards.items())
    assert [steps for steps, card in cards.items() if card.get("mean_return") is not None] == [128, 256, 512]
    last = zoo.load(agents[512])
    own = result.algorithm.get_parameters()
    assert all(np.array_equal(values, own[name]) for name, values in last.get_parameters().items())
    first = zoo.load(agents[128]).get_parameters()
    assert not all(np.array_equal(values, own[name]) for name, values in first.items())


def test_interrupted_run_keeps_the_same_agents_as_one_that_never_stopped() -> None:
    """What was kept after the checkpoint is kept once more; what a kill left half written goes."""
    whole = trained()
    with Experiment(compose("train", [*SHORT, "seed=3"])) as experiment:
        experiment.config["n_timesteps"] = 448  # as if it were killed there
        experiment.learn()
    run = experiment.run.path
    assert list(kept_agents(run)) == [128, 256, 320, 448]  # and the last checkpoint is of 384
    stale = run / "agents" / "step-000000433"
    (run / "agents" / "step-000000448").rename(stale)
    half = run / "agents" / ".step-000000512.0123abcd.partial"
    half.mkdir()
    (half / "config.yaml").write_text("format: 1")
    lost = run / "agents" / ".step-000000320.previous"
    (run / "agents" / "step-000000320").rename(lost)
    train(compose("train", [f"resume={run}", "verbose=0", "progress_bar=false"]))
    assert sorted(each.name for each in (run / "agents").iterdir()) == [
        each.name for each in kept_agents(whole.run.path).values()
    ]
    assert_same_agents(run, whole.run.path)
